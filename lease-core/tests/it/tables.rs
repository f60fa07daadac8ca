//! The decision tables, cell by cell: another holder asks, the same holder asks, a hold is used and
//! ends.

use core::fmt::Write as _;
use core::time::Duration;
use std::collections::BTreeMap;

use lease_core::{
    Action, Answer, At, Attribution, AuthorityId, BusyReason, By, Cell, Cells, Change, Code,
    Contention, Decision, Detail, Disposition, FencingToken, Fresh, KernelSeen, KernelState, Lease,
    LeaseId, LeasePolicy, Moment, Operation, Provenance, RecordClass, Refusal, ResourceKey, Scene,
    Seen, Seq, Slot, Step, Verdict, Wait, decide, kernel_contention, limits,
};

use crate::rig::{
    Answered as _, Process, Rig, T0, TTL_MS, VIEWPORT, alive, dead, first_process, generation, key,
    ms, observed, occupied, op, second_process, session_ttl, unknown,
};

/// What is so when another holder asks.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Of the holder: `alive`, `dead`, `unknown`, `occupied`.
    verdict: &'static str,
    in_flight: bool,
    expired: bool,
}

/// Another holder asks, under sessions with a term (A) and under process-bound leases (B).
///
/// A never asks for a verdict. B never asks about operations, and its term only changes the text of a
/// refusal. After the code stand the fields of the refusal: `expired`, `in flight`, the verdict.
const CONTENTION: &str = "
D1  | alive    | idle      | no  | WRITE_CONFLICT           | WRITER_LEASE_HELD alive
D2  | alive    | idle      | yes | RECLAIMED 1, CREATED 2   | WRITER_LEASE_HELD expired alive
D3  | alive    | in flight | no  | WRITE_CONFLICT in flight | WRITER_LEASE_HELD in flight alive
D4  | alive    | in flight | yes | WRITE_CONFLICT expired in flight | WRITER_LEASE_HELD expired in flight alive
D5  | dead     | idle      | no  | WRITE_CONFLICT           | WRITER_LEASE_TAKEN_OVER 2 from 1
D6  | dead     | idle      | yes | RECLAIMED 1, CREATED 2   | WRITER_LEASE_TAKEN_OVER 2 from 1
D7  | dead     | in flight | no  | WRITE_CONFLICT in flight | WRITER_LEASE_TAKEN_OVER 2 from 1
D8  | dead     | in flight | yes | WRITE_CONFLICT expired in flight | WRITER_LEASE_TAKEN_OVER 2 from 1
D9  | unknown  | idle      | no  | WRITE_CONFLICT           | INVALID_HOLDER unknown
D10 | unknown  | idle      | yes | RECLAIMED 1, CREATED 2   | INVALID_HOLDER expired unknown
D11 | unknown  | in flight | no  | WRITE_CONFLICT in flight | INVALID_HOLDER in flight unknown
D12 | unknown  | in flight | yes | WRITE_CONFLICT expired in flight | INVALID_HOLDER expired in flight unknown
D13 | occupied | idle      | no  | WRITE_CONFLICT           | WRITER_LEASE_HELD occupied by 4250 cargo
D14 | occupied | idle      | yes | RECLAIMED 1, CREATED 2   | WRITER_LEASE_HELD expired occupied by 4250 cargo
D15 | occupied | in flight | no  | WRITE_CONFLICT in flight | WRITER_LEASE_HELD in flight occupied by 4250 cargo
D16 | occupied | in flight | yes | WRITE_CONFLICT expired in flight | WRITER_LEASE_HELD expired in flight occupied by 4250 cargo
";

/// The same for a kernel lock (C), with a record of the present protocol and with a claim of the
/// earlier one. There is no term, so every second row repeats the one above it.
///
/// In flight means that somebody has the kernel lock. A claim of the earlier protocol takes none, so
/// beside it in flight means that somebody else has it. How such a claim is classed says already what
/// is known of its process: it is honoured unless that is gone, and occupancy is not asked.
const KERNEL: &str = "
D1  | alive    | idle      | no  | granted               | busy: LegacyAlive
D2  | alive    | idle      | yes | granted               | busy: LegacyAlive
D3  | alive    | in flight | no  | busy: held, Confirmed | busy: held, Confirmed
D4  | alive    | in flight | yes | busy: held, Confirmed | busy: held, Confirmed
D5  | dead     | idle      | no  | granted               | granted, reaps
D6  | dead     | idle      | yes | granted               | granted, reaps
D7  | dead     | in flight | no  | busy: held, Unconfirmed | busy: held, Unconfirmed
D8  | dead     | in flight | yes | busy: held, Unconfirmed | busy: held, Unconfirmed
D9  | unknown  | idle      | no  | granted               | busy: LegacyAlive
D10 | unknown  | idle      | yes | granted               | busy: LegacyAlive
D11 | unknown  | in flight | no  | busy: held, Unconfirmed | busy: held, Unconfirmed
D12 | unknown  | in flight | yes | busy: held, Unconfirmed | busy: held, Unconfirmed
D13 | occupied | idle      | no  | granted               | granted, reaps
D14 | occupied | idle      | yes | granted               | granted, reaps
D15 | occupied | in flight | no  | busy: held, Unconfirmed | busy: held, Unconfirmed
D16 | occupied | in flight | yes | busy: held, Unconfirmed | busy: held, Unconfirmed
";

/// The other two presets. No source gives these columns: they follow from the parts.
///
/// A hosted session is the sessions' column, and before its term is over process proof decides as for
/// processes; what is in flight shields from the term only, never from proof of death. A server
/// session has no term, and the server's word is the proof.
const DERIVED: &str = "
D1  | alive    | idle      | no  | WRITER_LEASE_HELD alive  | WRITE_CONFLICT alive
D2  | alive    | idle      | yes | RECLAIMED 1, CREATED 2   | WRITE_CONFLICT alive
D3  | alive    | in flight | no  | WRITER_LEASE_HELD in flight alive | WRITE_CONFLICT in flight alive
D4  | alive    | in flight | yes | WRITER_LEASE_HELD expired in flight alive | WRITE_CONFLICT in flight alive
D5  | dead     | idle      | no  | WRITER_LEASE_TAKEN_OVER 2 from 1 | SESSION_ENDED 1, CREATED 2
D6  | dead     | idle      | yes | RECLAIMED 1, CREATED 2   | SESSION_ENDED 1, CREATED 2
D7  | dead     | in flight | no  | WRITER_LEASE_TAKEN_OVER 2 from 1 | SESSION_ENDED 1, CREATED 2
D8  | dead     | in flight | yes | WRITER_LEASE_TAKEN_OVER 2 from 1 | SESSION_ENDED 1, CREATED 2
D9  | unknown  | idle      | no  | INVALID_HOLDER unknown   | INVALID_HOLDER unknown
D10 | unknown  | idle      | yes | RECLAIMED 1, CREATED 2   | INVALID_HOLDER unknown
D11 | unknown  | in flight | no  | INVALID_HOLDER in flight unknown | INVALID_HOLDER in flight unknown
D12 | unknown  | in flight | yes | INVALID_HOLDER expired in flight unknown | INVALID_HOLDER in flight unknown
D13 | occupied | idle      | no  | WRITER_LEASE_HELD occupied by 4250 cargo | WRITE_CONFLICT occupied by 4250 cargo
D14 | occupied | idle      | yes | RECLAIMED 1, CREATED 2   | WRITE_CONFLICT occupied by 4250 cargo
D15 | occupied | in flight | no  | WRITER_LEASE_HELD in flight occupied by 4250 cargo | WRITE_CONFLICT in flight occupied by 4250 cargo
D16 | occupied | in flight | yes | WRITER_LEASE_HELD expired in flight occupied by 4250 cargo | WRITE_CONFLICT in flight occupied by 4250 cargo
";

/// Reads a table: the name of each row, its facts, its outcomes in the two columns.
fn rows(table: &'static str) -> Vec<(&'static str, Facts, [&'static str; 2])> {
    let rows: Vec<_> = table
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let parts: Vec<_> = line.split('|').map(str::trim).collect();
            let facts = Facts {
                verdict: parts[1],
                in_flight: parts[2] == "in flight",
                expired: parts[3] == "yes",
            };
            (parts[0], facts, [parts[4], parts[5]])
        })
        .collect();
    let read: Vec<_> = rows
        .iter()
        .map(|(_, facts, _)| (facts.verdict, facts.in_flight, facts.expired))
        .collect();
    let all = ["alive", "dead", "unknown", "occupied"].map(|verdict| {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(in_flight, expired)| (verdict, in_flight, expired))
    });
    assert_eq!(
        read,
        all.concat(),
        "a table has every combination of facts once"
    );
    rows
}

fn verdict(name: &str) -> Verdict {
    match name {
        "alive" => alive(),
        "dead" => dead(),
        "unknown" => unknown(),
        "occupied" => occupied(),
        other => panic!("no verdict is called {other}"),
    }
}

/// All that may be known of a holder, nothing included.
fn knowledge() -> [Option<Verdict>; 5] {
    [
        None,
        Some(alive()),
        Some(dead()),
        Some(occupied()),
        Some(unknown()),
    ]
}

fn now() -> Moment {
    ms(T0)
}

fn token(number: u64) -> FencingToken {
    FencingToken {
        authority: AuthorityId::from_bytes([0xA1; 16]),
        generation: generation(number),
        lease: LeaseId::from_bytes([u8::try_from(number).unwrap(); 16]),
    }
}

/// The first holder's lease under `terms`: at the last moment of its term, or one millisecond later.
fn held(terms: &LeasePolicy, facts: Facts) -> Lease<Process> {
    let touched = ms(T0 - TTL_MS - u64::from(facts.expired));
    let term = Duration::from_millis(TTL_MS);
    let in_flight = Operation {
        id: op(1),
        since: touched,
        from: Provenance::Created,
    };
    Lease {
        token: token(1),
        holder: first_process(),
        terms: terms.clone(),
        acquired: touched,
        touched,
        expires: (terms.term() != lease_core::Term::None).then(|| touched.after(term)),
        ops: if facts.in_flight {
            vec![in_flight]
        } else {
            Vec::new()
        },
        tainted: false,
        shared: false,
        begun: facts.in_flight,
        handovers: 0,
        ticket: None,
    }
}

/// Cells in a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map(pub(crate) BTreeMap<ResourceKey, Cell<Process>>);

impl Cells<Process> for Map {
    fn put(&mut self, key: &ResourceKey, cell: Cell<Process>) -> Slot {
        self.0.insert(key.clone(), cell);
        Slot::NONE
    }

    fn edit(
        &mut self,
        key: &ResourceKey,
        _hint: Slot,
        edit: &mut dyn FnMut(&mut Cell<Process>),
    ) -> Slot {
        edit(self.0.get_mut(key).unwrap());
        Slot::NONE
    }

    fn remove(&mut self, key: &ResourceKey, _hint: Slot) {
        assert!(self.0.remove(key).is_some(), "what ends was there");
    }
}

/// What one decision did, in words, and everything that came of it.
#[derive(Debug, PartialEq)]
struct Outcome {
    words: String,
    /// The whole decision and all changes, as `Debug` shows them.
    whole: String,
    cells: Map,
    granted: bool,
}

/// Decides `action` about the first holder's lease, and commits.
fn outcome(
    terms: &LeasePolicy,
    facts: Facts,
    action: &Action<Process>,
    answers: &[Answer],
    wall_ms: Option<i64>,
) -> Outcome {
    let key = key(VIEWPORT);
    let cell = Cell::load(held(terms, facts), now(), limits::TERM_MAX).unwrap();
    let mut cells = Map::default();
    cells.put(&key, cell.clone());
    let scene = Scene {
        own: Some((&key, &cell)),
        near: &[],
        queued: &[],
        due: &[],
    };
    let seen = Seen {
        now: now(),
        wall_ms,
        answers,
    };
    let decision = decide(terms, &scene, action, &seen);
    let mut whole = format!("{decision:?}");
    let mut words = Vec::new();
    let mut granted = false;
    match decision {
        Decision::Ask(questions) => {
            assert_eq!(questions.len(), 1);
            let asked = &questions[0];
            assert_eq!((asked.about, &asked.holder), (token(1), &first_process()));
            words.push(format!("asks, {:?}", asked.occupancy));
        }
        Decision::Refuse(refusal) => words.push(refused(&refusal)),
        Decision::Change(plan) => {
            let fresh = plan.created().then(|| Fresh {
                authority: token(2).authority,
                generation: token(2).generation,
                lease: token(2).lease,
            });
            let seq = Seq { major: 1, minor: 0 };
            let grant = plan.commit(&mut cells, fresh, seq, &mut |change| {
                words.push(changed(&change));
                write!(whole, "{change:?}").unwrap();
            });
            granted = grant.is_some();
            write!(whole, "{grant:?}").unwrap();
        }
    }
    Outcome {
        words: words.join(", "),
        whole,
        cells,
        granted,
    }
}

/// The code of a change, the generation it concerns and the one it replaced.
fn changed(change: &Change) -> String {
    let generation = change.token.map_or(0, |token| token.generation.get());
    match change.detail {
        Detail::Granted {
            previous: Some(previous),
            ..
        } => format!("{} {generation} from {}", change.code, previous.generation),
        _ => format!("{} {generation}", change.code),
    }
}

/// The code of a refusal and the fields that depend on the facts.
fn refused(refusal: &Refusal<Process>) -> String {
    let mut words = refusal.code().to_string();
    if let Refusal::Held(held) | Refusal::Uninspectable(held) = refusal {
        assert_eq!((held.token, &held.by), (token(1), &first_process()));
        assert_eq!(held.resource, key(VIEWPORT));
        if held.expired {
            assert_eq!(held.expires_in, None);
            words.push_str(" expired");
        }
        if held.in_flight > 0 {
            assert_eq!(held.in_flight, 1);
            words.push_str(" in flight");
        }
        if let Some(verdict) = &held.verdict {
            write!(words, " {}", verdict.name()).unwrap();
            for occupant in &verdict.evidence().occupants {
                write!(words, " by {occupant}").unwrap();
            }
        }
    }
    words
}

fn contend(terms: &LeasePolicy, facts: Facts, answers: &[Answer], wall_ms: Option<i64>) -> Outcome {
    let holder = second_process();
    outcome(
        terms,
        facts,
        &Action::Acquire { holder, ttl: None },
        answers,
        wall_ms,
    )
}

fn answers(verdict: Option<Verdict>) -> Vec<Answer> {
    verdict
        .map(|verdict| observed(token(1), verdict))
        .into_iter()
        .collect()
}

/// Answers that must not count: about another lease, and about an earlier holder of this one.
fn inert() -> [Answer; 2] {
    let mut other = observed(token(3), dead());
    let mut earlier = observed(token(1), dead());
    earlier.handovers = 7;
    other.handovers = 0;
    [other, earlier]
}

/// Checks one cell, and that no fact which `terms` do not ask for moves it.
fn check(name: &str, terms: &LeasePolicy, facts: Facts, expected: &str, asks_verdict: bool) {
    let known = answers(Some(verdict(facts.verdict)));
    let outcome = contend(terms, facts, &known, None);
    assert_eq!(outcome.words, expected, "row {name} under {terms:?}");
    let holder = if outcome.granted {
        second_process()
    } else {
        first_process()
    };
    let lease = outcome.cells.0[&key(VIEWPORT)].lease().unwrap().clone();
    assert_eq!(lease.holder, holder, "row {name}: who holds then");
    if !outcome.granted {
        assert_eq!(
            lease,
            held(terms, facts),
            "row {name}: a refusal changes nothing"
        );
    }
    for wall_ms in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(contend(terms, facts, &known, Some(wall_ms)), outcome);
    }
    let with_inert: Vec<_> = inert().into_iter().chain(known).collect();
    assert_eq!(contend(terms, facts, &with_inert, None), outcome);
    if !asks_verdict {
        for verdict in knowledge() {
            let seen = contend(terms, facts, &answers(verdict), None);
            assert_eq!(seen, outcome, "row {name}: a verdict that is not asked for");
        }
    }
}

/// Whether the terms ask for a verdict in this row: a lease that is over needs none.
fn asks(terms: &LeasePolicy, facts: Facts) -> bool {
    let proofs = terms.ends_on();
    !held(terms, facts).lapsed(now()) && (proofs.process.is_some() || proofs.session)
}

fn kernel(facts: Facts, legacy: bool, verdict: Option<Verdict>, same_file: bool) -> Contention {
    let gone = matches!(facts.verdict, "dead" | "occupied");
    let record = match (legacy, gone) {
        (false, _) => RecordClass::Current,
        (true, true) => RecordClass::LegacyDead,
        (true, false) => RecordClass::LegacyAlive,
    };
    let lock = if facts.in_flight {
        KernelState::Busy
    } else {
        KernelState::Taken
    };
    kernel_contention(&KernelSeen {
        verdict,
        lock,
        record,
        same_file,
        steady: true,
    })
}

/// What a kernel lock answered, without whether the record is adopted.
fn kernel_words(contention: Contention) -> String {
    match contention {
        Contention::Grant { reap: false, .. } => "granted".to_owned(),
        Contention::Grant { reap: true, .. } => "granted, reaps".to_owned(),
        Contention::Busy(BusyReason::Kernel(attribution)) => format!("busy: held, {attribution:?}"),
        Contention::Busy(reason) => format!("busy: {reason:?}"),
    }
}

fn check_kernel(name: &str, facts: Facts, expected: [&str; 2]) {
    for (legacy, expected) in [(false, expected[0]), (true, expected[1])] {
        for same_file in [true, false] {
            let seen = Some(verdict(facts.verdict));
            let contention = kernel(facts, legacy, seen, same_file);
            assert_eq!(kernel_words(contention), expected, "row {name}");
            if let Contention::Grant { adopt, .. } = contention {
                let foreign = legacy || !same_file;
                assert_eq!(adopt, foreign, "row {name}: adopts what is not its own");
                for verdict in knowledge() {
                    assert_eq!(kernel(facts, legacy, verdict, same_file), contention);
                }
            }
        }
    }
}

// S53
#[test]
fn every_cell_of_the_contention_table_gives_its_outcome() {
    let sessions = session_ttl();
    let process = LeasePolicy::process_bound();
    for (name, facts, [a, b]) in rows(CONTENTION) {
        check(name, &sessions, facts, a, false);
        check(name, &process, facts, b, true);
        // The term and what is in flight show in a refusal of B and change nothing else.
        let known = answers(Some(verdict(facts.verdict)));
        for (in_flight, expired) in [(false, false), (true, false), (false, true), (true, true)] {
            let varied = Facts {
                in_flight,
                expired,
                ..facts
            };
            let words = contend(&process, varied, &known, None).words;
            let plain = |words: &str| words.replace(" expired", "").replace(" in flight", "");
            assert_eq!(plain(&words), plain(b), "row {name}");
        }
    }
    for (name, facts, expected) in rows(KERNEL) {
        check_kernel(name, facts, expected);
    }
}

#[test]
fn hosted_and_server_sessions_follow_from_their_parts() {
    let hosted = LeasePolicy::hosted_session(Duration::from_millis(TTL_MS)).unwrap();
    let server = LeasePolicy::server_session();
    for (name, facts, [by_host, by_server]) in rows(DERIVED) {
        check(name, &hosted, facts, by_host, asks(&hosted, facts));
        check(name, &server, facts, by_server, asks(&server, facts));
    }
}

/// The four presets.
fn presets() -> [LeasePolicy; 4] {
    let ttl = Duration::from_millis(TTL_MS);
    [
        session_ttl(),
        LeasePolicy::process_bound(),
        LeasePolicy::hosted_session(ttl).unwrap(),
        LeasePolicy::server_session(),
    ]
}

/// Every action that may rest on a fact about the holder.
fn asking() -> [Action<Process>; 4] {
    let by = |exited| By::Holder {
        holder: first_process(),
        lease: Some(token(1).lease),
        exited,
    };
    [
        Action::Acquire {
            holder: second_process(),
            ttl: None,
        },
        Action::Release(by(true)),
        Action::Check(by(false)),
        Action::Revoke {
            expected: generation(1),
            by: "operator".into(),
            reason: "test".into(),
            even_if_alive: false,
        },
    ]
}

// X4
#[test]
fn knowing_less_never_makes_a_grant_out_of_a_refusal() {
    let mut asked = 0;
    for ((_, facts, _), terms) in rows(CONTENTION)
        .into_iter()
        .flat_map(|row| presets().map(|terms| (row, terms)))
    {
        for action in asking() {
            let known = answers(Some(verdict(facts.verdict)));
            let with = |answers: &[Answer]| outcome(&terms, facts, &action, answers, None);
            let blind = with(&[]);
            let doubtful = with(&answers(Some(unknown())));
            let untouched = held(&terms, facts);
            if blind.words.starts_with("asks") {
                asked += 1;
                let lease = |outcome: &Outcome| outcome.cells.0[&key(VIEWPORT)].lease().cloned();
                assert_eq!(lease(&blind), Some(untouched.clone()));
                assert_eq!(lease(&doubtful), Some(untouched), "{action:?}");
                assert_eq!(doubtful.words.split(' ').next(), Some("INVALID_HOLDER"));
            } else {
                // Not asked for: no answer moves it, in either direction.
                assert_eq!((&blind, &doubtful), (&with(&known), &blind), "{action:?}");
            }
        }
    }
    assert!(asked > 0);
    for (_, facts, _) in rows(KERNEL) {
        for legacy in [false, true] {
            let busy = |contention| matches!(contention, Contention::Busy(_));
            let known = kernel(facts, legacy, Some(verdict(facts.verdict)), true);
            for less in [None, Some(unknown())] {
                assert_eq!(busy(kernel(facts, legacy, less, true)), busy(known));
            }
        }
    }
}

// X8
#[test]
fn equal_arguments_give_equal_outcomes_byte_for_byte() {
    for (_, facts, _) in rows(CONTENTION) {
        for terms in presets() {
            for verdict in knowledge() {
                for action in asking() {
                    let answers = answers(verdict.clone());
                    let once = outcome(&terms, facts, &action, &answers, Some(7));
                    let again = outcome(&terms, facts, &action, &answers, Some(7));
                    assert_eq!(once.whole.as_bytes(), again.whole.as_bytes());
                    assert_eq!(once, again);
                }
            }
        }
    }
}

#[test]
fn only_terms_with_proof_ask_and_say_what_counts_as_occupancy() {
    let facts = Facts {
        verdict: "alive",
        in_flight: false,
        expired: false,
    };
    let words = presets().map(|terms| contend(&terms, facts, &[], None).words);
    assert_eq!(
        words,
        [
            "WRITE_CONFLICT",
            "asks, ProcessProof { group: true, paths: true }",
            "asks, ProcessProof { group: false, paths: false }",
            "asks, ProcessProof { group: false, paths: false }",
        ]
    );
}

#[test]
fn an_unattributed_kernel_lock_names_nobody() {
    let facts = Facts {
        verdict: "unknown",
        in_flight: true,
        expired: false,
    };
    let busy = Contention::Busy(BusyReason::Kernel(Attribution::None));
    assert_eq!(kernel(facts, false, None, true), busy);
    assert_eq!(kernel(facts, true, None, true), busy);
}

#[test]
fn codes_of_the_tables_are_codes_of_the_catalogue() {
    for table in [CONTENTION, DERIVED] {
        for (name, _, outcomes) in rows(table) {
            for outcome in outcomes.iter().flat_map(|outcome| outcome.split(", ")) {
                let code = outcome.split(' ').next().unwrap();
                assert!(code.parse::<Code>().is_ok(), "row {name}: {code}");
            }
        }
    }
}

/// The same holder asks again, uses its hold, and ends it: what, in which state, under sessions with a
/// term (A) and under process-bound leases (B).
///
/// Shown are the codes of all receipts in order, then the refusal. Where a column says `-` the case
/// does not exist there. A kernel lock has no column: its guards count, and its types leave no others.
const SAME_HOLDER: &str = "
asks again         | within the term     | REENTRANT           | WRITER_LEASE_RENEWED
asks again         | expired             | RECLAIMED, CREATED  | refused WRITER_LEASE_EXPIRED
asks again         | expired, in flight  | REENTRANT           | refused WRITER_LEASE_EXPIRED
asks again         | lost                | refused WRITE_CONFLICT | refused WRITER_LEASE_HELD
asks again         | lost, successor gone | refused WRITE_CONFLICT | WRITER_LEASE_TAKEN_OVER
asks with a ttl    | within the term     | REENTRANT           | WRITER_LEASE_RENEWED
asks with a ttl    | expired             | RECLAIMED, CREATED  | WRITER_LEASE_RENEWED
asks with a ttl    | expired, in flight  | REENTRANT           | WRITER_LEASE_RENEWED
touches            | within the term     | TOUCHED             | TOUCHED
touches            | expired             | RECLAIMED, refused STALE_TOKEN | refused WRITER_LEASE_EXPIRED
touches            | expired, in flight  | TOUCHED             | refused WRITER_LEASE_EXPIRED
touches            | lost                | refused STALE_TOKEN | refused STALE_TOKEN
begins             | within the term     | OPERATION_BEGUN     | OPERATION_BEGUN
begins             | expired             | RECLAIMED, refused STALE_TOKEN | refused WRITER_LEASE_EXPIRED
begins             | expired, in flight  | OPERATION_BEGUN     | refused WRITER_LEASE_EXPIRED
begins             | lost                | refused STALE_TOKEN | refused STALE_TOKEN
checks by token    | within the term     | ENTITLED            | ENTITLED
checks by token    | expired             | RECLAIMED, refused STALE_TOKEN | refused WRITER_LEASE_MISMATCH Expired
checks by token    | expired, in flight  | ENTITLED            | refused WRITER_LEASE_MISMATCH Expired
checks by token    | lost                | refused STALE_TOKEN | refused STALE_TOKEN
is checked         | within the term     | ENTITLED            | ENTITLED
is checked         | expired             | RECLAIMED, refused WRITER_LEASE_REQUIRED | refused WRITER_LEASE_MISMATCH Expired
is checked         | expired, in flight  | ENTITLED            | refused WRITER_LEASE_MISMATCH Expired
is checked         | dead                | ENTITLED            | refused WRITER_LEASE_MISMATCH NotLive
is checked         | occupied            | ENTITLED            | refused WRITER_LEASE_MISMATCH NotLive
is checked         | unknown             | ENTITLED            | refused INVALID_HOLDER
is checked         | lost                | refused WRITER_LEASE_MISMATCH LeaseId | refused WRITER_LEASE_MISMATCH LeaseId
is checked         | nothing held        | refused WRITER_LEASE_REQUIRED | refused WRITER_LEASE_REQUIRED
releases           | within the term     | RELEASED            | WRITER_LEASE_RELEASED
releases           | expired             | RECLAIMED, refused STALE_TOKEN | WRITER_LEASE_RELEASED
releases           | in flight           | refused OPERATION_IN_FLIGHT | refused OPERATION_IN_FLIGHT
releases           | lost                | refused STALE_TOKEN | refused STALE_TOKEN
releases           | nothing held        | refused STALE_TOKEN | refused STALE_TOKEN
releases by name   | within the term     | RELEASED            | WRITER_LEASE_RELEASED
releases by name   | expired             | RECLAIMED, NO_WRITER_LEASE | WRITER_LEASE_RELEASED
releases by name   | in flight           | refused OPERATION_IN_FLIGHT | refused OPERATION_IN_FLIGHT
releases by name   | lost                | refused WRITER_LEASE_MISMATCH LeaseId | refused WRITER_LEASE_MISMATCH LeaseId
releases by name   | nothing held        | NO_WRITER_LEASE     | NO_WRITER_LEASE
is said to be gone | within the term     | refused WRITER_LEASE_MISMATCH ExitUnprovable | refused WRITER_LEASE_MISMATCH NotExited
is said to be gone | dead                | refused WRITER_LEASE_MISMATCH ExitUnprovable | WRITER_LEASE_RELEASED
is said to be gone | dead, in flight     | refused WRITER_LEASE_MISMATCH ExitUnprovable | WRITER_LEASE_RELEASED
is said to be gone | occupied            | refused WRITER_LEASE_MISMATCH ExitUnprovable | refused WRITER_LEASE_MISMATCH ExitedOccupied
is said to be gone | unknown             | refused WRITER_LEASE_MISMATCH ExitUnprovable | refused INVALID_HOLDER
disconnects        | within the term     | DISCONNECTED        | -
disconnects        | expired             | DISCONNECTED        | -
disconnects        | expired, in flight  | DISCONNECTED        | -
fails cleanly      | in flight           | RELEASED_AFTER_FAILURE | RELEASED_AFTER_FAILURE
fails, effect unknown | in flight        | RETAINED_AFTER_FAILURE | RETAINED_AFTER_FAILURE
";

/// The first process holds, and `state` is so.
fn in_state(policy: LeasePolicy, state: &str) -> (Rig<Process>, At) {
    let mut rig = Rig::new(policy);
    let ttl = Some(Duration::from_millis(TTL_MS));
    let first = rig.acquire_for(VIEWPORT, &first_process(), ttl).grant().at;
    let mut seen = alive();
    for part in state.split(", ") {
        match part {
            "within the term" => drop(rig.at(T0 + TTL_MS)),
            "expired" => drop(rig.at(T0 + TTL_MS + 1)),
            "in flight" => {
                let now = rig.now;
                rig.at(T0)
                    .begin(VIEWPORT, first, op(1), Provenance::Created)
                    .change();
                rig.now = now;
            }
            "dead" => seen = dead(),
            "occupied" => seen = occupied(),
            "unknown" => seen = unknown(),
            "nothing held" => drop(rig.release(VIEWPORT, first).change()),
            "lost" => {
                rig.at(T0 + TTL_MS + 1).answers = vec![observed(first.token, dead())];
                let second = rig.granted(VIEWPORT, &second_process());
                rig.answers = vec![observed(second.at.token, alive())];
            }
            "successor gone" => {
                let successor = rig.answers[0].about;
                rig.answers = vec![observed(successor, dead())];
            }
            other => panic!("no state is called {other}"),
        }
    }
    rig.answers.push(observed(first.token, seen));
    (rig, first)
}

/// What the first process does, or what is done in its name.
fn deed(name: &str, at: At) -> Action<Process> {
    let ttl = Some(Duration::from_millis(TTL_MS));
    let holder = first_process();
    let by = |exited| By::Holder {
        holder: first_process(),
        lease: Some(at.token.lease),
        exited,
    };
    let end = |disposition| Action::End {
        at,
        op: op(1),
        result: Err(disposition),
    };
    match name {
        "asks again" => Action::Acquire { holder, ttl: None },
        "asks with a ttl" => Action::Acquire { holder, ttl },
        "touches" => Action::Touch(at),
        "begins" => Action::Begin {
            at,
            op: op(2),
            from: Provenance::Reentrant,
        },
        "checks by token" => Action::Check(By::Token(at)),
        "is checked" => Action::Check(by(false)),
        "releases" => Action::Release(By::Token(at)),
        "releases by name" => Action::Release(by(false)),
        "is said to be gone" => Action::Release(by(true)),
        "disconnects" => Action::Disconnect(holder),
        "fails cleanly" => end(Disposition::PreMutation),
        "fails, effect unknown" => end(Disposition::Unknown),
        other => panic!("nothing is called {other}"),
    }
}

/// The codes of the receipts of one call, and its refusal.
fn history(policy: LeasePolicy, name: &str, state: &str) -> String {
    let (mut rig, at) = in_state(policy, state);
    let (past, before) = (rig.receipts.len(), rig.registry.peek(rig.now));
    let action = deed(name, at);
    let resource = (!matches!(action, Action::Disconnect(_))).then_some(VIEWPORT);
    let step = rig.step(resource, action, Wait::No);
    let mut words: Vec<_> = rig.codes()[past..]
        .iter()
        .map(ToString::to_string)
        .collect();
    if let Step::Done(lease_core::Outcome::Refused(refusal)) = step {
        words.push(match refusal {
            Refusal::Mismatch(mismatch) => format!("refused {} {mismatch:?}", refusal.code()),
            _ => format!("refused {}", refusal.code()),
        });
        if words.len() == 1 {
            assert_eq!(
                rig.registry.peek(rig.now),
                before,
                "a refusal changes nothing"
            );
        }
    }
    words.join(", ")
}

#[test]
fn every_cell_of_the_table_of_the_same_holder_gives_its_outcome() {
    for line in SAME_HOLDER.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let (name, state) = (parts[0], parts[1]);
        for (policy, expected) in [session_ttl(), LeasePolicy::process_bound()]
            .into_iter()
            .zip(&parts[2..])
        {
            if *expected != "-" {
                assert_eq!(history(policy, name, state), *expected, "{name}, {state}");
            }
        }
    }
}

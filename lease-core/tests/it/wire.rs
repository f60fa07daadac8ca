//! The stored forms: what is written stays readable, and what is not sound is refused.

use core::time::Duration;
use std::collections::BTreeSet;

use lease_core::{
    Action, Again, AuthorityId, By, Change, Code, Detail, Disposition, Evidence, Failure,
    FenceGate, FencingToken, Generation, Holder, Kept, Lease, LeaseId, LeasePolicy, Moment, Note,
    ObservedBy, OnExpiry, OpId, PolicyBuilder, ProcessProof, Proofs, Provenance, RECEIPT_SCHEMA,
    Receipt, ResourceKey, Seq, SessionHolder, Term, Verdict, Wait, WaiterId,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rig::{
    Answered as _, Rig, T0, TTL_MS, alive, dead, generation, inp, key, mcp, ms, observed, occupied,
    op, oth, unknown,
};

fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Refuses a text with these words.
#[track_caller]
fn refuses<T: serde::de::DeserializeOwned + core::fmt::Debug>(value: &Value, words: &str) {
    let error = serde_json::from_value::<T>(value.clone())
        .unwrap_err()
        .to_string();
    assert!(error.contains(words), "`{error}` does not say `{words}`");
    // The same from text, where strings can be borrowed.
    let error = serde_json::from_str::<T>(&value.to_string())
        .unwrap_err()
        .to_string();
    assert!(error.contains(words), "`{error}` does not say `{words}`");
}

/// A history that leaves a receipt of every kind a registry writes about sessions.
fn sessions(start: u64) -> Rig {
    let mut rig = Rig::sessions();
    rig.at(start);
    let at = rig.granted("app/view", &mcp()).at;
    rig.holds("app/view", &mcp()).touch("app/view", at).change();
    rig.begin("app/view", at, op(1), Provenance::Created)
        .change();
    let waiter = rig.queue("app", &oth(), Wait::Until(ms(start + 1_000)));
    assert!(rig.cancel(waiter));
    rig.queue("app", &oth(), Wait::Until(ms(start + 9)));
    rig.at(start + 5)
        .end("app/view", at, op(1), Ok(()))
        .change();
    rig.begin("app/view", at, op(2), Provenance::Reentrant)
        .change();
    rig.at(start + 10)
        .end("app/view", at, op(2), Err(Disposition::Unknown))
        .change();
    let ticket = [7; 16];
    rig.call("app/view", Action::Offer { at, ticket }).change();
    rig.adopt("app/view", at, &mcp(), &inp()).change();
    rig.call("app/view", Action::Check(By::Token(at))).change();
    rig.release("app/view", at).change();
    let at = rig.granted("b", &mcp()).at;
    rig.begin("b", at, op(3), Provenance::Created).change();
    rig.end("b", at, op(3), Err(Disposition::RolledBack))
        .change();
    rig.holds("b", &mcp()).disconnect(&mcp());
    rig.holds("b", &mcp()).at(start + 10 + TTL_MS + 1).advance();
    let at = rig.granted("b", &mcp()).at;
    let revoke = Action::Revoke {
        expected: at.token.generation,
        by: "operator\n".into(),
        reason: "stuck".into(),
        even_if_alive: true,
    };
    rig.call("b", revoke).change();
    rig.at(start).advance();
    rig
}

/// A holder of another kind, with a form of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
struct Machine {
    serial: u32,
}

impl Holder for Machine {
    type Target = ();
    const KIND: &'static str = "machine";
}

/// A takeover on proof, with its evidence.
fn takeover() -> Rig<Machine> {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let (one, two) = (Machine { serial: 1 }, Machine { serial: 2 });
    let old = rig.granted("a", &one).at.token;
    rig.answers = vec![observed(old, dead())];
    rig.holds("a", &two);
    rig
}

#[test]
fn receipts_have_a_stable_form() {
    let mut lines: Vec<_> = sessions(T0).receipts.iter().map(text).collect();
    lines.extend(takeover().receipts.iter().map(text));
    // 115 days after boot nanoseconds no longer fit what every reader keeps.
    lines.extend(sessions(10_000_000_000).receipts.iter().take(1).map(text));
    let mut noted = sessions(T0).receipts.swap_remove(0);
    noted.wall_ms = Some(1_700_000_000_123);
    noted = noted.with_note(Note::new("call_method", "tool failed"));
    lines.push(text(&noted));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn receipts_are_read_as_they_were_written() {
    let mut codes = BTreeSet::new();
    for start in [T0, 10_000_000_000] {
        for receipt in sessions(start).receipts {
            assert_eq!(read::<Receipt<SessionHolder>>(&text(&receipt)), receipt);
            codes.insert(receipt.change.code);
        }
    }
    for receipt in takeover().receipts {
        assert_eq!(read::<Receipt<Machine>>(&text(&receipt)), receipt);
        codes.insert(receipt.change.code);
    }
    assert_eq!(codes.len(), 20, "{codes:?}");
}

// X5
#[test]
fn an_end_by_term_or_takeover_says_that_the_work_is_unknown() {
    let receipt = sessions(T0).receipts.swap_remove(0);
    for &code in Code::ALL {
        let mut receipt = receipt.clone();
        receipt.change.code = code;
        let stored: Value = read(&text(&receipt));
        let claim = stored.get("work_state");
        let by_term_or_takeover = matches!(code, Code::Reclaimed | Code::TakenOver);
        let line = receipt.to_string();
        if by_term_or_takeover {
            assert_eq!(claim, Some(&json!("unknown")), "{code}");
            assert!(line.contains("work state unknown"), "{line}");
        } else {
            assert!(claim.is_none_or(|claim| claim == "unknown"), "{code}");
        }
        assert_eq!(read::<Receipt<SessionHolder>>(&text(&receipt)), receipt);
    }
    let mut real = takeover().receipts;
    assert!(real.pop().unwrap().change.work_state_unknown());
    let reclaimed = sessions(T0);
    let reclaimed = reclaimed.with_code(Code::Reclaimed);
    assert_eq!(reclaimed.len(), 1);
    assert!(text(reclaimed[0]).contains(r#""work_state":"unknown""#));
}

fn tokens() -> impl Strategy<Value = FencingToken> {
    (
        any::<[u8; 16]>(),
        1..=lease_core::limits::GENERATION_MAX,
        any::<[u8; 16]>(),
    )
        .prop_map(|(authority, number, lease)| FencingToken {
            authority: AuthorityId::from_bytes(authority),
            generation: generation(number),
            lease: LeaseId::from_bytes(lease),
        })
}

fn numbers() -> impl Strategy<Value = u64> {
    let edge = 1_u64 << 53;
    prop_oneof![any::<u64>(), edge - 2..edge + 3, Just(0), Just(u64::MAX)]
}

fn moments() -> impl Strategy<Value = Moment> {
    numbers().prop_map(Moment::from_nanos)
}

fn spans() -> impl Strategy<Value = Duration> {
    numbers().prop_map(Duration::from_nanos)
}

fn dispositions() -> impl Strategy<Value = Disposition> {
    prop_oneof![
        Just(Disposition::PreMutation),
        Just(Disposition::RolledBack),
        Just(Disposition::Unknown),
    ]
}

fn provenances() -> impl Strategy<Value = Provenance> {
    prop_oneof![Just(Provenance::Created), Just(Provenance::Reentrant)]
}

fn ops() -> impl Strategy<Value = OpId> {
    any::<[u8; 16]>().prop_map(OpId::from_bytes)
}

/// Every kind of detail, with any values.
fn details() -> impl Strategy<Value = Detail> {
    let expires = || proptest::option::of(moments());
    let granted = (expires(), proptest::option::of(tokens()))
        .prop_map(|(expires, previous)| Detail::Granted { expires, previous });
    let touched = (moments(), moments(), expires(), expires()).prop_map(
        |(before, after, expired_at, expires)| Detail::Touched {
            before,
            after,
            expired_at,
            expires,
        },
    );
    let begun = (ops(), provenances(), any::<u32>(), expires()).prop_map(
        |(op, from, in_flight, expires)| Detail::Begun {
            op,
            from,
            in_flight,
            expires,
        },
    );
    let ended =
        (ops(), spans(), any::<u32>(), expires()).prop_map(|(op, took, in_flight, expires)| {
            Detail::Ended {
                op,
                took,
                in_flight,
                expires,
                failure: None,
            }
        });
    let failed =
        (ops(), dispositions()).prop_map(|(op, disposition)| Detail::Failed { op, disposition });
    let released =
        (spans(), any::<bool>()).prop_map(|(held, exited)| Detail::Released { held, exited });
    let disconnected =
        (any::<u32>(), spans(), any::<bool>()).prop_map(|(in_flight, idle, expired)| {
            Detail::Disconnected {
                in_flight,
                idle,
                expired,
            }
        });
    let observers = prop_oneof![
        Just(ObservedBy::Request),
        Just(ObservedBy::Inspection),
        Just(ObservedBy::TokenCall),
    ];
    let reclaimed = (spans(), observers)
        .prop_map(|(idle, observed_by)| Detail::Reclaimed { idle, observed_by });
    let handed = (any::<u32>(), expires())
        .prop_map(|(handovers, expires)| Detail::HandedOver { handovers, expires });
    prop_oneof![
        Just(Detail::Plain),
        granted,
        touched,
        begun,
        ended,
        failed,
        released,
        disconnected,
        reclaimed,
        handed,
        numbers().prop_map(|number| Detail::Waiting {
            waiter: WaiterId::from_order(number),
        }),
        moments().prop_map(|read| Detail::Clock { read }),
    ]
}

#[test]
fn every_detail_is_read_as_it_was_written() {
    let receipt = sessions(T0).receipts.swap_remove(0);
    proptest!(|(detail in details(), major in numbers(), minor: u16, at in moments(), token in tokens(), wall: i64)| {
        let mut receipt = receipt.clone();
        receipt.change.detail = detail;
        receipt.change.seq = Seq { major, minor };
        receipt.change.at = at;
        receipt.change.token = Some(token);
        receipt.wall_ms = Some(wall);
        let through_value: Value = read(&text(&receipt));
        let again: Receipt<SessionHolder> = serde_json::from_value(through_value).unwrap();
        prop_assert_eq!(&again, &receipt);
        prop_assert_eq!(&read::<Receipt<SessionHolder>>(&text(&receipt)), &receipt);
        prop_assert_eq!(read::<Change>(&text(&receipt.change)), receipt.change);
    });
}

#[test]
fn every_failure_is_read_as_it_was_written() {
    let rig = sessions(T0);
    let kept = rig.with_code(Code::RetainedAfterFailure)[0];
    let stored: Value = read(&text(kept));
    let failure = &stored["detail"]["ended"]["failure"];
    assert_eq!(
        *failure,
        json!({"from": "reentrant", "disposition": "unknown", "kept": "pre_existing"})
    );
    for (kept, name) in [
        (Kept::UnknownEffect, "unknown_effect"),
        (Kept::PreExisting, "pre_existing"),
        (Kept::Shared, "shared"),
    ] {
        let mut failure: Failure = read(&failure.to_string());
        failure.kept = kept;
        let stored: Value = read(&text(&failure));
        assert_eq!(stored["kept"], name);
        assert_eq!(read::<Failure>(&text(&failure)), failure);
    }
}

#[test]
fn a_receipt_that_is_not_sound_is_refused() {
    let receipt = &sessions(T0).receipts[0];
    let stored: Value = read(&text(receipt));
    assert_eq!(stored["schema"], RECEIPT_SCHEMA);
    let with = |field: &str, value: Value| {
        let mut stored = stored.clone();
        stored[field] = value;
        stored
    };
    let unknown = "unknown schema version";
    for schema in [0, RECEIPT_SCHEMA + 1, u32::MAX] {
        let mut later = with("schema", json!(schema));
        refuses::<Receipt<SessionHolder>>(&later, &format!("{unknown} {schema}"));
        // It may have words of its own.
        later["code"] = json!("ADDED_LATER");
        refuses::<Receipt<SessionHolder>>(&later, &format!("{unknown} {schema}"));
    }
    refuses::<Receipt<SessionHolder>>(&with("schema", json!("1")), "invalid type");
    let other = "another kind of holder";
    refuses::<Receipt<SessionHolder>>(&with("holder_kind", json!("process")), other);
    let code = "not a code of this catalogue";
    refuses::<Receipt<SessionHolder>>(&with("code", json!("NO_SUCH_CODE")), code);
    refuses::<Receipt<SessionHolder>>(&with("code", json!("NO_SUCH_CODE")), "`NO_SUCH_CODE`");
    refuses::<Receipt<SessionHolder>>(&with("code", json!("created")), code);
    refuses::<Receipt<SessionHolder>>(&with("resource", json!("a/../b")), "`.` or `..`");
    refuses::<Receipt<SessionHolder>>(&with("detail", json!("no_such_detail")), "unknown variant");
    let token = |field: &str, value: Value| {
        let mut stored = stored.clone();
        stored["token"][field] = value;
        stored
    };
    for number in [0, 1_u64 << 53] {
        let stored = token("generation", json!(number));
        let words = format!("generation {number} is out of range 1..=9007199254740991");
        refuses::<Receipt<SessionHolder>>(&stored, &words);
    }
    let shouted = stored["token"]["lease"].as_str().unwrap().to_uppercase();
    refuses::<Receipt<SessionHolder>>(&token("lease", json!(shouted)), "not a UUID");
    for field in ["schema", "seq", "code", "at", "detail"] {
        let mut stored = stored.clone();
        stored.as_object_mut().unwrap().remove(field);
        refuses::<Receipt<SessionHolder>>(&stored, "missing field");
    }
    // A receipt of another kind of holder has another form too.
    refuses::<Receipt<Machine>>(&stored, "");
    let machine: Value = read(&text(&takeover().receipts[0]));
    refuses::<Receipt<SessionHolder>>(&machine, "");
}

#[test]
fn a_later_field_of_the_same_schema_is_passed_over() {
    let receipt = &sessions(T0).receipts[0];
    let mut stored: Value = read(&text(receipt));
    stored["added_later"] = json!({"anything": [1, 2]});
    assert_eq!(
        &serde_json::from_value::<Receipt<SessionHolder>>(stored).unwrap(),
        receipt
    );
}

#[test]
fn integers_above_2_to_the_53_are_text() {
    let edge = 1_u64 << 53;
    for (number, written) in [
        (0, "0".to_owned()),
        (edge - 1, "9007199254740991".to_owned()),
        (edge, "9007199254740992".to_owned()),
        (edge + 1, "\"9007199254740993\"".to_owned()),
        (u64::MAX, "\"18446744073709551615\"".to_owned()),
    ] {
        let moment = Moment::from_nanos(number);
        assert_eq!(text(&moment), written);
        let waiter = WaiterId::from_order(number);
        assert_eq!(text(&waiter), written);
        assert_eq!(read::<WaiterId>(&text(&waiter)), waiter);
        // Either form is read, whoever wrote it.
        assert_eq!(read::<Moment>(&number.to_string()), moment);
        assert_eq!(read::<Moment>(&format!("\"{number}\"")), moment);
    }
    for junk in [
        "-1",
        "1.5",
        "\"\"",
        "\"-1\"",
        "\"1e3\"",
        "\"18446744073709551616\"",
        "null",
        "[]",
    ] {
        assert!(serde_json::from_str::<Moment>(junk).is_err(), "{junk}");
    }
    refuses::<Moment>(&json!(-1), "expected a whole number");
}

#[test]
fn policies_have_a_stable_form() {
    let ttl = Duration::from_millis(TTL_MS);
    let with_margin = PolicyBuilder::new()
        .term(Term::Fixed(ttl))
        .on_expiry(OnExpiry::EndIfIdle)
        .self_stop_margin(Duration::from_secs(3))
        .build()
        .unwrap();
    let forms = [
        (
            LeasePolicy::session_ttl(ttl).unwrap(),
            r#"{"term":{"fixed":{"secs":30,"nanos":0}},"on_expiry":"end_if_idle","ends_on":{"disconnect":true,"process":null,"session":false},"again":"touch"}"#,
        ),
        (
            LeasePolicy::hosted_session(ttl).unwrap(),
            r#"{"term":{"fixed":{"secs":30,"nanos":0}},"on_expiry":"end_if_idle","ends_on":{"disconnect":true,"process":{"group":false,"paths":false},"session":false},"again":"touch"}"#,
        ),
        (
            LeasePolicy::process_bound(),
            r#"{"term":{"per_grant":{"max":null}},"on_expiry":"suspend_holder","ends_on":{"disconnect":false,"process":{"group":true,"paths":true},"session":false},"again":"renew"}"#,
        ),
        (
            LeasePolicy::server_session(),
            r#"{"term":"none","on_expiry":"ignore","ends_on":{"disconnect":true,"process":null,"session":true},"again":"touch"}"#,
        ),
        (
            with_margin,
            r#"{"term":{"fixed":{"secs":30,"nanos":0}},"on_expiry":"end_if_idle","ends_on":{"disconnect":false,"process":null,"session":false},"again":"touch","self_stop_margin":{"secs":3,"nanos":0}}"#,
        ),
    ];
    for (policy, form) in forms {
        assert_eq!(text(&policy), form);
        assert_eq!(read::<LeasePolicy>(form), policy);
    }
}

#[test]
fn a_stored_policy_that_means_nothing_is_refused() {
    let sound: Value = read(&text(
        &LeasePolicy::session_ttl(Duration::from_secs(30)).unwrap(),
    ));
    let with = |field: &str, value: Value| {
        let mut stored = sound.clone();
        stored[field] = value;
        stored
    };
    let nothing = json!({"disconnect": false, "process": null, "session": false});
    let span = |secs: u64, nanos: u32| json!({"fixed": {"secs": secs, "nanos": nanos}});
    refuses::<LeasePolicy>(&with("term", span(0, 0)), "term is zero");
    refuses::<LeasePolicy>(&with("term", span(3_153_600_000, 1)), "term is longer");
    refuses::<LeasePolicy>(&with("term", json!("none")), "must be Ignore");
    refuses::<LeasePolicy>(
        &with("term", json!({"per_grant": {"max": null}})),
        "EndIfIdle",
    );
    refuses::<LeasePolicy>(&with("on_expiry", json!("suspend_holder")), "SuspendHolder");
    refuses::<LeasePolicy>(
        &with("self_stop_margin", json!({"secs": 30, "nanos": 0})),
        "self_stop_margin",
    );
    let mut never = with("ends_on", nothing);
    never["on_expiry"] = json!("ignore");
    refuses::<LeasePolicy>(&never, "ends_on is empty");
    refuses::<LeasePolicy>(&with("merge_agents", json!(true)), "unknown field");
    refuses::<LeasePolicy>(&with("again", json!("merge")), "unknown variant");
    let mut without = sound.clone();
    without.as_object_mut().unwrap().remove("term");
    refuses::<LeasePolicy>(&without, "missing field");
    // Misspelt in a part, it would be a policy that nobody wrote.
    let proofs =
        json!({"disconnect": true, "proces": {"group": true, "paths": true}, "session": false});
    refuses::<LeasePolicy>(&with("ends_on", proofs), "unknown field");
    let process = json!({"group": true, "paths": true, "path": "/"});
    let proofs = json!({"disconnect": true, "process": process, "session": false});
    refuses::<LeasePolicy>(&with("ends_on", proofs), "unknown field");
    let term = json!({"per_grant": {"maximum": {"secs": 30, "nanos": 0}}});
    refuses::<LeasePolicy>(&with("term", term), "unknown field");
}

#[test]
fn verdicts_have_a_stable_form() {
    let forms = [
        (
            alive(),
            r#"{"alive":{"proof":"same_start_ticks","unreadable":0}}"#,
        ),
        (
            dead(),
            r#"{"dead":{"proof":"pid_recycled","detail":"ticks 987700","unreadable":0}}"#,
        ),
        (
            occupied(),
            r#"{"occupied":{"proof":"group_member","occupants":["4250 cargo"],"unreadable":0}}"#,
        ),
        (
            unknown(),
            r#"{"unknown":{"proof":"stat_unreadable","detail":"EACCES","unreadable":0}}"#,
        ),
    ];
    for (verdict, form) in forms {
        assert_eq!(text(&verdict), form);
        assert_eq!(read::<Verdict>(form), verdict);
    }
    let counted = Evidence::new("hidden").with_unreadable(3);
    assert_eq!(text(&counted), r#"{"proof":"hidden","unreadable":3}"#);
    assert_eq!(
        read::<Evidence>(r#"{"proof":"hidden"}"#),
        Evidence::new("hidden")
    );
    refuses::<Verdict>(&json!({"perhaps": {"proof": "x"}}), "unknown variant");
}

#[test]
fn a_stored_gate_that_is_not_sound_is_refused() {
    let id = "01010101-0101-4101-8101-010101010101";
    let gate = |authority: &str, generation: &str, lease: &str| {
        let text = format!(
            r#"{{"authority":{authority},"generation":{generation},"lease":{lease},"retired":[]}}"#
        );
        serde_json::from_str::<FenceGate>(&text).is_ok()
    };
    let id = format!("{id:?}");
    assert!(gate(&id, "7", &id) && gate(&id, "0", "null") && gate("null", "0", "null"));
    // A generation out of range, one without lease, a lease without one, a writer of nobody.
    assert!(!gate(&id, "9007199254740992", &id));
    assert!(!gate(&id, "7", "null"));
    assert!(!gate(&id, "0", &id));
    assert!(!gate("null", "7", &id));
    // Half a gate would be an open one.
    let whole = serde_json::to_value(FenceGate::new()).unwrap();
    for part in ["authority", "generation", "lease", "retired"] {
        let mut half = whole.clone();
        half.as_object_mut().unwrap().remove(part);
        refuses::<FenceGate>(&half, &format!("missing field `{part}`"));
    }
}

#[test]
fn integers_as_text_have_one_form() {
    let moment = |text: &str| serde_json::from_str::<Moment>(text).is_ok();
    assert!(moment("\"9007199254740993\"") && moment("7"));
    for text in [
        "\"+5\"",
        "\"007\"",
        "\"\"",
        "\"-1\"",
        "\"18446744073709551616\"",
    ] {
        assert!(!moment(text), "{text}");
    }
}

#[test]
fn a_gate_is_read_as_it_was_written() {
    let token = |by: u8, number| FencingToken {
        authority: AuthorityId::from_bytes([by; 16]),
        generation: generation(number),
        lease: LeaseId::from_bytes([by; 16]),
    };
    let mut gate = FenceGate::new();
    assert_eq!(
        text(&gate),
        r#"{"authority":null,"generation":0,"lease":null,"retired":[]}"#
    );
    assert_eq!(read::<FenceGate>(&text(&gate)), gate);
    assert_eq!(
        gate.enter(&token(1, lease_core::limits::GENERATION_MAX)),
        Ok(())
    );
    assert_eq!(
        text(&gate),
        r#"{"authority":"01010101-0101-0101-0101-010101010101","generation":9007199254740991,"lease":"01010101-0101-0101-0101-010101010101","retired":[]}"#
    );
    assert_eq!(read::<FenceGate>(&text(&gate)), gate);
    assert_eq!(gate.succeed(AuthorityId::from_bytes([2; 16])), Ok(()));
    assert_eq!(
        text(&gate),
        r#"{"authority":"02020202-0202-0202-0202-020202020202","generation":0,"lease":null,"retired":["01010101-0101-0101-0101-010101010101"]}"#
    );
    let mut again: FenceGate = read(&text(&gate));
    assert_eq!(again, gate);
    // Still nobody but the new authority gets in.
    assert!(again.enter(&token(1, 9)).is_err() && again.enter(&token(3, 9)).is_err());
    assert_eq!(again.enter(&token(2, 1)), Ok(()));
    again.revoke(&token(2, 5));
    assert_eq!(read::<FenceGate>(&text(&again)), again);
    let mut stored: Value = read(&text(&again));
    stored["open"] = json!(true);
    refuses::<FenceGate>(&stored, "unknown field");
}

#[test]
fn a_stored_lease_is_read_as_it_was_written() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    rig.begin("a", at, op(1), Provenance::Created).change();
    let ticket = [7; 16];
    rig.call("a", Action::Offer { at, ticket }).change();
    let lease = rig.registry.lease(&key("a")).unwrap();
    let stored = text(lease);
    assert_eq!(&read::<Lease<SessionHolder>>(&stored), lease);
    let mut clashing: Value = read(&stored);
    clashing["terms"]["term"] = json!("none");
    refuses::<Lease<SessionHolder>>(&clashing, "must be Ignore");
    let mut nobody: Value = read(&stored);
    nobody["holder"]["session"] = json!("");
    refuses::<Lease<SessionHolder>>(&nobody, "session is empty");
    // Without its expiry it would be another lease.
    for field in read::<Value>(&stored).as_object().unwrap().keys() {
        let mut half: Value = read(&stored);
        half.as_object_mut().unwrap().remove(field);
        refuses::<Lease<SessionHolder>>(&half, &format!("missing field `{field}`"));
    }
}

#[test]
fn a_listed_lease_tells_all_but_the_ticket() {
    let mut rig = Rig::sessions();
    let at = rig.granted("/app/view", &mcp()).at;
    let ticket = [7; 16];
    rig.call("/app/view", Action::Offer { at, ticket }).change();
    let stored: Value = read(&text(&rig.view("/app/view")));
    let fields: Vec<_> = stored
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        fields,
        [
            "acquired",
            "expired",
            "expires",
            "handovers",
            "holder",
            "in_flight",
            "resource",
            "tainted",
            "token",
            "touched"
        ]
    );
    assert_eq!(stored["resource"], "app/view");
    assert_eq!(
        stored["holder"],
        json!({"agent": "ag-1", "session": "s-100"})
    );
}

#[test]
fn a_name_or_key_that_is_not_sound_is_refused() {
    assert_eq!(text(&key("/a/b")), r#""a/b""#);
    assert_eq!(read::<ResourceKey>(r#""/a/b""#), key("a/b"));
    // An escape in the text, so that it cannot be borrowed.
    assert_eq!(read::<ResourceKey>(r#""\u0061/b""#), key("a/b"));
    refuses::<ResourceKey>(&json!("a\u{0}"), "control character at byte 1");
    refuses::<ResourceKey>(&json!(""), "resource key is empty");
    refuses::<ResourceKey>(&json!(7), "invalid type");
    assert_eq!(read::<SessionHolder>(&text(&mcp())), mcp());
    refuses::<SessionHolder>(&json!({"agent": "a", "session": ""}), "session is empty");
    refuses::<SessionHolder>(
        &json!({"agent": "a", "session": "s", "x": 1}),
        "unknown field",
    );
    refuses::<SessionHolder>(&json!({"agent": "a"}), "missing field");
    for number in ["0", "9007199254740992", "-1", "\"1\"", "1.0"] {
        assert!(
            serde_json::from_str::<Generation>(number).is_err(),
            "{number}"
        );
    }
    for again in [Again::Touch, Again::Renew] {
        assert_eq!(read::<Again>(&text(&again)), again);
    }
    let proofs = Proofs {
        disconnect: true,
        process: Some(ProcessProof::default()),
        session: false,
    };
    assert_eq!(read::<Proofs>(&text(&proofs)), proofs);
}

#[test]
fn what_was_wrong_is_said_legibly_and_in_bounds() {
    fn said<T: serde::de::DeserializeOwned + core::fmt::Debug>(
        mut whole: Value,
        name: &str,
    ) -> String {
        whole[name] = json!(1);
        serde_json::from_value::<T>(whole).unwrap_err().to_string()
    }
    let holder = || serde_json::to_value(mcp()).unwrap();
    let gate = || serde_json::to_value(FenceGate::new()).unwrap();
    let policy = || serde_json::to_value(LeasePolicy::process_bound()).unwrap();
    let long = "x".repeat(100_000);
    for name in ["\u{1b}[2Jgone", "two\nlines", "\u{9b}1m", &long] {
        let told = [
            said::<SessionHolder>(holder(), name),
            said::<FenceGate>(gate(), name),
            said::<LeasePolicy>(policy(), name),
        ];
        for told in told {
            assert!(told.starts_with("unknown field"), "{told}");
            assert!(!told.contains(char::is_control), "{told:?}");
            assert!(told.len() <= 256, "{}", told.len());
        }
    }
    let mut receipt: Value = read(&text(&sessions(T0).receipts[0]));
    receipt["detail"] = json!({"\u{1b}[2Jgone": long});
    let told = serde_json::from_value::<Receipt<SessionHolder>>(receipt)
        .unwrap_err()
        .to_string();
    assert!(told.contains("unknown variant"), "{told}");
    assert!(
        !told.contains(char::is_control) && told.len() <= 256,
        "{told:?}"
    );
    // A word that is none of a policy's own.
    let mut odd = policy();
    odd["again"] = json!("\u{7}");
    let told = serde_json::from_value::<LeasePolicy>(odd)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("\\u{7}") && !told.contains(char::is_control),
        "{told:?}"
    );
}

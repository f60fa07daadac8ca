//! Which parts make a policy, and which policy an authority can keep.

use core::time::Duration;

use lease_core::{
    Action, Again, Capabilities, Cell, Code, Decision, LeasePolicy, Locality, Moment, OnExpiry,
    Order, PolicyBuilder, PolicyError, ProcessProof, Proofs, Scene, Seen, Term, decide, limits,
};

use crate::rig::{Rig, T0, inp, key, mcp, ms};

const TTL: Duration = Duration::from_secs(30);

const DISCONNECT: Proofs = Proofs {
    disconnect: true,
    process: None,
    session: false,
};

const NOTHING: Proofs = Proofs {
    disconnect: false,
    process: None,
    session: false,
};

fn parts(term: Term, on_expiry: OnExpiry, ends_on: Proofs) -> PolicyBuilder {
    PolicyBuilder::new()
        .term(term)
        .on_expiry(on_expiry)
        .ends_on(ends_on)
}

/// Builds nothing, for this reason, in words that name these fields.
#[track_caller]
fn refused(builder: PolicyBuilder, error: PolicyError, fields: &[&str]) {
    assert_eq!(builder.build(), Err(error));
    let text = error.to_string();
    for field in fields {
        assert!(text.contains(field), "`{text}` does not name {field}");
    }
    assert_eq!(error.code(), Code::PolicyRefused);
}

// S55
#[test]
fn clashing_parts_are_refused_by_name_and_the_presets_build() {
    use OnExpiry::{EndIfIdle, Ignore, SuspendHolder};
    use Term::{Fixed, PerGrant};

    let per_grant = PerGrant { max: None };
    let absurd = limits::TERM_MAX + Duration::from_nanos(1);
    let bound = |max| PerGrant { max: Some(max) };
    refused(
        parts(Fixed(Duration::ZERO), EndIfIdle, DISCONNECT),
        PolicyError::ZeroTerm,
        &["term"],
    );
    refused(
        parts(bound(Duration::ZERO), Ignore, DISCONNECT),
        PolicyError::ZeroTerm,
        &["term"],
    );
    refused(
        parts(Fixed(absurd), EndIfIdle, DISCONNECT),
        PolicyError::AbsurdTerm,
        &["term"],
    );
    refused(
        parts(bound(Duration::MAX), Ignore, DISCONNECT),
        PolicyError::AbsurdTerm,
        &["term"],
    );
    refused(
        parts(per_grant, EndIfIdle, DISCONNECT),
        PolicyError::EndIfIdleNeedsFixedTerm,
        &["on_expiry", "term"],
    );
    refused(
        parts(per_grant, SuspendHolder, DISCONNECT),
        PolicyError::SuspendNeedsProcess,
        &["on_expiry", "ends_on.process"],
    );
    for on_expiry in [EndIfIdle, SuspendHolder] {
        refused(
            parts(Term::None, on_expiry, DISCONNECT),
            PolicyError::NoTermNeedsIgnore,
            &["term", "on_expiry"],
        );
    }
    for term in [Term::None, per_grant, Fixed(TTL)] {
        refused(
            parts(term, Ignore, NOTHING),
            PolicyError::NeverEnds,
            &["ends_on", "on_expiry"],
        );
    }
    for term in [Term::None, per_grant, Fixed(TTL)] {
        refused(
            parts(term, Ignore, DISCONNECT).self_stop_margin(TTL),
            PolicyError::MarginTooLong,
            &["self_stop_margin", "term"],
        );
    }

    assert_eq!(
        LeasePolicy::session_ttl(Duration::ZERO),
        Err(PolicyError::ZeroTerm)
    );
    assert_eq!(
        LeasePolicy::hosted_session(Duration::ZERO),
        Err(PolicyError::ZeroTerm)
    );
    assert!(LeasePolicy::session_ttl(TTL).is_ok());
    assert!(LeasePolicy::hosted_session(TTL).is_ok());
    for preset in [LeasePolicy::process_bound(), LeasePolicy::server_session()] {
        assert_eq!(rebuilt(&preset), Ok(preset));
    }
}

/// The same parts once more through the builder.
fn rebuilt(policy: &LeasePolicy) -> Result<LeasePolicy, PolicyError> {
    parts(policy.term(), policy.on_expiry(), policy.ends_on())
        .again(policy.again())
        .build()
}

#[test]
fn presets_are_the_parts_they_promise() {
    let sessions = LeasePolicy::session_ttl(TTL).unwrap();
    assert_eq!(sessions.term(), Term::Fixed(TTL));
    assert_eq!(sessions.on_expiry(), OnExpiry::EndIfIdle);
    assert_eq!(sessions.ends_on(), DISCONNECT);
    assert_eq!(sessions.again(), Again::Touch);

    let hosted = LeasePolicy::hosted_session(TTL).unwrap();
    let nothing_besides = Some(ProcessProof {
        group: false,
        paths: false,
    });
    assert_eq!(hosted.term(), Term::Fixed(TTL));
    assert_eq!(hosted.on_expiry(), OnExpiry::EndIfIdle);
    assert!(hosted.ends_on().disconnect && !hosted.ends_on().session);
    assert_eq!(hosted.ends_on().process, nothing_besides);
    assert_eq!(hosted.again(), Again::Touch);

    let process = LeasePolicy::process_bound();
    let group_and_paths = Some(ProcessProof {
        group: true,
        paths: true,
    });
    assert_eq!(process.term(), Term::PerGrant { max: None });
    assert_eq!(process.on_expiry(), OnExpiry::SuspendHolder);
    assert!(!process.ends_on().disconnect && !process.ends_on().session);
    assert_eq!(process.ends_on().process, group_and_paths);
    assert_eq!(process.again(), Again::Renew);

    let server = LeasePolicy::server_session();
    assert_eq!(server.term(), Term::None);
    assert_eq!(server.on_expiry(), OnExpiry::Ignore);
    assert!(server.ends_on().disconnect && server.ends_on().session);
    assert_eq!(server.ends_on().process, None);
    assert_eq!(server.again(), Again::Touch);
    for preset in [sessions, hosted, process, server] {
        assert_eq!(preset.self_stop_margin(), None);
    }
}

// A28
#[test]
fn there_is_no_default_term_and_without_one_nothing_expires() {
    // What a builder starts with is no policy.
    assert_eq!(PolicyBuilder::new().build(), Err(PolicyError::NeverEnds));
    assert_eq!(
        PolicyBuilder::default().build(),
        Err(PolicyError::NeverEnds)
    );
    assert_eq!(
        LeasePolicy::session_ttl(Duration::ZERO),
        Err(PolicyError::ZeroTerm)
    );
    let without = parts(Term::None, OnExpiry::Ignore, DISCONNECT)
        .build()
        .unwrap();
    for policy in [
        without,
        LeasePolicy::server_session(),
        LeasePolicy::process_bound(),
    ] {
        let mut rig = Rig::new(policy);
        let _held = rig.granted("a", &mcp());
        rig.now = Moment::MAX;
        assert_eq!(rig.advance(), []);
        let views = rig.list();
        assert_eq!((views.len(), views[0].expires), (1, None));
        assert!(!views[0].expired);
        assert_eq!(rig.registry.next_deadline(), None);
    }
}

/// Whether the parts make sense, told in the words of the plan.
fn makes_sense(policy: (Term, OnExpiry, Proofs, Option<Duration>)) -> bool {
    let (term, on_expiry, ends_on, margin) = policy;
    let sound = |term: Duration| !term.is_zero() && term <= limits::TERM_MAX;
    let term_is_sound = match term {
        Term::None | Term::PerGrant { max: None } => true,
        Term::PerGrant { max: Some(term) } | Term::Fixed(term) => sound(term),
    };
    let is_fixed = matches!(term, Term::Fixed(_));
    let ends_if_idle = on_expiry == OnExpiry::EndIfIdle;
    let proof = ends_on.disconnect || ends_on.process.is_some() || ends_on.session;
    term_is_sound
        && (!ends_if_idle || is_fixed)
        && (on_expiry != OnExpiry::SuspendHolder || ends_on.process.is_some())
        && (term != Term::None || on_expiry == OnExpiry::Ignore)
        && (proof || ends_if_idle)
        && margin.is_none_or(|margin| matches!(term, Term::Fixed(term) if margin < term))
}

#[test]
fn exactly_the_combinations_that_make_sense_build() {
    let tick = Duration::from_nanos(1);
    let spans = [
        Duration::ZERO,
        tick,
        TTL,
        limits::TERM_MAX,
        limits::TERM_MAX + tick,
    ];
    let mut terms = vec![Term::None, Term::PerGrant { max: None }];
    terms.extend(spans.map(Term::Fixed));
    terms.extend(spans.map(|max| Term::PerGrant { max: Some(max) }));
    let proofs = [false, true].into_iter().flat_map(|disconnect| {
        [None, Some(ProcessProof::default())]
            .into_iter()
            .flat_map(move |process| {
                [false, true].map(|session| Proofs {
                    disconnect,
                    process,
                    session,
                })
            })
    });
    let proofs: Vec<_> = proofs.collect();
    let margins = [
        None,
        Some(Duration::ZERO),
        Some(TTL - tick),
        Some(TTL),
        Some(Duration::MAX),
    ];
    let (mut built, mut refused) = (0, 0);
    for &term in &terms {
        for on_expiry in [
            OnExpiry::Ignore,
            OnExpiry::SuspendHolder,
            OnExpiry::EndIfIdle,
        ] {
            for &ends_on in &proofs {
                for margin in margins {
                    let mut builder = parts(term, on_expiry, ends_on);
                    if let Some(margin) = margin {
                        builder = builder.self_stop_margin(margin);
                    }
                    let expected = makes_sense((term, on_expiry, ends_on, margin));
                    let policy = builder.clone().build();
                    assert_eq!(policy.is_ok(), expected, "{builder:?}: {policy:?}");
                    match policy {
                        Ok(policy) => {
                            built += 1;
                            let kept = (policy.term(), policy.on_expiry(), policy.ends_on());
                            assert_eq!(kept, (term, on_expiry, ends_on));
                            assert_eq!(policy.self_stop_margin(), margin);
                        }
                        Err(_) => refused += 1,
                    }
                }
            }
        }
    }
    assert!(built > 100 && refused > 100, "{built} and {refused}");
}

/// What an authority like the one in a database can do.
fn durable(shields: bool) -> Capabilities {
    Capabilities {
        durable: true,
        shields,
        sweeps_all: true,
        order: Order::Share,
        locality: Locality::ThisMachine,
        self_stop_margin: |term| term / 10,
    }
}

fn with_margin(margin: Duration) -> LeasePolicy {
    parts(Term::Fixed(TTL), OnExpiry::EndIfIdle, DISCONNECT)
        .self_stop_margin(margin)
        .build()
        .unwrap()
}

#[test]
fn a_policy_fits_an_authority_that_can_keep_it() {
    let presets = [
        LeasePolicy::session_ttl(TTL).unwrap(),
        LeasePolicy::hosted_session(TTL).unwrap(),
        LeasePolicy::process_bound(),
        LeasePolicy::server_session(),
    ];
    for preset in &presets {
        assert_eq!(preset.fits(&durable(true)), Ok(()));
        // Only an end by the term needs to know what is in flight.
        let expected = match preset.on_expiry() {
            OnExpiry::EndIfIdle => Err(PolicyError::NeedsShields),
            OnExpiry::Ignore | OnExpiry::SuspendHolder => Ok(()),
        };
        assert_eq!(preset.fits(&durable(false)), expected);
    }
}

#[test]
fn a_margin_below_what_the_authority_needs_does_not_fit() {
    let least = TTL / 10;
    let tick = Duration::from_nanos(1);
    for (margin, expected) in [
        (least, Ok(())),
        (least + tick, Ok(())),
        (
            least - tick,
            Err(PolicyError::MarginTooShort {
                asked: least - tick,
                least,
            }),
        ),
        (
            Duration::ZERO,
            Err(PolicyError::MarginTooShort {
                asked: Duration::ZERO,
                least,
            }),
        ),
    ] {
        assert_eq!(with_margin(margin).fits(&durable(true)), expected);
    }
    // Without shields that is said first.
    assert_eq!(
        with_margin(Duration::ZERO).fits(&durable(false)),
        Err(PolicyError::NeedsShields)
    );
}

#[test]
fn a_present_lease_is_judged_by_the_terms_it_was_granted_under() {
    let sessions = LeasePolicy::session_ttl(TTL).unwrap();
    let process = LeasePolicy::process_bound();
    // A store whose policy was changed meanwhile: (the lease's terms, the authority's, the answer).
    for (terms, policy, expected) in [
        (&sessions, &process, "granted"),
        (&process, &sessions, "asked"),
    ] {
        let mut rig = Rig::new(terms.clone());
        let _held = rig.granted("a", &mcp());
        let key = key("a");
        let lease = rig.registry.lease(&key).unwrap().clone();
        assert_eq!(&lease.terms, terms);
        let now = ms(T0).after(TTL + Duration::from_nanos(1));
        let cell = Cell::load(lease, now, TTL).unwrap();
        let scene = Scene {
            own: Some((&key, &cell)),
            near: &[],
            queued: &[],
            due: &[],
        };
        let action = Action::Acquire {
            holder: inp(),
            ttl: None,
        };
        let answer = match decide(policy, &scene, &action, &Seen::at(now)) {
            Decision::Change(plan) if plan.created() => "granted",
            Decision::Ask(_) => "asked",
            Decision::Change(_) | Decision::Refuse(_) => "neither",
        };
        assert_eq!(answer, expected);
    }
}

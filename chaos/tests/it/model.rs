//! Exploring the shipped core to a small depth, and finding faults that are planted in it.
//!
//! The full depths and every fault are run by `cargo xtask chaos --model` and `--falsify`.

use std::process::{Command, Output};

fn chaos(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[cfg(feature = "model")]
mod exploring {
    use std::time::Duration;

    use chaos::model::{Explored, Limits, World, worlds};

    use super::{chaos, text};

    fn explore(world: &World, depth: u32) -> Explored {
        let limits = Limits::new(Some(depth), 1_000_000, Duration::from_secs(300));
        world.explore(limits)
    }

    // X1, X2, X3, X4
    #[test]
    fn every_short_history_keeps_every_law() {
        for world in worlds() {
            let explored = explore(&world, 3);
            assert_eq!(explored.broken, None, "{explored}");
            assert!(explored.complete, "{explored}");
            assert!(explored.states > 100, "{explored}");
        }
    }

    /// The same figures with the feature that can plant faults and without it.
    #[test]
    fn faults_that_can_be_planted_and_are_not_change_nothing() {
        let counts: Vec<_> = worlds()
            .iter()
            .map(|world| explore(world, 2))
            .map(|explored| (explored.world, explored.states))
            .collect();
        assert_eq!(
            counts,
            [
                ("sessions", 104),
                ("queue", 101),
                ("closure", 46),
                ("hosted-sessions", 80),
                ("processes", 85),
                ("server-sessions", 85),
                ("two-steps", 156),
                ("gate", 91),
            ]
        );
    }

    #[test]
    fn a_store_that_compares_too_little_makes_two_holders() {
        let world = worlds()
            .into_iter()
            .find(|world| world.name() == "two-steps")
            .unwrap();
        let broken = explore(&world.with_narrow_compare(), 4).broken.unwrap();
        assert_eq!(broken.law, "one-holder");
        assert_eq!(broken.history.len(), 4, "{:#?}", broken.history);
    }

    #[test]
    fn an_exploration_says_where_it_stopped() {
        let output = chaos(&["--model", "--scenario", "gate"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let told = text(&output.stdout);
        assert!(told.contains("gate: 421 states"), "{told}");
        let last = told.lines().last();
        assert_eq!(
            last,
            Some("model: 1 of 1 worlds explored completely, 0 with a broken law")
        );
    }

    #[test]
    fn an_exploration_without_time_does_not_say_that_it_is_complete() {
        let output = chaos(&["--model", "--scenario", "closure", "--time", "1ms"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(text(&output.stdout).contains("stopped at its limit"));
    }
}

#[cfg(all(feature = "model", feature = "falsify"))]
mod falsifying {
    use super::{chaos, text};

    /// The fault of this name is found by this law, in a history of so many steps.
    ///
    /// In a process of its own, because a planted fault is there for the whole process.
    #[track_caller]
    fn check(variant: &str, law: &str, steps: usize) {
        let output = chaos(&["--falsify", "--scenario", variant]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let told = text(&output.stdout);
        let expected = format!("found    {variant} by {law} in {steps} step");
        assert!(told.starts_with(&expected), "{told}");
    }

    #[test]
    fn a_release_without_a_fence_is_found() {
        check("no-fence-on-release", "the-past-cannot-act", 1);
    }

    #[test]
    fn a_term_that_ends_a_tick_early_is_found() {
        check("expires-at-its-moment", "no-early-expiry", 2);
    }

    #[test]
    fn a_waiter_behind_its_own_writers_lease_is_found() {
        check("waits-behind-itself", "no-lost-hand-over", 3);
    }

    #[test]
    fn an_unknown_fault_is_wrong_usage() {
        let output = chaos(&["--falsify", "--scenario", "nothing"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("no fault `nothing`"));
    }
}

#[cfg(not(feature = "model"))]
#[test]
fn a_build_without_the_model_checker_says_how_to_run_it() {
    for flag in ["--model", "--falsify"] {
        let output = chaos(&[flag]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = text(&output.stderr);
        assert!(
            told.contains(&format!("cargo xtask chaos {flag}")),
            "{told}"
        );
    }
}

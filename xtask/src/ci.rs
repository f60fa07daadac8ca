//! `cargo xtask ci`: the quick checks, in order, all of them whatever failed before.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::child::is_called_off;
use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Metadata, Workspace, succeeds};
use crate::{bench, chaos, elsewhere, exit, proof, test, tidy};

/// A short run with fixed seeds: enough to see that nothing is broken for everybody.
const CHAOS: [&str; 8] = [
    "--suite", "all", "--seed", "1", "--seeds", "200", "--time", "20s",
];

/// One check with its name.
type Check<'a> = (String, Box<dyn Fn() -> Result<End, Problem> + 'a>);

/// What came of one check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Good,
    Bad,
    /// The machine does not allow it. The check itself said what is missing.
    NotRun,
}

impl From<bool> for End {
    fn from(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// How one check ended.
#[derive(Debug)]
struct Ended {
    name: String,
    end: End,
    took: Duration,
}

/// Runs the checks and ends with a summary.
pub(crate) fn run(workspace: &Workspace, no_tests: bool) -> Result<ExitCode, Problem> {
    let metadata = workspace.metadata()?;
    let mut ended: Vec<Ended> = Vec::new();
    for check in checks(workspace, &metadata, no_tests) {
        ended.push(carry_out(check)?);
        if is_called_off() {
            return Err(Problem::new(
                "called off, and the other checks were not run",
            ));
        }
    }
    say(summary(&ended).trim_end())?;
    Ok(exit(ended.iter().all(|check| check.end != End::Bad)))
}

/// Every check, the quick ones first.
fn checks<'a>(workspace: &'a Workspace, metadata: &Metadata, no_tests: bool) -> Vec<Check<'a>> {
    let mut checks = vec![lock_files(workspace)];
    checks.extend(lints(workspace, metadata));
    for target in elsewhere::TARGETS {
        checks.push((
            format!("lint for {target}"),
            Box::new(move || elsewhere::is_clean(workspace, target)),
        ));
    }
    checks.push(docs(workspace));
    if !no_tests {
        checks.push(tests(workspace));
    }
    checks.push(orders(workspace));
    checks.push((
        "tidy".to_owned(),
        Box::new(|| tidy::is_clean(workspace).map(End::from)),
    ));
    checks.push((
        "core without std".to_owned(),
        Box::new(|| proof::holds(workspace).map(End::from)),
    ));
    let oldest = metadata
        .packages
        .iter()
        .find_map(|package| package.rust_version.clone());
    let oldest = oldest.unwrap_or_default();
    checks.push((
        "core on bare metal".to_owned(),
        Box::new(move || proof::on_bare_metal(workspace, &oldest)),
    ));
    checks.push(short_chaos(workspace));
    checks
}

#[expect(
    clippy::disallowed_methods,
    reason = "says how long a check took, decides nothing"
)]
fn carry_out((name, check): Check<'_>) -> Result<Ended, Problem> {
    say(format_args!("==> {name}"))?;
    let start = Instant::now();
    let end = check().unwrap_or_else(|problem| {
        problem.tell();
        End::Bad
    });
    let took = start.elapsed();
    say(format_args!(
        "    {} in {:.1} s",
        word(end),
        took.as_secs_f64()
    ))?;
    Ok(Ended { name, end, took })
}

/// The hand-over under loom, a workspace of its own.
const ORDERS: &str = "orders/Cargo.toml";

/// The committed lock files go with the manifests: cargo has nothing to add.
fn lock_files(workspace: &Workspace) -> Check<'_> {
    let check = || {
        let mut good = true;
        for manifest in ["Cargo.toml", bench::MANIFEST, ORDERS, proof::MANIFEST] {
            good &= is_locked(workspace, manifest)?;
        }
        Ok(good.into())
    };
    ("lock file".to_owned(), Box::new(check))
}

fn is_locked(workspace: &Workspace, manifest: &str) -> Result<bool, Problem> {
    let arguments = ["metadata", "--locked", "--format-version", "1"];
    let mut command = workspace.cargo(arguments);
    // What it prints is long and for programs.
    succeeds(
        command
            .args(["--manifest-path", manifest])
            .stdout(Stdio::null()),
    )
}

fn lints<'a>(workspace: &'a Workspace, metadata: &Metadata) -> Vec<Check<'a>> {
    let clippy = |name: &str, arguments: &[&str]| -> Check<'a> {
        let mut all = vec!["clippy"];
        all.extend(arguments);
        all.extend(["--all-targets", "--", "-D", "warnings"]);
        cargo(workspace, name, &all)
    };
    let mut checks = vec![
        cargo(workspace, "fmt", &["fmt", "--all", "--", "--check"]),
        clippy("clippy", &["--workspace", "--all-features"]),
    ];
    // Each is a workspace of its own, which `--all` and `--workspace` leave out.
    let apart = [
        ("bench", bench::MANIFEST),
        ("orders", ORDERS),
        ("proof", proof::MANIFEST),
    ];
    for (name, manifest) in apart {
        let arguments = ["fmt", "--manifest-path", manifest, "--check"];
        checks.push(cargo(workspace, &format!("fmt, {name}"), &arguments));
    }
    // Not the proof: a freestanding program has no targets for tests.
    for (name, manifest) in [("bench", bench::MANIFEST), ("orders", ORDERS)] {
        let arguments = ["--manifest-path", manifest];
        checks.push(clippy(&format!("clippy, {name}"), &arguments));
    }
    // Alone and bare, because the features of a neighbour can hide an error.
    for package in metadata
        .packages
        .iter()
        .map(|package| package.name.as_str())
    {
        if package.starts_with("lease-") {
            let arguments = ["--package", package, "--no-default-features"];
            checks.push(clippy(&format!("clippy, {package} alone"), &arguments));
        }
    }
    checks
}

fn docs(workspace: &Workspace) -> Check<'_> {
    let check = || {
        let arguments = ["doc", "--workspace", "--no-deps", "--all-features"];
        let mut command = workspace.cargo(arguments);
        command
            .arg("--document-private-items")
            .env("RUSTDOCFLAGS", "-D warnings");
        succeeds(&mut command).map(End::from)
    };
    ("docs".to_owned(), Box::new(check))
}

fn tests(workspace: &Workspace) -> Check<'_> {
    let check = || {
        let counts = test::run_all(workspace, false)?;
        say(counts)?;
        Ok((counts.failed == 0).into())
    };
    ("tests".to_owned(), Box::new(check))
}

/// A hand-over in every order of threads.
fn orders(workspace: &Workspace) -> Check<'_> {
    let arguments = ["test", "--manifest-path", ORDERS];
    cargo(workspace, "every order of threads", &arguments)
}

fn short_chaos(workspace: &Workspace) -> Check<'_> {
    let check = || succeeds(chaos::command(workspace).args(CHAOS)).map(End::from);
    (format!("chaos {}", CHAOS.join(" ")), Box::new(check))
}

fn cargo<'a>(workspace: &'a Workspace, name: &str, arguments: &[&str]) -> Check<'a> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let check = move || succeeds(&mut workspace.cargo(&arguments)).map(End::from);
    (name.to_owned(), Box::new(check))
}

fn summary(ended: &[Ended]) -> String {
    let line = |check: &Ended| {
        let seconds = check.took.as_secs_f64();
        format!("{:>8} {seconds:>7.1} s  {}\n", word(check.end), check.name)
    };
    let lines: String = ended.iter().map(line).collect();
    let count = |end| ended.iter().filter(|check| check.end == end).count();
    format!(
        "==> summary\n{lines}{} checks: {} ok, {} failed, {} not run\n",
        ended.len(),
        count(End::Good),
        count(End::Bad),
        count(End::NotRun)
    )
}

const fn word(end: End) -> &'static str {
    match end {
        End::Good => "ok",
        End::Bad => "FAILED",
        End::NotRun => "not run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::output;

    #[test]
    fn the_summary_names_every_check_and_counts_what_came_of_them() {
        let ended = |name: &str, end| Ended {
            name: name.to_owned(),
            end,
            took: Duration::from_millis(1_500),
        };
        let ended = [
            ended("fmt", End::Good),
            ended("docs", End::Bad),
            ended("metal", End::NotRun),
        ];
        assert_eq!(
            summary(&ended),
            "==> summary\n      ok     1.5 s  fmt\n  FAILED     1.5 s  docs\n not run     1.5 s  metal\n\
             3 checks: 1 ok, 1 failed, 1 not run\n"
        );
    }

    #[test]
    fn a_check_that_cannot_be_done_has_failed() {
        let check: Check<'_> = ("x".to_owned(), Box::new(|| Err(Problem::new("gone"))));
        assert_eq!(carry_out(check).unwrap().end, End::Bad);
    }

    #[test]
    fn the_lock_file_is_looked_at_first() {
        let workspace = Workspace::find().unwrap();
        let metadata = workspace.metadata().unwrap();
        let checks = checks(&workspace, &metadata, true);
        assert_eq!(checks.first().unwrap().0, "lock file");
    }

    #[test]
    fn a_lock_file_that_cargo_would_change_is_refused() {
        let workspace = Workspace::empty("lock");
        let write = |path: &str, text: &str| {
            std::fs::write(workspace.root().join(path), text).unwrap();
        };
        write("lib.rs", "");
        let package = |version: &str| {
            let lib = "edition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n";
            let text = format!("[package]\nname = \"a\"\nversion = \"{version}\"\n{lib}");
            write("Cargo.toml", &text);
        };
        package("1.0.0");
        let made = output(&mut workspace.cargo(["generate-lockfile", "--offline"]));
        let fresh = is_locked(&workspace, "Cargo.toml");
        package("2.0.0");
        let stale = is_locked(&workspace, "Cargo.toml");
        std::fs::remove_dir_all(workspace.root()).unwrap();
        assert!(made.is_ok(), "{made:?}");
        assert_eq!((fresh.unwrap(), stale.unwrap()), (true, false));
    }

    #[test]
    fn every_library_is_linted_alone_and_the_programs_apart_are_linted_too() {
        let workspace = Workspace::find().unwrap();
        let metadata = workspace.metadata().unwrap();
        let checks = lints(&workspace, &metadata);
        let names: Vec<&str> = checks.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "fmt",
            "clippy",
            "fmt, bench",
            "fmt, orders",
            "fmt, proof",
            "clippy, bench",
            "clippy, orders",
            "clippy, lease-core alone",
            "clippy, lease-procfs alone",
        ] {
            assert!(names.contains(&name), "{name} is missing in {names:?}");
        }
    }
}

//! The proof that the core needs no std: a freestanding program that links it, one that must not, and a
//! build for a machine that has none.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ci::End;
use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Workspace, output, spoken, succeeds};

/// The freestanding program, a workspace of its own.
pub(crate) const MANIFEST: &str = "proof/Cargo.toml";

/// What the compiler says when std is in the graph of a program with a panic handler of its own.
const DUPLICATE: &str = "E0152";

/// Builds and runs the program, and sees the same program fail to build once a dependency brings std.
pub(crate) fn holds(workspace: &Workspace) -> Result<bool, Problem> {
    let printed = output(&mut workspace.cargo(["run", "--quiet", "--manifest-path", MANIFEST]))?;
    say(printed.trim_end())?;
    let proven = printed.contains("without std: ");
    if !proven {
        say("the freestanding program did not come to its end")?;
    }
    let leaking = ["build", "--manifest-path", MANIFEST, "--features", "leak"];
    let mut command = workspace.cargo(leaking);
    let leak = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(Problem::caused(spoken(&command)))?;
    let seen = !leak.status.success() && String::from_utf8_lossy(&leak.stderr).contains(DUPLICATE);
    if !seen {
        say(format_args!(
            "std was let in on purpose, and the build did not fail with {DUPLICATE}"
        ))?;
    }
    Ok(proven && seen)
}

/// A target for which no std exists.
const BARE: &str = "x86_64-unknown-none";

/// What builds the core for it.
const BUILD: [&str; 8] = [
    "build",
    "--quiet",
    "--package",
    "lease-core",
    "--features",
    "serde",
    "--target",
    BARE,
];

/// Debian's own compiler, and where its package `rust-web-src` puts the sources of the library.
const DEBIAN: (&str, &str, &str) = ("/usr/bin/cargo", "/usr/bin/rustc", "/usr/src");

/// Builds the core for a target without std, where the machine has what that takes: the target itself, or
/// a compiler with the sources of its library.
pub(crate) fn on_bare_metal(workspace: &Workspace, oldest: &str) -> Result<End, Problem> {
    if has_target(BARE) {
        return succeeds(&mut workspace.cargo(BUILD)).map(End::from);
    }
    let (cargo, rustc, sources) = DEBIAN;
    let present = if has_sources(Path::new(sources)) {
        output(Command::new(rustc).arg("--version")).ok()
    } else {
        None
    };
    let Some(present) = present.filter(|_| Path::new(cargo).exists()) else {
        return not_run(format_args!(
            "neither the target {BARE} nor Debian's cargo-web and rust-web-src are installed"
        ));
    };
    if minor(&present) < minor(oldest) {
        return not_run(format_args!("{} is older than {oldest}", present.trim()));
    }
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace.root())
        .arg("-Zbuild-std=core,alloc")
        .args(BUILD)
        // Its compiler, not that of the environment; and the library is built as on nightly only.
        .env("PATH", "/usr/bin:/bin")
        .env("RUSTC", rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTUP_TOOLCHAIN");
    succeeds(&mut command).map(End::from)
}

fn not_run(reason: impl Display) -> Result<End, Problem> {
    say(format_args!(
        "NOT RUN: core on bare metal: bare-metal: {reason}"
    ))?;
    Ok(End::NotRun)
}

/// Whether the toolchain has the libraries of a target.
pub(crate) fn has_target(target: &str) -> bool {
    let mut command = Command::new("rustc");
    let printed = output(command.args(["--print", "target-libdir", "--target", target]));
    printed.is_ok_and(|folder| Path::new(folder.trim()).exists())
}

/// Whether the sources of a library lie below `folder`.
fn has_sources(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.path().join("library/core/src/lib.rs").exists())
}

/// The second number of a version, in whatever words.
fn minor(version: &str) -> Option<u32> {
    let (_, rest) = version.split_once("1.")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_older_by_its_second_number() {
        assert_eq!(minor("rustc 1.96.0 (30a34c682 2026-05-25)"), Some(96));
        assert_eq!(minor("1.89"), Some(89));
        assert!(minor("rustc 1.85.0") < minor("1.89"));
        assert_eq!(minor("nonsense"), None);
    }

    #[test]
    fn a_folder_without_a_library_has_no_sources() {
        assert!(!has_sources(Path::new("/nowhere/at/all")));
        assert!(!has_sources(Path::new(env!("CARGO_MANIFEST_DIR"))));
    }
}

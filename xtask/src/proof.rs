//! The proof that the core needs no std: a freestanding program that links it, and one that must not.

use std::process::Stdio;

use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Workspace, output, spoken};

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

//! Systems other than Linux: the process evidence builds there without a warning, though it knows nothing.

use crate::ci::End;
use crate::problem::Problem;
use crate::proof::has_target;
use crate::say::say;
use crate::workspace::{Workspace, succeeds};

/// One target of each family that is neither Linux nor like another here.
pub(crate) const TARGETS: [&str; 3] = [
    "x86_64-apple-darwin",
    "x86_64-pc-windows-gnu",
    "x86_64-unknown-freebsd",
];

/// Lints the library for a target, where its std is installed. Nothing is linked.
pub(crate) fn is_clean(workspace: &Workspace, target: &str) -> Result<End, Problem> {
    if !has_target(target) {
        say(format_args!(
            "NOT RUN: lease-procfs on {target}: target: its std is not installed"
        ))?;
        return Ok(End::NotRun);
    }
    let mut good = true;
    // What is used by one feature alone is dead without it.
    for features in ["--no-default-features", "--all-features"] {
        let arguments = ["clippy", "--quiet", "--package", "lease-procfs", "--lib"];
        let mut command = workspace.cargo(arguments);
        command.args([features, "--target", target, "--", "-D", "warnings"]);
        good &= succeeds(&mut command)?;
    }
    Ok(good.into())
}

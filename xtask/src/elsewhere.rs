//! Systems other than Linux: what needs no compiler for C builds there without a warning, though the process
//! evidence knows nothing.

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

/// What is linted as it is built by default. SQLite needs a compiler of each system.
const PACKAGES: [&str; 4] = ["chaos", "lease-async", "lease-core", "xtask"];

/// Lints for a target, where its std is installed. Nothing is linked.
pub(crate) fn is_clean(workspace: &Workspace, target: &str) -> Result<End, Problem> {
    if !has_target(target) {
        say(format_args!(
            "NOT RUN: lint for {target}: target: its std is not installed"
        ))?;
        return Ok(End::NotRun);
    }
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let mut good = lints(workspace, target, packages)?;
    // What is used by one feature alone is dead without it.
    for features in ["--no-default-features", "--all-features"] {
        let library = ["--package", "lease-procfs", "--lib", features];
        good &= lints(workspace, target, library)?;
    }
    Ok(good.into())
}

fn lints<'a>(
    workspace: &Workspace,
    target: &str,
    what: impl IntoIterator<Item = &'a str>,
) -> Result<bool, Problem> {
    let mut command = workspace.cargo(["clippy", "--quiet", "--target", target]);
    command.args(what).args(["--", "-D", "warnings"]);
    succeeds(&mut command)
}

//! `cargo xtask bench`: the benchmarks, in a program of their own.

use std::ffi::OsString;
use std::path::{Path, absolute};
use std::process::{ExitCode, Stdio};

use crate::exit;
use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Workspace, succeeds};

/// The benchmark program. It is a workspace of its own: its peers are no dependency of ours.
pub(crate) const MANIFEST: &str = "bench/Cargo.toml";

/// Runs the benchmarks, or says that there are none.
pub(crate) fn run(
    workspace: &Workspace,
    check: bool,
    json: Option<&Path>,
    only: Option<&str>,
) -> Result<ExitCode, Problem> {
    if !workspace.root().join(MANIFEST).exists() {
        say(format_args!("no benchmarks yet: there is no {MANIFEST}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = workspace.cargo(["run", "--release", "--manifest-path", MANIFEST, "--"]);
    command
        .args(arguments(check, json, only)?)
        .stdin(Stdio::inherit());
    succeeds(&mut command).map(exit)
}

/// What the benchmark program gets. It starts in another folder, so the file is named in full.
fn arguments(
    check: bool,
    json: Option<&Path>,
    only: Option<&str>,
) -> Result<Vec<OsString>, Problem> {
    let mut arguments = Vec::new();
    if check {
        arguments.push("--check".into());
    }
    if let Some(file) = json {
        let file = absolute(file).map_err(Problem::caused(file.display()))?;
        arguments.extend(["--json".into(), file.into_os_string()]);
    }
    if let Some(group) = only {
        arguments.extend(["--only".into(), group.into()]);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_in_full() {
        let arguments = arguments(true, Some(Path::new("speed.json")), None).unwrap();
        let [check, json, file] = arguments.as_slice() else {
            panic!("{arguments:?}");
        };
        assert_eq!(
            (check.as_os_str(), json.as_os_str()),
            ("--check".as_ref(), "--json".as_ref())
        );
        assert!(Path::new(file).is_absolute() && Path::new(file).ends_with("speed.json"));
    }

    #[test]
    fn a_group_is_passed_on() {
        let arguments = arguments(false, None, Some("c2")).unwrap();
        assert_eq!(arguments, ["--only", "c2"]);
    }

    #[test]
    fn no_benchmarks_are_no_failure() {
        let workspace = Workspace::empty("bench");
        let code = run(&workspace, false, None, None);
        std::fs::remove_dir_all(workspace.root()).unwrap();
        // `ExitCode` has no equality.
        assert_eq!(
            format!("{:?}", code.unwrap()),
            format!("{:?}", ExitCode::SUCCESS)
        );
    }
}

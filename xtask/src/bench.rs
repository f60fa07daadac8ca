//! `cargo xtask bench`: the benchmarks of the core.

use std::ffi::OsString;
use std::path::{Path, absolute};
use std::process::ExitCode;

use crate::exit;
use crate::problem::Problem;
use crate::workspace::{Metadata, Workspace, succeeds};

/// The crate whose work is measured.
const MEASURED: &str = "lease-core";

/// Runs the benchmarks, or says that there are none.
pub(crate) fn run(
    workspace: &Workspace,
    check: bool,
    json: Option<&Path>,
) -> Result<ExitCode, Problem> {
    if !is_measured(&workspace.metadata()?) {
        println!("no benchmarks yet: {MEASURED} has no bench target");
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = workspace.cargo(["bench", "--package", MEASURED, "--"]);
    command.args(arguments(check, json)?);
    succeeds(&mut command).map(exit)
}

fn is_measured(metadata: &Metadata) -> bool {
    metadata
        .packages
        .iter()
        .any(|package| package.name == MEASURED && package.has_target(&["bench"]))
}

/// What the benchmark program gets. It runs in another folder, so the file is named in full.
fn arguments(check: bool, json: Option<&Path>) -> Result<Vec<OsString>, Problem> {
    let mut arguments = Vec::new();
    if check {
        arguments.push("--check".into());
    }
    if let Some(file) = json {
        let file = absolute(file).map_err(Problem::caused(file.display()))?;
        arguments.extend(["--json".into(), file.into_os_string()]);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_in_full() {
        let arguments = arguments(true, Some(Path::new("speed.json"))).unwrap();
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
    fn only_a_bench_target_of_the_core_counts() {
        let metadata = |package: &str, kind: &str| -> Metadata {
            let target = format!(r#"{{"kind": ["{kind}"]}}"#);
            let text = format!(
                r#"{{"target_directory": "t", "packages": [
                    {{"name": "{package}", "dependencies": [], "targets": [{target}]}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert!(is_measured(&metadata("lease-core", "bench")));
        assert!(!is_measured(&metadata("lease-core", "lib")));
        assert!(!is_measured(&metadata("chaos", "bench")));
    }
}

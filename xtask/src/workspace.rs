//! Where the workspace is, what is in it, and how to call cargo and git there.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::child::Running;
use crate::problem::Problem;

/// The workspace that this program belongs to.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    cargo: OsString,
}

/// What `cargo metadata --no-deps` says of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// One member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) rust_version: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// One dependency of a member, as its manifest has it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
}

/// One thing that cargo builds for a member.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    /// The parent of this program's own package.
    pub(crate) fn find() -> Result<Self, Problem> {
        // Set by `cargo run`; the value of the build serves a binary that was started by hand.
        let package = variable("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
        let root = Path::new(&package)
            .parent()
            .ok_or_else(|| Problem::new("the package of xtask has no parent folder"))?;
        Ok(Self {
            root: root.to_path_buf(),
            cargo: variable("CARGO").unwrap_or_else(|| OsString::from(env!("CARGO"))),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A call of cargo at the root, without standard input.
    pub(crate) fn cargo<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.cargo);
        command
            .args(arguments)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    /// A call of git at the root that also works on a clone of another user.
    pub(crate) fn git(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    /// Asks cargo for the members.
    pub(crate) fn metadata(&self) -> Result<Metadata, Problem> {
        let arguments = ["metadata", "--format-version", "1", "--no-deps"];
        let text = output(&mut self.cargo(arguments))?;
        serde_json::from_str(&text).map_err(Problem::caused("cargo metadata printed no such JSON"))
    }

    /// Whether `cargo <tool>` can be called.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.cargo([tool, "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Package {
    /// Whether the package has a target of one of these kinds.
    pub(crate) fn has_target(&self, kinds: &[&str]) -> bool {
        self.targets
            .iter()
            .flat_map(|target| &target.kind)
            .any(|kind| kinds.contains(&kind.as_str()))
    }
}

/// Runs a command to its end and says whether it ended with 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool, Problem> {
    let status = Running::start(command).and_then(Running::wait);
    let status = status.map_err(Problem::caused(spoken(command)))?;
    Ok(status.success())
}

/// Runs a command that must succeed and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, Problem> {
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(Problem::caused(spoken(command)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Problem::new(format!("{}: {words}", spoken(command))));
    }
    String::from_utf8(output.stdout).map_err(Problem::caused(spoken(command)))
}

/// The command in the form in which a person would type it.
pub(crate) fn spoken(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    core::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Reads a variable that cargo sets for the programs it runs.
#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to its programs by environment"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Workspace {
        /// A new repository without a file, for one test that removes it.
        #[expect(
            clippy::disallowed_methods,
            reason = "a name for a folder, not an identity"
        )]
        pub(crate) fn empty(name: &str) -> Self {
            let folder = format!("xtask-{name}-{}", std::process::id());
            let workspace = Self {
                root: std::env::temp_dir().join(folder),
                ..Self::find().unwrap()
            };
            std::fs::create_dir_all(&workspace.root).unwrap();
            assert!(succeeds(&mut workspace.git(&["init", "--quiet"])).unwrap());
            workspace
        }
    }

    #[test]
    fn the_workspace_is_found_and_xtask_is_in_it() {
        let workspace = Workspace::find().unwrap();
        let metadata = workspace.metadata().unwrap();
        let xtask = metadata
            .packages
            .iter()
            .find(|package| package.name == "xtask");
        assert!(xtask.unwrap().has_target(&["bin"]));
        assert!(!xtask.unwrap().has_target(&["lib"]));
    }

    #[test]
    fn a_command_succeeds_or_not_and_a_missing_one_is_a_problem() {
        assert!(succeeds(&mut Command::new("true")).unwrap());
        assert!(!succeeds(&mut Command::new("false")).unwrap());
        assert!(succeeds(&mut Command::new("no-such-program")).is_err());
    }

    #[test]
    fn a_tool_of_cargo_is_there_or_not() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.has("fmt"));
        assert!(!workspace.has("no-such-tool"));
    }

    #[test]
    fn a_failing_command_is_a_problem_that_names_it() {
        let workspace = Workspace::find().unwrap();
        let problem = output(&mut workspace.cargo(["no-such-command"])).unwrap_err();
        assert!(
            problem.to_string().starts_with("cargo no-such-command: "),
            "{problem}"
        );
    }
}

//! `cargo xtask tidy`: what no compiler and no linter checks.
//!
//! Every check is a function of the files as text, so that its own tests can feed it small files
//! and see it fail. Only the edges between crates are asked of cargo.

mod bans;
mod conformance;
mod edges;
mod imports;
mod manifests;
mod named;
mod rules;
mod snapshots;
mod source;
mod sqlite;
mod words;

use core::fmt;
use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use self::source::Source;
use crate::exit;
use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Workspace, output};

/// One thing to put right, at a place.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

/// The text files of the project: those that git tracks, and new ones that it would.
#[derive(Debug, Default)]
struct Tree {
    texts: BTreeMap<String, String>,
    rust: BTreeMap<String, Source>,
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [Check; 10] = [
    bans::check,
    conformance::check,
    edges::check_no_std,
    imports::check,
    manifests::check,
    named::check,
    rules::check,
    snapshots::check,
    sqlite::check,
    words::check,
];

/// Prints every finding; 1 if there is any.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, Problem> {
    is_clean(workspace).map(exit)
}

/// Prints every finding and says whether there was none.
pub(crate) fn is_clean(workspace: &Workspace) -> Result<bool, Problem> {
    let tree = Tree::load(workspace)?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    findings.extend(edges::check_graph(workspace)?);
    findings.extend(stray_snapshots(workspace)?);
    findings.sort();
    findings.dedup();
    for finding in &findings {
        say(finding)?;
    }
    say(format_args!("tidy: {} findings", findings.len()))?;
    Ok(findings.is_empty())
}

/// Snapshots that nobody has judged yet. Git ignores them, so the tree does not hold them.
fn stray_snapshots(workspace: &Workspace) -> Result<Vec<Finding>, Problem> {
    let arguments = ["ls-files", "-z", "--others", "--cached", "--"];
    let mut command = workspace.git(&arguments);
    let listed = output(command.args(["*.snap.new", "*.pending-snap"]))?;
    let stray = paths(&listed).filter(|path| !path.starts_with("target/"));
    Ok(stray
        .map(|path| Finding::new(path, 1, "is a snapshot that nobody accepted or rejected"))
        .collect())
}

/// What git lists with `-z`.
fn paths(listed: &str) -> impl Iterator<Item = &str> {
    listed.split('\0').filter(|path| !path.is_empty())
}

impl Tree {
    fn load(workspace: &Workspace) -> Result<Self, Problem> {
        let arguments = [
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ];
        let listed = output(&mut workspace.git(&arguments))?;
        let mut tree = Self::default();
        for path in paths(&listed) {
            // Neither a file that was just removed nor one that is no text is ours to read.
            if let Ok(text) = fs::read_to_string(workspace.root().join(path)) {
                tree.add(path, text);
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, text: String) {
        if path.ends_with(".rs") {
            self.rust.insert(path.to_owned(), Source::new(&text));
        }
        self.texts.insert(path.to_owned(), text);
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        write!(out, "{path}:{line}: {what}")
    }
}

/// The lines of a text with their numbers, counted from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Where `word` stands in `text` with no letter, digit or underscore beside it.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let inside = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word)
        .map(|(start, _)| start)
        .find(|&start| {
            let end = start.saturating_add(word.len());
            let before = text.get(..start).and_then(|text| text.chars().next_back());
            let after = text.get(end..).and_then(|text| text.chars().next());
            !before.is_some_and(inside) && !after.is_some_and(inside)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of these files.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, (*text).to_owned());
        }
        tree
    }

    /// Runs one check over these files and compares what it prints.
    #[track_caller]
    pub(super) fn check(check: Check, files: &[(&str, &str)], expected: &[&str]) {
        let mut findings = check(&tree(files));
        findings.sort();
        let printed: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(printed, expected);
    }

    #[test]
    fn the_tree_of_this_project_knows_rust() {
        let tree = Tree::load(&Workspace::find().unwrap()).unwrap();
        assert!(tree.rust.contains_key("xtask/src/main.rs"));
        assert!(tree.text("Cargo.toml").is_some());
    }

    #[test]
    fn the_tree_holds_what_git_would_and_strays_are_found_where_git_looks_away() {
        let workspace = Workspace::empty("tree");
        let write = |path: &str| {
            let path = workspace.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "*.snap.new\n*.pending-snap\ntarget\n").unwrap();
        };
        let strays = ["a/.b.rs.pending-snap", "a/c.snap.new"];
        let others = [".gitignore", "a/b.rs", "target/d.rs", "target/e.snap.new"];
        strays.iter().chain(&others).for_each(|path| write(path));
        let tree = Tree::load(&workspace);
        let found = stray_snapshots(&workspace);
        fs::remove_dir_all(workspace.root()).unwrap();

        let kept: Vec<String> = tree.unwrap().texts.into_keys().collect();
        assert_eq!(kept, [".gitignore", "a/b.rs"]);
        let found: Vec<String> = found.unwrap().into_iter().map(|stray| stray.path).collect();
        assert_eq!(found, strays);
    }

    #[test]
    fn a_word_stands_alone() {
        assert_eq!(find_word("an unsafe thing", "unsafe"), Some(3));
        assert_eq!(find_word("unsafe_code, unsafe", "unsafe"), Some(13));
        assert_eq!(find_word("unsafety is_unsafe", "unsafe"), None);
    }
}

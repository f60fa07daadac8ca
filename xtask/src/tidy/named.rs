//! What a document names in backquotes is there: files, folders, tests and scenarios.

use std::collections::BTreeSet;

use super::{Finding, Tree, numbered};

/// It tells of what was there at its time.
const HISTORY: &str = "CHANGELOG.md";

/// How many underscores make a name the sentence of a test.
const SENTENCE: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let known = Known::of(tree);
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        if !path.ends_with(".md") || path == HISTORY {
            continue;
        }
        for (line, words) in numbered(text) {
            let missing = quoted(words).filter_map(|name| known.lacks(name));
            findings.extend(missing.map(|what| Finding::new(path, line, what)));
        }
    }
    findings
}

/// What stands between backquotes in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// What may be named.
struct Known<'a> {
    paths: BTreeSet<&'a str>,
    /// Functions, and texts in quotation marks.
    names: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(tree: &'a Tree) -> Self {
        let functions = tree
            .rust
            .values()
            .flat_map(|source| &source.code)
            .filter_map(|code| function(code));
        let rust = tree.texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let texts = rust.flat_map(|(_, text)| text.split('"'));
        Self {
            paths: tree.texts.keys().map(String::as_str).collect(),
            names: functions.chain(texts).collect(),
        }
    }

    /// Says what is missing, if `name` is one of the kinds that are looked for and is not there.
    fn lacks(&self, name: &str) -> Option<String> {
        if is_path(name) && !self.has_path(name) {
            return Some(format!("`{name}` is no file or folder here"));
        }
        if is_sentence(name) && !self.names.contains(name) {
            return Some(format!("`{name}` is no function here"));
        }
        if is_scenario(name) && !self.names.contains(name) {
            return Some(format!("`{name}` is no scenario here"));
        }
        None
    }

    /// A path may be told from any folder on.
    fn has_path(&self, name: &str) -> bool {
        let within = format!("/{name}");
        let is_named = |path: &&str| {
            if name.ends_with('/') {
                path.starts_with(name) || path.contains(&within)
            } else {
                *path == name || path.ends_with(&within)
            }
        };
        self.paths.iter().any(is_named)
    }
}

fn function(code: &str) -> Option<&str> {
    let (_, rest) = code.split_once("fn ")?;
    let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '_')?;
    rest.get(..end)
}

fn is_path(name: &str) -> bool {
    let plain = |next: char| next.is_ascii_alphanumeric() || "_-./".contains(next);
    let end = [".md", ".rs", ".toml", "/"];
    name.chars().all(plain)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '.')
        && end.iter().any(|end| name.ends_with(end))
}

fn is_sentence(name: &str) -> bool {
    let plain = |next: char| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '_';
    name.chars().all(plain) && name.matches('_').count() >= SENTENCE
}

fn is_scenario(name: &str) -> bool {
    let plain = |next: char| next.is_ascii_lowercase() || next == '-';
    name.chars().all(plain) && (name.starts_with("real-") || name.starts_with("sim-"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const RUST: (&str, &str) = (
        "a/src/deep/b.rs",
        "#[test]\nfn what_is_gone_stays_gone() {}\nconst A: &str = \"sim-one\";\nconst B: &str = \"id_of_a_thing\";\n",
    );

    #[track_caller]
    fn check_text(text: &str, expected: &[&str]) {
        check_files(check, &[RUST, ("docs/a.md", text)], expected);
    }

    #[test]
    fn what_is_there_may_be_named() {
        check_text(
            "`a/src/deep/b.rs`, `deep/b.rs` and `b.rs` in `a/src/`, `deep/`\n",
            &[],
        );
        check_text(
            "`what_is_gone_stays_gone`, `sim-one` and `id_of_a_thing`\n",
            &[],
        );
    }

    #[test]
    fn what_is_not_there_is_found() {
        let text = "`c.rs`\n`eep/b.rs`, `src/b.rs`\n`b/`\n`what_is_gone_comes_back`\n`real-one`\n";
        let expected = [
            "docs/a.md:1: `c.rs` is no file or folder here",
            "docs/a.md:2: `eep/b.rs` is no file or folder here",
            "docs/a.md:2: `src/b.rs` is no file or folder here",
            "docs/a.md:3: `b/` is no file or folder here",
            "docs/a.md:4: `what_is_gone_comes_back` is no function here",
            "docs/a.md:5: `real-one` is no scenario here",
        ];
        check_text(text, &expected);
    }

    #[test]
    fn other_words_name_nothing() {
        check_text(
            "c.rs `F_OFD_SETLK` `two_words` `a.rs b` `/proc/` `<db>.rs` `real`\n",
            &[],
        );
    }

    #[test]
    fn the_changelog_tells_of_its_time() {
        check_files(check, &[(HISTORY, "`c.rs`\n")], &[]);
    }
}

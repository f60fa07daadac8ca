//! Words that stay out of every file: open ends without an issue, and the author's own machine.

use super::{Finding, Tree, find_word, numbered};

const OPEN_ENDS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// First folders of absolute paths that exist on somebody's machine only.
const MACHINE_FOLDERS: [&str; 3] = ["work", "farm", "root"];

/// Ends of host names, and beginnings of addresses, that nobody outside can reach.
const PRIVATE_ENDS: [&str; 4] = [".internal", ".corp", ".lan", ".intranet"];
const PRIVATE_BEGINNINGS: [&str; 2] = ["10.", "192.168."];

/// The one registry that a lock file may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        for (line, words) in numbered(text) {
            let mut find = |what: String| findings.push(Finding::new(path, line, what));
            machine_folder(words).into_iter().for_each(&mut find);
            private_host(words).into_iter().for_each(&mut find);
            if path.ends_with("Cargo.lock") {
                other_registry(words).into_iter().for_each(&mut find);
            }
        }
        findings.extend(open_ends(tree, path, text));
    }
    findings
}

/// In Rust only comments are read for words and only code for the macro: text is data.
fn open_ends(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let find = |(line, words): (usize, &str)| {
        let word = OPEN_ENDS.iter().find(|word| is_open_end(words, word))?;
        Some(Finding::new(
            path,
            line,
            format!("`{word}` without an issue: `TODO(#7): ..`"),
        ))
    };
    let Some(source) = tree.rust.get(path) else {
        let plain: Vec<String> = text.lines().map(without_quotes).collect();
        return (1..)
            .zip(plain.iter().map(String::as_str))
            .filter_map(find)
            .collect();
    };
    let comments = (1..).zip(source.comments.iter().map(String::as_str));
    let macros = source
        .numbered_code()
        .filter(|(_, code)| code.contains("todo!"))
        .map(|(line, _)| Finding::new(path, line, "`todo!` is left in the code"));
    comments.filter_map(find).chain(macros).collect()
}

fn is_open_end(text: &str, word: &str) -> bool {
    let Some(start) = find_word(text, word) else {
        return false;
    };
    let rest = text.get(start..).unwrap_or_default();
    let number = rest
        .strip_prefix("TODO(#")
        .and_then(|rest| rest.split_once("): "))
        .map(|(number, _)| number);
    let has_issue = number.is_some_and(|number| number.parse::<u32>().is_ok());
    // What follows a good one on the same line is read, too.
    !has_issue || is_open_end(rest.get(word.len()..).unwrap_or_default(), word)
}

/// Leaves out what stands between backquotes.
fn without_quotes(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

fn machine_folder(text: &str) -> Option<String> {
    MACHINE_FOLDERS
        .iter()
        .map(|folder| format!("/{folder}/"))
        .find(|folder| is_absolute(text, folder))
        .map(|folder| format!("`{folder}` is a path of one machine"))
}

/// Whether an absolute path begins like this: `/proc/7/` may well go on with a folder of that name.
fn is_absolute(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(start, _)| {
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        !before.is_some_and(|before| before.is_alphanumeric() || "_-.})>]*$".contains(before))
    })
}

fn private_host(text: &str) -> Option<String> {
    text.split("://")
        .skip(1)
        .map(|rest| {
            let is_host = |next: char| next.is_ascii_alphanumeric() || ".-_".contains(next);
            let end = rest.find(|next| !is_host(next)).unwrap_or(rest.len());
            rest.get(..end).unwrap_or_default()
        })
        .find(|host| {
            PRIVATE_ENDS.iter().any(|end| host.ends_with(end))
                || PRIVATE_BEGINNINGS
                    .iter()
                    .any(|begin| host.starts_with(begin))
        })
        .map(|host| format!("`{host}` is a private host"))
}

fn other_registry(text: &str) -> Option<String> {
    let source = text.strip_prefix("source = \"")?.trim_end_matches('"');
    (source != REGISTRY).then(|| format!("`{source}` is not the public registry"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        check_files(check, &[(path, text)], expected);
    }

    #[test]
    fn an_open_end_needs_an_issue() {
        let rust = "// TODO(#12): later\nlet a = \"TODO\"; // tODO XXXX TODOS\n";
        check_one("a.rs", rust, &[]);
        check_one(
            "a.rs",
            "// TODO: later\n/// FIXME(#1): x\n// TODO(#x): y\n// TODO(#1): a TODO\n",
            &[
                "a.rs:1: `TODO` without an issue: `TODO(#7): ..`",
                "a.rs:2: `FIXME` without an issue: `TODO(#7): ..`",
                "a.rs:3: `TODO` without an issue: `TODO(#7): ..`",
                "a.rs:4: `TODO` without an issue: `TODO(#7): ..`",
            ],
        );
    }

    #[test]
    fn other_files_are_read_as_they_are_but_for_quotes() {
        check_one("a.md", "write `TODO(#n): ` and never `FIXME`\n", &[]);
        let expected = ["a.toml:1: `XXX` without an issue: `TODO(#7): ..`"];
        check_one("a.toml", "a = 1 # XXX\n", &expected);
    }

    #[test]
    fn the_macro_is_found_in_code_only() {
        check_one("a.rs", "f(\"todo!\") // todo! is a macro\n", &[]);
        check_one(
            "a.rs",
            "todo!()\n",
            &["a.rs:1: `todo!` is left in the code"],
        );
    }

    #[test]
    fn a_path_of_one_machine_is_found_anywhere() {
        for folder in MACHINE_FOLDERS {
            let expected = format!("a.txt:1: `/{folder}/` is a path of one machine");
            check_one("a.txt", &format!("cd /{folder}/x"), &[&expected]);
            check_one(
                "a.txt",
                &format!("/proc/7/{folder}/x {{pid}}/{folder}/x"),
                &[],
            );
            check_one("a.txt", &format!("/{folder}s/x"), &[]);
        }
    }

    #[test]
    fn a_private_host_is_found_anywhere() {
        let scheme = "http://";
        check_one(
            "a.md",
            &format!("{scheme}127.0.0.1:80 {scheme}example.com/a.lan"),
            &[],
        );
        let expected = ["a.md:1: `git.example.corp` is a private host"];
        check_one(
            "a.md",
            &format!("see {scheme}git.example.corp/x"),
            &expected,
        );
        let expected = ["a.md:1: `10.0.0.7` is a private host"];
        check_one("a.md", &format!("{scheme}10.0.0.7:80"), &expected);
    }

    #[test]
    fn a_lock_file_names_the_public_registry_only() {
        check_one("Cargo.lock", &format!("source = \"{REGISTRY}\"\n"), &[]);
        let expected = ["Cargo.lock:1: `registry+https://a.b/c` is not the public registry"];
        check_one(
            "Cargo.lock",
            "source = \"registry+https://a.b/c\"\n",
            &expected,
        );
    }
}

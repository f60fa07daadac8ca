//! Every accepted snapshot still has the test that wrote it.

use super::{Finding, Tree, find_word, numbered};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts
        .iter()
        .filter(|(path, _)| path.ends_with(".snap"))
        .filter_map(|(path, text)| {
            orphaned(tree, path, text).map(|what| Finding::new(path, 1, what))
        })
        .collect()
}

/// Says what a snapshot lacks.
fn orphaned(tree: &Tree, path: &str, text: &str) -> Option<String> {
    let Some(source) = header(text, "source: ") else {
        return Some("has no `source:` in its header".to_owned());
    };
    if !tree.rust.contains_key(source) {
        return Some(format!("its source {source} is gone"));
    }
    let Some(name) = name(path) else {
        return Some("is not named `<crate>__<module>__<name>.snap`".to_owned());
    };
    // The name of a scenario may stand in the library whose scenarios the source runs.
    let folder = source.split_inclusive('/').next().unwrap_or_default();
    let is_known = tree
        .rust
        .keys()
        .filter(|path| path.starts_with(folder))
        .filter_map(|path| tree.text(path))
        .any(|text| find_word(text, name).is_some());
    (!is_known).then(|| format!("nothing in {folder} is called {name}"))
}

/// A value of the header, which stands between two lines of dashes.
fn header<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    numbered(text)
        .take_while(|(line, words)| *line == 1 || *words != "---")
        .find_map(|(_, words)| words.strip_prefix(key))
        .map(|value| value.trim().trim_matches('"'))
}

/// The test's or the snapshot's own name, without the suffix of repeated and varied ones.
fn name(path: &str) -> Option<&str> {
    let (_, file) = path.rsplit_once('/')?;
    let (_, name) = file.strip_suffix(".snap")?.rsplit_once("__")?;
    let name = name.split('@').next().unwrap_or(name);
    match name.rsplit_once('-') {
        Some((start, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => Some(start),
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const SOURCE: (&str, &str) = (
        "a/tests/it/b.rs",
        "#[test]\nfn it_holds() { b(\"it-holds\") }\n",
    );
    const HEADER: &str = "---\nsource: a/tests/it/b.rs\nexpression: c\n---\nsource: x\n";

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        check_files(check, &[SOURCE, (path, text)], expected);
    }

    #[test]
    fn a_snapshot_of_a_living_test_is_right() {
        for name in ["it_holds", "it_holds-2", "it_holds@linux", "it-holds"] {
            check_one(
                &format!("a/tests/it/snapshots/it__b__{name}.snap"),
                HEADER,
                &[],
            );
        }
    }

    #[test]
    fn a_snapshot_whose_test_is_gone_is_found() {
        let path = "a/tests/it/snapshots/it__b__it_held.snap";
        let expected = format!("{path}:1: nothing in a/ is called it_held");
        check_one(path, HEADER, &[&expected]);
    }

    #[test]
    fn a_snapshot_whose_source_is_gone_is_found() {
        let path = "a/s/it__b__it_holds.snap";
        let text = HEADER.replace("b.rs", "c.rs");
        let expected = format!("{path}:1: its source a/tests/it/c.rs is gone");
        check_one(path, &text, &[&expected]);
        let expected = format!("{path}:1: has no `source:` in its header");
        check_one(
            path,
            "---\nexpression: c\n---\nsource: a/tests/it/b.rs\n",
            &[&expected],
        );
    }

    #[test]
    fn a_snapshot_has_a_name_of_three_parts() {
        let expected = "a/s/it.snap:1: is not named `<crate>__<module>__<name>.snap`";
        check_one("a/s/it.snap", HEADER, &[expected]);
    }
}

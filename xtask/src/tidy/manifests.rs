//! Every member takes the workspace's lints, nobody has bans of its own, and the README names the
//! Rust version that the manifest names.

use toml::Table;

use super::{Finding, Tree, numbered};

const ROOT: &str = "Cargo.toml";
const README: &str = "README.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = own_bans(tree);
    let Some(root) = tree.text(ROOT).and_then(parse) else {
        findings.push(Finding::new(ROOT, 1, "is missing or no TOML"));
        return findings;
    };
    findings.extend(
        members(&root)
            .iter()
            .filter_map(|member| own_lints(tree, member)),
    );
    findings.extend(version(tree, &root));
    findings
}

fn parse(text: &str) -> Option<Table> {
    text.parse().ok()
}

fn members(root: &Table) -> Vec<String> {
    let list = root
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(|members| members.as_array());
    list.into_iter()
        .flatten()
        .filter_map(|member| member.as_str().map(str::to_owned))
        .collect()
}

fn own_lints(tree: &Tree, member: &str) -> Option<Finding> {
    let path = format!("{member}/{ROOT}");
    let takes = tree
        .text(&path)
        .and_then(parse)
        .and_then(|manifest| manifest.get("lints")?.get("workspace")?.as_bool());
    let what = "must say `[lints]` `workspace = true`";
    (takes != Some(true)).then(|| Finding::new(&path, 1, what))
}

/// A second `clippy.toml` replaces the one at the root, so an empty one drops every ban.
fn own_bans(tree: &Tree) -> Vec<Finding> {
    let is_own = |path: &&String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        [".clippy.toml", "clippy.toml"].contains(&name) && path.as_str() != "clippy.toml"
    };
    let mut findings: Vec<Finding> = tree
        .texts
        .keys()
        .filter(is_own)
        .map(|path| Finding::new(path, 1, "replaces the bans of the root: take it away"))
        .collect();
    if tree.text("clippy.toml").is_none() {
        findings.push(Finding::new(
            "clippy.toml",
            1,
            "is missing, and the bans with it",
        ));
    }
    findings
}

fn version(tree: &Tree, root: &Table) -> Vec<Finding> {
    let wanted = root
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("rust-version")?.as_str());
    let Some(wanted) = wanted else {
        return vec![Finding::new(
            ROOT,
            1,
            "has no `rust-version` for the workspace",
        )];
    };
    let text = tree.text(README).unwrap_or_default();
    let mut named = false;
    let mut findings = Vec::new();
    for (line, words) in numbered(text) {
        for version in versions(words) {
            named = true;
            if version != wanted {
                let what = format!("names Rust {version}, the manifest names {wanted}");
                findings.push(Finding::new(README, line, what));
            }
        }
    }
    if !named {
        findings.push(Finding::new(README, 1, format!("must name Rust {wanted}")));
    }
    findings
}

/// The numbers after each `Rust `.
fn versions(words: &str) -> impl Iterator<Item = &str> {
    words.split("Rust ").skip(1).filter_map(|rest| {
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.');
        let number = rest.get(..end.unwrap_or(rest.len()))?.trim_end_matches('.');
        number.contains('.').then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const GOOD: [(&str, &str); 4] = [
        (
            ROOT,
            "[workspace]\nmembers = [\"a\"]\n[workspace.package]\nrust-version = \"1.89\"\n",
        ),
        ("a/Cargo.toml", "[lints]\nworkspace = true\n"),
        ("clippy.toml", ""),
        (README, "Needs Rust 1.89. Rust is fine.\n"),
    ];

    /// Checks a good tree in which these files stand instead.
    #[track_caller]
    fn check_with(files: &[(&str, &str)], expected: &[&str]) {
        let all: Vec<(&str, &str)> = GOOD.iter().chain(files).copied().collect();
        check_files(check, &all, expected);
    }

    #[test]
    fn a_good_tree_is_clean() {
        check_with(&[], &[]);
    }

    #[test]
    fn a_member_takes_the_lints() {
        let expected = ["a/Cargo.toml:1: must say `[lints]` `workspace = true`"];
        check_with(
            &[("a/Cargo.toml", "[lints]\nworkspace = false\n")],
            &expected,
        );
        check_with(
            &[("a/Cargo.toml", "[lints.rust]\nunused = \"warn\"\n")],
            &expected,
        );
    }

    #[test]
    fn a_member_has_no_bans_of_its_own() {
        for path in ["a/clippy.toml", "a/.clippy.toml", ".clippy.toml"] {
            let expected = format!("{path}:1: replaces the bans of the root: take it away");
            check_with(&[(path, "")], &[&expected]);
        }
        let expected = [
            "Cargo.toml:1: is missing or no TOML",
            "clippy.toml:1: is missing, and the bans with it",
        ];
        check_files(check, &[], &expected);
    }

    #[test]
    fn the_readme_names_the_version_of_the_manifest() {
        let expected = ["README.md:2: names Rust 1.88, the manifest names 1.89"];
        check_with(&[(README, "Rust 1.89\nRust 1.88.\n")], &expected);
        check_with(&[(README, "Rust\n")], &["README.md:1: must name Rust 1.89"]);
    }
}

//! The direction of dependencies: which crate may use which.

use std::collections::BTreeSet;

use super::{Finding, Tree};
use crate::problem::Problem;
use crate::workspace::{Metadata, Workspace, output};

const CORE: &str = "lease-core";
const CORE_FILE: &str = "lease-core/src/lib.rs";

/// Every crate that may be in the core's graph, its macros' own ones too. All build without std.
const CORE_MAY_USE: [&str; 15] = [
    "allocator-api2",
    "equivalent",
    "foldhash",
    "hashbrown",
    "lease-core",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "uuid",
];

/// The crates of the house, each with those that it may use, for its tests too.
const HOUSE: [(&str, &[&str]); 8] = [
    ("lease-core", &[]),
    ("lease-procfs", &["lease-core"]),
    ("lease-async", &["lease-core", "lease-procfs"]),
    (
        "lease-sqlite",
        &["lease-async", "lease-core", "lease-procfs"],
    ),
    ("lease-etcd", &["lease-async", "lease-core", "lease-procfs"]),
    (
        "lease-cli",
        &[
            "lease-async",
            "lease-core",
            "lease-etcd",
            "lease-procfs",
            "lease-sqlite",
        ],
    ),
    (
        "chaos",
        &[
            "lease-async",
            "lease-core",
            "lease-etcd",
            "lease-procfs",
            "lease-sqlite",
        ],
    ),
    ("xtask", &[]),
];

/// The core opens with `no_std`, under no condition, and lets std in for its own tests only.
pub(super) fn check_no_std(tree: &Tree) -> Vec<Finding> {
    let Some(core) = tree.rust.get(CORE_FILE) else {
        return vec![Finding::new(CORE_FILE, 1, "is missing")];
    };
    let mut findings = Vec::new();
    if !core.code.iter().any(|code| code.trim() == "#![no_std]") {
        findings.push(Finding::new(
            CORE_FILE,
            1,
            "must say `#![no_std]`, without condition",
        ));
    }
    for (path, source) in &tree.rust {
        if !path.starts_with("lease-core/src/") {
            continue;
        }
        for (line, code) in source.numbered_code() {
            let above = source.code(line.saturating_sub(1)).trim();
            if code.contains("extern crate std") && above != "#[cfg(test)]" {
                findings.push(Finding::new(
                    path,
                    line,
                    "the core has no std outside its tests",
                ));
            }
        }
    }
    findings
}

/// Asks cargo for the graph.
pub(super) fn check_graph(workspace: &Workspace) -> Result<Vec<Finding>, Problem> {
    let mut findings = house(&workspace.metadata()?);
    for features in ["", "serde"] {
        let arguments = [
            "tree",
            "--package",
            CORE,
            "--edges",
            "normal",
            "--no-default-features",
            "--features",
            features,
            "--target",
            "all",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ];
        findings.extend(core(&output(&mut workspace.cargo(arguments))?));
    }
    Ok(findings)
}

fn house(metadata: &Metadata) -> Vec<Finding> {
    let members: BTreeSet<&str> = metadata
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let path = format!("{}/Cargo.toml", package.name);
        let Some((_, allowed)) = HOUSE.iter().find(|(name, _)| *name == package.name) else {
            findings.push(Finding::new(
                &path,
                1,
                "this crate has no place in the house yet",
            ));
            continue;
        };
        for used in package.dependencies.iter().map(|used| used.name.as_str()) {
            if members.contains(used) && !allowed.contains(&used) {
                let what = format!("{} may not use {used}", package.name);
                findings.push(Finding::new(&path, 1, what));
            }
        }
    }
    findings
}

/// Reads the lines of `cargo tree`: name, version, remarks.
fn core(lines: &str) -> Vec<Finding> {
    let used: BTreeSet<&str> = lines
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty() && !CORE_MAY_USE.contains(name))
        .collect();
    used.iter()
        .map(|name| {
            let what = format!("the core may not use {name}");
            Finding::new("lease-core/Cargo.toml", 1, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    #[test]
    fn the_core_is_without_std_under_no_condition() {
        check_files(
            check_no_std,
            &[(CORE_FILE, "//! A.\n#![no_std]\nmod a;\n")],
            &[],
        );
        let expected = "lease-core/src/lib.rs:1: must say `#![no_std]`, without condition";
        let conditional = "#![cfg_attr(not(feature = \"std\"), no_std)]\n// #![no_std]\n";
        check_files(check_no_std, &[(CORE_FILE, conditional)], &[expected]);
        check_files(check_no_std, &[], &["lease-core/src/lib.rs:1: is missing"]);
    }

    #[test]
    fn the_core_lets_std_into_its_tests_only() {
        let file = |text| [(CORE_FILE, "#![no_std]\n"), ("lease-core/src/a.rs", text)];
        check_files(
            check_no_std,
            &file("#[cfg(test)]\nextern crate std;\n"),
            &[],
        );
        let expected = "lease-core/src/a.rs:2: the core has no std outside its tests";
        let text = "#[cfg(feature = \"std\")]\nextern crate std;\n";
        check_files(check_no_std, &file(text), &[expected]);
    }

    #[test]
    fn the_core_uses_only_what_is_listed() {
        assert_eq!(
            core("lease-core v0.1.0 (x)\nhashbrown v0.17.2\nfoldhash v0.2.0 (*)\n\n"),
            []
        );
        let found = core("lease-core v0.1.0 (x)\nlibc v0.2.0\nlibc v0.2.0 (*)\n");
        let expected = Finding::new("lease-core/Cargo.toml", 1, "the core may not use libc");
        assert_eq!(found, [expected]);
    }

    #[track_caller]
    fn check_house(package: &str, uses: &str, expected: &[&str]) {
        let member = |name: &str, used: &str| {
            let used = format!(r#"{{"name": "{used}"}}"#);
            format!(r#"{{"name": "{name}", "targets": [], "dependencies": [{used}]}}"#)
        };
        let others = ["lease-core", "lease-procfs", "lease-sqlite", "lease-async"]
            .iter()
            .filter(|name| **name != package)
            .map(|name| member(name, "thiserror"))
            .collect::<Vec<_>>()
            .join(",");
        let packages = format!("{}, {others}", member(package, uses));
        let text = format!(r#"{{"target_directory": "t", "packages": [{packages}]}}"#);
        let findings = house(&serde_json::from_str(&text).unwrap());
        let printed: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(printed, expected);
    }

    #[test]
    fn dependencies_point_down_only() {
        check_house("chaos", "lease-sqlite", &[]);
        check_house("lease-sqlite", "lease-async", &[]);
        let up = "lease-core/Cargo.toml:1: lease-core may not use lease-procfs";
        check_house("lease-core", "lease-procfs", &[up]);
        let across = "lease-async/Cargo.toml:1: lease-async may not use lease-sqlite";
        check_house("lease-async", "lease-sqlite", &[across]);
        check_house(
            "xtask",
            "lease-core",
            &["xtask/Cargo.toml:1: xtask may not use lease-core"],
        );
    }

    #[test]
    fn a_new_crate_needs_a_place() {
        let expected = "lease-new/Cargo.toml:1: this crate has no place in the house yet";
        check_house("lease-new", "serde", &[expected]);
    }
}

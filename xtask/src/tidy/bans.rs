//! What may stand in some files only. The one list of those files is here.
//!
//! Clippy bans the same calls everywhere (`clippy.toml`), and sees through imports; each file that
//! may make one expects the lint. This check says which files those are.

use super::source::Source;
use super::{Finding, Tree, find_word};

/// Something banned, and where it is at home.
#[derive(Debug)]
struct Ban {
    words: &'static [&'static str],
    homes: &'static [&'static [Home]],
    why: &'static str,
}

/// Files in which something banned is at home.
#[derive(Debug)]
enum Home {
    /// Every file of this name.
    File(&'static str),
    /// Every file below this folder of the workspace.
    Folder(&'static str),
}

/// The programs, and the file through which integration tests meet the machine.
const OUTSIDE: &[Home] = &[
    Home::Folder("bench/"),
    Home::Folder("chaos/"),
    Home::Folder("lease-cli/"),
    Home::Folder("xtask/"),
    Home::File("tests/inject/rig.rs"),
    Home::File("tests/interop/rig.rs"),
    Home::File("tests/it/patience.rs"),
    Home::File("tests/it/place.rs"),
    Home::File("tests/it/rig.rs"),
    Home::File("tests/it/rig/mod.rs"),
    Home::File("tests/it/told.rs"),
    Home::File("tests/naive/rig.rs"),
    Home::File("tests/telemetry/rig.rs"),
];

/// The files through which a library meets the machine.
const EDGES: &[Home] = &[Home::File("clock.rs"), Home::File("sys.rs")];

const BANS: [Ban; 7] = [
    Ban {
        words: &["unsafe"],
        homes: &[&[Home::File("sys.rs")]],
        why: "unsafe code lives in sys.rs",
    },
    Ban {
        words: &["Instant::now", "SystemTime::now"],
        homes: &[OUTSIDE, EDGES],
        why: "clocks are read in clock.rs and sys.rs",
    },
    Ban {
        words: &["thread::sleep", "process::id"],
        homes: &[OUTSIDE, EDGES],
        why: "waiting belongs to the caller, and a pid alone is no identity",
    },
    Ban {
        words: &["env::var", "env::var_os", "env::vars", "env::vars_os"],
        homes: &[OUTSIDE],
        why: "no library reads the environment",
    },
    Ban {
        words: &["disallowed_methods", "disallowed_types"],
        homes: &[OUTSIDE, EDGES],
        why: "this file may not expect a ban of clippy.toml",
    },
    Ban {
        words: &["#[ignore", "#[should_panic"],
        homes: &[],
        why: "a test runs, and says by itself that it did not",
    },
    Ban {
        words: &["#[allow(", "#![allow("],
        homes: &[],
        why: "silence a lint with #[expect(.., reason = \"..\")]",
    },
];

/// The longest that a file may be.
const LINES: usize = 800;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust
        .iter()
        .flat_map(|(path, source)| {
            let mut findings = banned(path, source);
            findings.extend(too_long(path, source));
            findings
        })
        .collect()
}

fn banned(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ban in BANS.iter().filter(|ban| !is_home(ban.homes, path)) {
        for (line, code) in source.numbered_code() {
            for word in ban.words.iter().filter(|word| stands_in(code, word)) {
                findings.push(Finding::new(path, line, format!("`{word}`: {}", ban.why)));
            }
        }
    }
    findings
}

fn stands_in(code: &str, word: &str) -> bool {
    if word.starts_with('#') {
        code.contains(word)
    } else {
        find_word(code, word).is_some()
    }
}

fn is_home(homes: &[&[Home]], path: &str) -> bool {
    homes.iter().copied().flatten().any(|home| match home {
        Home::Folder(folder) => path.starts_with(folder),
        Home::File(file) => path
            .strip_suffix(file)
            .is_some_and(|folder| folder.ends_with('/')),
    })
}

fn too_long(path: &str, source: &Source) -> Option<Finding> {
    let lines = source.code.len();
    (lines > LINES)
        .then(|| Finding::new(path, lines, format!("has {lines} lines, more than {LINES}")))
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
    fn unsafe_code_is_at_home_in_sys_only() {
        check_one("lease-procfs/src/sys.rs", "unsafe { f() }", &[]);
        check_one(
            "lease-procfs/src/a.rs",
            "// unsafe\nf(\"unsafe\", unsafe_code)",
            &[],
        );
        let expected = ["chaos/src/a.rs:2: `unsafe`: unsafe code lives in sys.rs"];
        check_one("chaos/src/a.rs", "\nunsafe { f() }", &expected);
        let expected = ["a/src/resys.rs:1: `unsafe`: unsafe code lives in sys.rs"];
        check_one("a/src/resys.rs", "unsafe { f() }", &expected);
    }

    #[test]
    fn clocks_and_pids_are_at_home_in_few_files() {
        let text = "let a = Instant::now();\nthread::sleep(b);\nstd::process::id()";
        check_one("lease-async/src/clock.rs", text, &[]);
        check_one("chaos/src/a.rs", text, &[]);
        check_one("lease-procfs/tests/it/rig.rs", text, &[]);
        check_one(
            "lease-procfs/src/a.rs",
            text,
            &[
                "lease-procfs/src/a.rs:1: `Instant::now`: clocks are read in clock.rs and sys.rs",
                "lease-procfs/src/a.rs:2: `thread::sleep`: waiting belongs to the caller, \
                 and a pid alone is no identity",
                "lease-procfs/src/a.rs:3: `process::id`: waiting belongs to the caller, \
                 and a pid alone is no identity",
            ],
        );
    }

    // X12
    #[test]
    fn no_library_reads_the_environment() {
        for library in [
            "lease-core",
            "lease-procfs",
            "lease-sqlite",
            "lease-async",
            "lease-etcd",
        ] {
            for file in ["lib.rs", "clock.rs", "sys.rs"] {
                for word in ["env::var", "env::var_os", "env::vars", "env::vars_os"] {
                    let path = format!("{library}/src/{file}");
                    let expected = format!("{path}:1: `{word}`: no library reads the environment");
                    check_one(&path, &format!("std::{word}(a)"), &[&expected]);
                }
            }
        }
        check_one("xtask/src/a.rs", "std::env::var(a)", &[]);
        check_one("lease-core/src/a.rs", "env!(a); std::env::variable", &[]);
    }

    #[test]
    fn only_a_home_may_expect_what_clippy_bans() {
        let text = "#[expect(\n    clippy::disallowed_methods,\n    reason = \"x\"\n)]";
        check_one("lease-procfs/src/clock.rs", text, &[]);
        let what = "`disallowed_methods`: this file may not expect a ban of clippy.toml";
        let expected = format!("lease-procfs/src/a.rs:2: {what}");
        check_one("lease-procfs/src/a.rs", text, &[&expected]);
    }

    #[test]
    fn no_test_is_ignored_and_no_lint_is_allowed() {
        check_one("a/src/a.rs", "f.ignore(); allow(x); // #[ignore]", &[]);
        check_one(
            "a/src/a.rs",
            "#[ignore = \"slow\"]\n#![allow(unused)]",
            &[
                "a/src/a.rs:1: `#[ignore`: a test runs, and says by itself that it did not",
                "a/src/a.rs:2: `#![allow(`: silence a lint with #[expect(.., reason = \"..\")]",
            ],
        );
    }

    #[test]
    fn a_file_has_at_most_800_lines() {
        check_one("a/src/a.rs", &"\n".repeat(800), &[]);
        let expected = ["a/src/a.rs:801: has 801 lines, more than 800"];
        check_one("a/src/a.rs", &"\n".repeat(801), &expected);
    }
}

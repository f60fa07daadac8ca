//! Imports stand in three blocks: std, core and alloc; other crates; our own crate.
//!
//! Rustfmt groups them on nightly only. Checked are the private imports at the left margin. Those
//! with an attribute, such as a `cfg`, may stand apart within their block.

use core::cmp::Ordering;

use super::source::Source;
use super::{Finding, Tree};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Block {
    Standard,
    Outside,
    Own,
}

/// One import, and whether an empty line stands between it and the one before.
#[derive(Debug)]
struct Import {
    line: usize,
    block: Block,
    apart: bool,
    attribute: bool,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust
        .iter()
        .flat_map(|(path, source)| {
            runs(source)
                .iter()
                .flat_map(|run| misplaced(path, run))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn misplaced(path: &str, run: &[Import]) -> Vec<Finding> {
    run.windows(2)
        .filter_map(|pair| {
            let [before, import] = pair else { return None };
            let divided = import.apart && !before.attribute && !import.attribute;
            let what = match before.block.cmp(&import.block) {
                Ordering::Greater => "std first, then other crates, then our own",
                Ordering::Equal if divided => "belongs to the block above",
                Ordering::Less if !import.apart => "needs an empty line above",
                Ordering::Equal | Ordering::Less => return None,
            };
            Some(Finding::new(path, import.line, format!("import: {what}")))
        })
        .collect()
}

/// The runs of imports with nothing but attributes, comments and empty lines between them.
fn runs(source: &Source) -> Vec<Vec<Import>> {
    let (mut runs, mut run) = (Vec::new(), Vec::new());
    let (mut apart, mut attribute, mut open) = (false, false, false);
    for (line, code) in source.numbered_code() {
        if let Some(path) = code.strip_prefix("use ") {
            run.push(Import {
                line,
                block: block(path),
                apart: core::mem::take(&mut apart),
                attribute: core::mem::take(&mut attribute),
            });
            open = !code.contains(';');
        } else if open {
            open = !code.contains(';');
        } else if code.trim().is_empty() {
            apart |= source.comment(line).trim().is_empty();
        } else if code.starts_with("#[") {
            attribute = true;
        } else {
            runs.push(core::mem::take(&mut run));
            (apart, attribute) = (false, false);
        }
    }
    runs.push(run);
    runs
}

fn block(path: &str) -> Block {
    let path = path.trim_start_matches("::");
    let end = path.find([':', ';', ' ', '{']).unwrap_or(path.len());
    match path.get(..end).unwrap_or_default() {
        "std" | "core" | "alloc" => Block::Standard,
        "crate" | "super" | "self" => Block::Own,
        _ => Block::Outside,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    #[track_caller]
    fn check_one(text: &str, expected: &[&str]) {
        check_files(check, &[("a/src/a.rs", text)], expected);
    }

    #[test]
    fn three_blocks_in_order_are_right() {
        check_one(
            "use alloc::vec::Vec;\nuse core::fmt;\n\n#[cfg(unix)]\nuse clap::{\n    A,\n    B,\n};\n\
             use serde::C;\n\n// Ours.\nuse crate::d;\nuse super::e;\n\npub use f::g;\nuse std::h;\n",
            &[],
        );
    }

    #[test]
    fn a_block_out_of_order_is_found() {
        let expected = ["a/src/a.rs:3: import: std first, then other crates, then our own"];
        check_one("use crate::a;\n\nuse std::b;\n", &expected);
    }

    #[test]
    fn two_blocks_without_a_line_between_are_found() {
        let expected = ["a/src/a.rs:2: import: needs an empty line above"];
        check_one("use std::b;\nuse clap::a;\n", &expected);
    }

    #[test]
    fn one_block_in_two_parts_is_found() {
        let expected = ["a/src/a.rs:3: import: belongs to the block above"];
        check_one("use std::b;\n\nuse core::a;\n", &expected);
    }

    #[test]
    fn imports_under_a_condition_may_stand_apart() {
        check_one("#[cfg(a)]\nuse crate::b;\n\nuse crate::c;\n", &[]);
        check_one("use crate::b;\n\n#[cfg(a)]\nuse crate::c;\n", &[]);
        let expected = ["a/src/a.rs:5: import: std first, then other crates, then our own"];
        check_one("use crate::b;\n\n\n#[cfg(a)]\nuse std::c;\n", &expected);
    }
}

//! Every promise of the conformance suite is mounted for the backends.
//!
//! The suite is `chaos/src/conformance*`: public functions that take one generic subject, and a
//! macro whose body names each of them once.

use super::source::Source;
use super::{Finding, Tree, find_word};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let suite = || {
        tree.rust
            .iter()
            .filter(|(path, _)| path.starts_with("chaos/src/conformance"))
    };
    let mounted: String = suite().map(|(_, source)| macro_bodies(source)).collect();
    suite()
        .flat_map(|(path, source)| promises(source).map(move |(line, name)| (path, line, name)))
        .filter(|(_, _, name)| find_word(&mounted, name).is_none())
        .map(|(path, line, name)| Finding::new(path, line, format!("`{name}` is not mounted")))
        .collect()
}

/// The public functions at the left margin that are generic, with their lines.
fn promises(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.numbered_code().filter_map(|(line, code)| {
        let rest = code.strip_prefix("pub fn ")?;
        let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_')?;
        let (name, rest) = rest.split_at_checked(end)?;
        (rest.starts_with('<') || rest.contains("impl ")).then_some((line, name))
    })
}

/// The code from each `macro_rules!` at the left margin to its closing brace there.
fn macro_bodies(source: &Source) -> String {
    let mut inside = false;
    let mut bodies = String::new();
    for (_, code) in source.numbered_code() {
        inside |= code.starts_with("macro_rules!");
        if inside {
            bodies.push_str(code);
            bodies.push('\n');
        }
        inside &= !code.starts_with('}');
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const FILE: &str = "chaos/src/conformance.rs";
    const SUITE: &str = "pub fn one<S: Subject>(subject: &mut S) {}\n\
                         pub fn two(subject: &mut impl Subject) {}\n\
                         pub fn helper(a: u8) {}\n";

    #[track_caller]
    fn check_macro(body: &str, expected: &[&str]) {
        let text = format!("{SUITE}macro_rules! mount {{\n    {body}\n}}\nfn two_is_here() {{}}\n");
        check_files(check, &[(FILE, &text)], expected);
    }

    #[test]
    fn every_promise_is_mounted() {
        check_macro("() => { each! { one, two } };", &[]);
        check_macro(
            "() => { $crate::one(s) };",
            &["chaos/src/conformance.rs:2: `two` is not mounted"],
        );
    }

    #[test]
    fn a_comment_mounts_nothing() {
        check_macro(
            "// one, two",
            &[
                "chaos/src/conformance.rs:1: `one` is not mounted",
                "chaos/src/conformance.rs:2: `two` is not mounted",
            ],
        );
    }

    #[test]
    fn no_suite_is_no_finding() {
        check_files(check, &[], &[]);
    }
}

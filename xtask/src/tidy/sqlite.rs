//! What would break the write lock without a sign: somebody besides SQLite who opens the mutex, a
//! record that is written in append mode, and two copies of SQLite in one process.

use super::source::Source;
use super::{Finding, Tree, numbered};

/// How the name of a mutex ends, and the one file that may spell it.
const SUFFIX: &str = ".mutex\"";
const SPELLED_IN: &str = "lease-sqlite/src/path.rs";

/// What gives a mutex's path in code.
const PATHS: [&str; 3] = ["mutex_path(", "paths.mutex", ".mutex\""];

/// What opens a file. A look at it (`stat`) is harmless.
const OPENS: [&str; 11] = [
    "File::open",
    "File::create",
    "OpenOptions",
    "fs::read",
    "fs::write",
    "fs::copy",
    "sys::open",
    "Gate::at",
    "rustix::fs::open",
    ".open(",
    "fs::rename",
];

/// How append mode is said.
const APPENDS: [&str; 3] = [".append(true)", "APPEND", "O_APPEND"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &tree.rust {
        // Tests do harm on purpose.
        let is_library = path.starts_with("lease-") && path.contains("/src/");
        if !is_library {
            continue;
        }
        let text = tree.text(path).unwrap_or_default();
        findings.extend(spelled(path, source, text));
        findings.extend(opened(path, source, text));
        findings.extend(appended(path, source));
    }
    for (path, text) in &tree.texts {
        if path.ends_with("Cargo.lock") {
            findings.extend(copies(path, text));
        }
    }
    findings
}

/// The lines before the tests of a file.
fn is_shipped(path: &str, source: &Source, line: usize) -> bool {
    source.test_code_from(path).is_none_or(|tests| line < tests)
}

/// A text in code that ends like a mutex's name, anywhere but in the one file.
fn spelled(path: &str, source: &Source, text: &str) -> Vec<Finding> {
    if path == SPELLED_IN {
        return Vec::new();
    }
    numbered(text)
        .filter(|(line, raw)| has_literal(source.code(*line), raw))
        .filter(|(line, _)| is_shipped(path, source, *line))
        .map(|(line, _)| {
            Finding::new(
                path,
                line,
                format!("the name of a mutex is made in {SPELLED_IN}"),
            )
        })
        .collect()
}

/// Whether the closing quote belongs to code and not to a comment.
fn has_literal(code: &str, raw: &str) -> bool {
    raw.match_indices(SUFFIX).any(|(start, _)| {
        let quote = start.saturating_add(SUFFIX.len()).saturating_sub(1);
        let before = raw.get(..quote).map_or(0, |before| before.chars().count());
        code.chars().nth(before) == Some('"')
    })
}

/// A statement in which a mutex's path meets a call that opens.
fn opened(path: &str, source: &Source, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut names, mut opens, mut begun) = (false, false, 1);
    for (line, raw) in numbered(text) {
        let code = source.code(line);
        if !is_shipped(path, source, line) {
            break;
        }
        names |= PATHS.iter().any(|word| code.contains(word)) || has_literal(code, raw);
        opens |= OPENS.iter().any(|word| code.contains(word));
        if names && opens {
            let what = "only SQLite opens a mutex: any other close of it drops the lock";
            findings.push(Finding::new(path, begun, what));
            (names, opens) = (false, false);
        }
        if code.trim_end().ends_with([';', '{', '}']) {
            (names, opens, begun) = (false, false, line.saturating_add(1));
        }
    }
    findings
}

/// In append mode the kernel ignores where a record is to be written.
fn appended(path: &str, source: &Source) -> Vec<Finding> {
    if !path.starts_with("lease-sqlite/") {
        return Vec::new();
    }
    source
        .numbered_code()
        .filter(|(line, code)| {
            is_shipped(path, source, *line) && APPENDS.iter().any(|word| code.contains(word))
        })
        .map(|(line, _)| Finding::new(path, line, "a record is never opened in append mode"))
        .collect()
}

/// Packages that bring an SQLite with them, compiled in or linked. A second one has a table of locks of
/// its own, and closes what the first one has locked.
fn copies(path: &str, text: &str) -> Option<Finding> {
    let name = |line: &str| {
        line.strip_prefix("name = \"")?
            .strip_suffix('"')
            .map(str::to_owned)
    };
    let found: Vec<(usize, String)> = numbered(text)
        .filter_map(|(line, text)| Some((line, name(text)?)))
        .filter(|(_, name)| name.contains("sqlite3") || name.contains("libsql"))
        .collect();
    let [_, (line, _), ..] = found.as_slice() else {
        return None;
    };
    let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
    let what = format!("more than one SQLite: {}", names.join(", "));
    Some(Finding::new(path, *line, what))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const FILE: &str = "lease-async/src/a.rs";
    const OPENED: &str = "only SQLite opens a mutex: any other close of it drops the lock";

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        check_files(check, &[(path, text)], expected);
    }

    // C6, S39
    #[test]
    fn nobody_but_sqlite_opens_a_mutex() {
        let found = format!("{FILE}:1: {OPENED}");
        check_one(FILE, "let a = File::open(lock.mutex_path())?;", &[&found]);
        check_one(
            FILE,
            "let a = File::options()\n    .open(\n        lock.mutex_path(),\n    );",
            &[&found],
        );
        check_one(FILE, "fs::read(&paths.mutex);", &[&found]);
        // A look is harmless, and so is what stands in a comment or a test.
        check_one(
            FILE,
            "fs::metadata(lock.mutex_path());\nFile::open(a);",
            &[],
        );
        check_one(FILE, "// File::open(lock.mutex_path())", &[]);
        let test = "#[cfg(test)]\nmod tests {\n    fn a() { File::open(lock.mutex_path()); }\n}";
        check_one(FILE, test, &[]);
        check_one(
            "lease-sqlite/tests/it/a.rs",
            "File::open(lock.mutex_path());",
            &[],
        );
    }

    // C6
    #[test]
    fn the_name_of_a_mutex_is_made_in_one_file() {
        let text = "let a = b.join(\"app.db.write-lock.mutex\");";
        let found = format!("{FILE}:1: the name of a mutex is made in {SPELLED_IN}");
        check_one(FILE, text, &[&found]);
        check_one(SPELLED_IN, text, &[]);
        check_one(FILE, "/// \"app.db.write-lock.mutex\"", &[]);
        let both = format!("{FILE}:1: {OPENED}");
        check_one(FILE, "File::open(\"a.mutex\");", &[&both, &found]);
    }

    // C19
    #[test]
    fn the_write_lock_appends_to_nothing() {
        let found =
            |line| format!("lease-sqlite/src/a.rs:{line}: a record is never opened in append mode");
        let text = "a.append(true);\nlet b = OFlags::APPEND;";
        check_one("lease-sqlite/src/a.rs", text, &[&found(1), &found(2)]);
        check_one("lease-sqlite/src/a.rs", "a.append(&mut b); // APPEND", &[]);
        check_one("chaos/src/a.rs", text, &[]);
    }

    // C8
    #[test]
    fn there_is_one_sqlite_in_a_graph() {
        let lock = |names: &[&str]| -> String {
            names
                .iter()
                .map(|name| format!("[[package]]\nname = \"{name}\"\n"))
                .collect()
        };
        check_one("Cargo.lock", &lock(&["libsqlite3-sys", "rusqlite"]), &[]);
        let found = "Cargo.lock:4: more than one SQLite: libsqlite3-sys, libsqlite3-sys";
        check_one(
            "Cargo.lock",
            &lock(&["libsqlite3-sys", "libsqlite3-sys"]),
            &[found],
        );
        let found = "bench/Cargo.lock:4: more than one SQLite: libsqlite3-sys, sqlite3-src";
        check_one(
            "bench/Cargo.lock",
            &lock(&["libsqlite3-sys", "sqlite3-src"]),
            &[found],
        );
    }
}

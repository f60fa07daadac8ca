//! The example: a notebook, its commands, and whom it names when it is refused.

use std::ffi::OsString;
use std::fs;
use std::io::{BufReader, Read, Write as _, pipe};
use std::thread::scope;
use std::time::Duration;

use crate::notes;
use crate::rig::{BOUND, Place, Writer};

/// Does one command within a time.
fn within(
    place: &Place,
    patience: Duration,
    words: &[&str],
    input: impl Read,
) -> Result<String, String> {
    let mut arguments = vec![place.database().into_os_string()];
    arguments.extend(words.iter().map(OsString::from));
    let mut output = Vec::new();
    match notes::run(&arguments, patience, BufReader::new(input), &mut output) {
        Ok(()) => Ok(String::from_utf8(output).unwrap()),
        Err(problem) => Err(problem.to_string()),
    }
}

/// Does one command that nobody is in the way of.
#[track_caller]
fn does(place: &Place, words: &[&str], input: &str) -> String {
    within(place, BOUND, words, input.as_bytes()).unwrap()
}

#[test]
fn a_notebook_is_written_read_and_exported() {
    let place = Place::new();
    assert_eq!(does(&place, &["list"], ""), "");
    assert_eq!(does(&place, &["add", "bread"], ""), "");
    let told = does(&place, &["import"], "milk\nsalt\n");
    assert_eq!(told, "has the lock\n2 notes\n");
    assert_eq!(does(&place, &["list"], ""), "bread\nmilk\nsalt\n");
    let file = place.directory.join("notes.txt");
    assert_eq!(does(&place, &["export", file.to_str().unwrap()], ""), "");
    assert_eq!(fs::read_to_string(file).unwrap(), "bread\nmilk\nsalt\n");
    let told = does(&place, &["who"], "");
    assert!(told.starts_with("free; last writer: process "), "{told}");
    assert!(told.ends_with(" (notebook: exports notes)\n"), "{told}");
}

#[test]
fn a_command_that_is_none_or_lacks_its_words_is_told_the_usage() {
    let place = Place::new();
    let refused = |words: &[&str]| within(&place, BOUND, words, &b""[..]).unwrap_err();
    let usage = "usage: notebook DATABASE add TEXT | import | list | export FILE | who";
    assert_eq!(
        refused(&["sing"]),
        format!("no such command: sing; {usage}")
    );
    for words in [&[][..], &["add"], &["add", "a", "b"], &["list", "all"]] {
        assert_eq!(refused(words), usage, "{words:?}");
    }
}

#[test]
fn who_is_in_the_way_of_a_notebook_is_named_and_nothing_is_written() {
    let place = Place::new();
    assert_eq!(does(&place, &["add", "bread"], ""), "");
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let named = format!(" is busy, held by process {} (child: obey)", other.pid());
    let told = does(&place, &["who"], "");
    assert!(told.contains(&named), "{told}");
    let file = place.directory.join("notes.txt");
    for words in [["add", "milk"], ["export", file.to_str().unwrap()]] {
        let refused = within(&place, Duration::from_millis(60), &words, &b""[..]);
        let refused = refused.unwrap_err();
        assert!(refused.contains(&format!("{named}; waited ")), "{refused}");
    }
    assert!(!file.exists());
    // Who reads waits for nobody.
    assert_eq!(does(&place, &["list"], ""), "bread\n");
    other.ends();
    let named = format!("process {} (child: obey)", other.pid());
    assert_eq!(
        does(&place, &["who"], ""),
        format!("free; last writer: {named}\n")
    );
}

#[test]
fn an_import_keeps_the_others_out_and_is_all_or_nothing() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    let (input, mut lines) = pipe().unwrap();
    let (mut told, output) = pipe().unwrap();
    scope(|scope| {
        let arguments = [place.database().into_os_string(), "import".into()];
        let import = scope.spawn(move || {
            notes::run(&arguments, BOUND, BufReader::new(input), output).map_err(|e| e.to_string())
        });
        let mut has = [0; "has the lock\n".len()];
        told.read_exact(&mut has).unwrap();
        let refused = other.does("acquire 0");
        assert!(refused.starts_with("busy Kernel("), "{refused}");
        // No text: the import ends in the middle.
        lines.write_all(b"milk\n\xff\xff\n").unwrap();
        assert!(import.join().unwrap().is_err());
    });
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(does(&place, &["list"], ""), "");
}

#[test]
fn an_export_makes_its_own_file_and_touches_no_other() {
    let place = Place::new();
    assert_eq!(does(&place, &["add", "bread"], ""), "");
    let export = |name: &str| {
        let file = place.directory.join(name);
        within(&place, BOUND, &["export", file.to_str().unwrap()], &b""[..])
    };
    let unfinished = |name: &str| place.directory.join(format!("{name}.unfinished"));
    // What is there may be somebody's work, or lead to the notebook itself.
    fs::write(unfinished("one.txt"), "mine").unwrap();
    std::os::unix::fs::symlink(place.database(), unfinished("two.txt")).unwrap();
    for name in ["one.txt", "two.txt"] {
        let refused = export(name).unwrap_err();
        assert!(refused.contains(".unfinished: "), "{refused}");
    }
    assert_eq!(fs::read_to_string(unfinished("one.txt")).unwrap(), "mine");
    assert_eq!(does(&place, &["list"], ""), "bread\n");
    // Nothing is left behind where it cannot be put in its place.
    fs::create_dir(place.directory.join("three.txt")).unwrap();
    assert!(export("three.txt").is_err());
    assert!(!unfinished("three.txt").exists());
    assert!(export("four.txt").is_ok());
    assert!(!unfinished("four.txt").exists());
}

#[test]
fn an_export_never_replaces_the_notebook_and_what_goes_wrong_is_said() {
    let place = Place::new();
    assert_eq!(does(&place, &["add", "bread"], ""), "");
    for file in [place.database(), place.record(), place.mutex()] {
        let words = ["export", file.to_str().unwrap()];
        let refused = within(&place, BOUND, &words, &b""[..]).unwrap_err();
        let expected = format!("{} belongs to the notebook", file.display());
        assert_eq!(refused, expected);
    }
    assert_eq!(does(&place, &["list"], ""), "bread\n");
    fs::write(place.record(), "no record").unwrap();
    let soon = Duration::from_millis(60);
    let refused = within(&place, soon, &["add", "milk"], &b""[..]).unwrap_err();
    assert!(
        refused.contains("its record is not recognised"),
        "{refused}"
    );
    fs::remove_file(place.record()).unwrap();
    fs::write(place.database(), "no database at all").unwrap();
    let failed = within(&place, soon, &["list"], &b""[..]).unwrap_err();
    assert!(failed.ends_with("file is not a database"), "{failed}");
}

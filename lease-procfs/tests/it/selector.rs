//! Selectors as text, and what counts as running a program.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use lease_core::Code;
use lease_procfs::select::{
    AncestorPart, Program, RESOLVER_VERSION, SelectError, Selector, SelectorError, SelectorReason,
};
use lease_procfs::{DescribeError, LabelError, Pid, PidError, StatError};
use proptest::prelude::*;

#[track_caller]
fn refuse<T: AsRef<[u8]> + ?Sized>(text: &T) -> SelectorError {
    let error = Selector::parse(text).unwrap_err();
    assert_eq!(error.code(), Code::InvalidHolder);
    error
}

fn program(name: &str) -> Program {
    Program::new(name).unwrap()
}

// B19
#[test]
fn a_selector_is_a_pid_or_an_ancestor_for_one_resolver() {
    assert_eq!(RESOLVER_VERSION, 1);
    let pid = Pid::new(4_242).unwrap();
    assert_eq!("4242".parse(), Ok(Selector::Pid(pid)));
    let codex = Selector::Ancestor(program("codex"));
    assert_eq!("ancestor:codex".parse(), Ok(codex.clone()));
    assert_eq!(codex.to_string(), "ancestor:\"codex\"");
    for text in [
        "pid:4242",
        "",
        "+5",
        "0x10",
        "Ancestor:codex",
        " 4242",
        "4242\n",
        "codex",
        "1e3",
    ] {
        let error = refuse(text);
        assert_eq!(
            (error.at, error.reason),
            (0, SelectorReason::Form),
            "{text}"
        );
    }
    assert_eq!(
        refuse("-5").reason,
        SelectorReason::Pid(PidError::NotPositive)
    );
    assert_eq!(refuse(b"\xff").reason, SelectorReason::Form);
}

// B20
#[test]
fn a_program_is_a_bare_file_name() {
    for (text, reason) in [
        ("ancestor:", SelectorReason::ProgramEmpty),
        ("ancestor:/usr/bin/codex", SelectorReason::Path),
        ("ancestor:bin/codex", SelectorReason::Path),
        ("ancestor:codex/", SelectorReason::Path),
        ("ancestor:/", SelectorReason::Path),
        ("ancestor:.", SelectorReason::Path),
        ("ancestor:..", SelectorReason::Path),
        ("ancestor:a\0b", SelectorReason::ProgramNul),
        (
            &format!("ancestor:{}", "x".repeat(256)),
            SelectorReason::ProgramTooLong { bytes: 256 },
        ),
    ] {
        let error = refuse(text);
        assert_eq!((error.at, error.reason), (9, reason), "{text}");
    }
    for name in [
        "x",
        "a b",
        "...",
        "-bash",
        "ancestor:x",
        "☃",
        &"x".repeat(255),
    ] {
        let selector = Selector::parse(&format!("ancestor:{name}"));
        assert_eq!(selector, Ok(Selector::Ancestor(program(name))));
    }
    let bytes = Selector::parse(b"ancestor:\xff\n)").unwrap();
    assert_eq!(bytes, Selector::Ancestor(Program::new(b"\xff\n)").unwrap()));
    assert_eq!(bytes.to_string(), r#"ancestor:"\xff\n)""#);
}

// B26
#[test]
fn a_pid_has_ascii_digits_and_fits_the_range_of_pids() {
    for text in ["\u{663}", "1\u{663}", "\u{ff11}", "007"] {
        assert_eq!(refuse(text).reason, SelectorReason::Form, "{text}");
    }
    for text in [
        "4194304",
        "2147483648",
        "4294967297",
        "18446744073709551617",
        &"9".repeat(400),
    ] {
        assert_eq!(
            refuse(text).reason,
            SelectorReason::Pid(PidError::TooLarge),
            "{text}"
        );
    }
    for text in ["0", "-0", "-1"] {
        assert_eq!(
            refuse(text).reason,
            SelectorReason::Pid(PidError::NotPositive),
            "{text}"
        );
    }
    let most = Pid::new(4_194_303).unwrap();
    assert_eq!(Selector::parse("4194303"), Ok(Selector::Pid(most)));
    assert_eq!(Selector::parse("4194303").unwrap().to_string(), "4194303");
}

// B22
#[test]
fn a_program_runs_by_the_base_name_of_argument_zero_or_of_the_executable() {
    let codex = program("codex");
    for (argument_zero, link) in [
        ("codex", "/bin/sh"),
        ("/opt/codex", "/usr/bin/node"),
        ("./codex", "/usr/bin/node"),
        ("x", "/opt/codex"),
        ("", "/opt/codex"),
        ("codex", ""),
    ] {
        assert!(
            codex.is_run_by(argument_zero.as_bytes(), link.as_bytes()),
            "{argument_zero} {link}"
        );
    }
    for (argument_zero, link) in [
        ("sh", "/bin/dash"),
        ("-codex", "/bin/dash"),
        ("codex ", "/opt/codex2"),
        ("codex/", "/opt/codex/node"),
        ("Codex", "/opt/xcodex"),
        ("codex: main", "/opt/codex.bin"),
        ("", ""),
    ] {
        assert!(
            !codex.is_run_by(argument_zero.as_bytes(), link.as_bytes()),
            "{argument_zero} {link}"
        );
    }
    let bytes = Program::new(b"\xff\xfe").unwrap();
    assert!(bytes.is_run_by(b"/x/\xff\xfe", b""));
    assert!(bytes.is_run_by(b"", b"\xff\xfe"));
}

// B27
#[test]
fn a_replaced_executable_is_still_the_program() {
    assert!(program("codex").is_run_by(b"x", b"/opt/codex (deleted)"));
    assert!(program("codex (deleted)").is_run_by(b"x", b"/opt/codex (deleted)"));
    assert!(!program("codex").is_run_by(b"/opt/codex (deleted)", b"/bin/sh"));
    for link in [
        "/opt/codex(deleted)",
        "/opt/codex (deleted) (deleted)",
        "/opt/codex (deleted)x",
    ] {
        assert!(!program("codex").is_run_by(b"x", link.as_bytes()), "{link}");
    }
}

#[test]
fn errors_say_what_is_wrong_and_repeat_nothing() {
    let mut said = String::new();
    for text in [
        "s3cret",
        "ancestor:",
        "ancestor:s3cret/x",
        "ancestor:s3cret\0",
        "0",
        "99999999",
        &format!("ancestor:{}", "s3cret".repeat(100)),
    ] {
        let error = refuse(text).to_string();
        assert!(!error.contains("s3cret"));
        writeln!(said, "{error}").unwrap();
    }
    let (pid, step) = (Pid::new(300).unwrap(), 1);
    let source = || io::Error::from(io::ErrorKind::PermissionDenied);
    let unreadable = |part| SelectError::Unreadable {
        pid,
        step,
        part,
        source: source(),
    };
    for error in [
        SelectError::Changed { pid, step },
        SelectError::Describe {
            source: DescribeError::NotRunning { pid },
        },
        SelectError::Label {
            source: LabelError::Empty { part: "run" },
        },
        SelectError::NoAncestor {
            program: program("codex"),
        },
        SelectError::Stat {
            pid,
            step,
            source: StatError::NoName,
        },
        unreadable(AncestorPart::Arguments),
        unreadable(AncestorPart::Executable),
        unreadable(AncestorPart::Pidfd),
        unreadable(AncestorPart::Stat),
    ] {
        assert_eq!(error.code(), Code::InvalidHolder);
        write!(said, "{error}").unwrap();
        if let Some(source) = error.source() {
            write!(said, " <- {source}").unwrap();
        }
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_selector_or_refused(
        head in prop::sample::select(vec!["", "ancestor:", "1"]),
        bytes in prop::collection::vec(any::<u8>(), 0..24),
    ) {
        let text = [head.as_bytes(), &bytes].concat();
        match Selector::parse(&text) {
            Ok(Selector::Pid(pid)) => prop_assert_eq!(pid.to_string().into_bytes(), text),
            Ok(Selector::Ancestor(program)) => prop_assert_eq!(program.as_bytes(), &text[9..]),
            Ok(_) => prop_assert!(false, "no other form"),
            Err(error) => prop_assert!(error.at <= text.len()),
        }
    }
}

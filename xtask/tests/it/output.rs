//! What becomes of the words of the program.

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_a_failure_with_words() {
    use std::fs::File;
    use std::process::Command;

    let full = File::options().write(true).open("/dev/full").unwrap();
    // It says what it does before it does it.
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["ci", "--no-tests"])
        .stdout(full)
        .output()
        .unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.starts_with("xtask: standard output: "), "{words}");
}

//! The program behind `cargo xtask chaos`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = chaos::real::role(&arguments) {
        return code;
    }
    ExitCode::from(3)
}

//! A notebook that many programs of one machine write: an SQLite database, its write lock, and who is in the way.
//!
//! ```console
//! $ cargo run -p lease-sqlite --example notebook -- /tmp/notes.db add "buy bread"
//! $ cargo run -p lease-sqlite --example notebook -- /tmp/notes.db import < long_list.txt &
//! $ cargo run -p lease-sqlite --example notebook -- /tmp/notes.db add "and milk"
//! notebook: write lock "/tmp/notes.db.write-lock" is busy, held by process 4711 (notebook: imports notes); waited 5.0 s
//! ```
//!
//! | command | does |
//! | --- | --- |
//! | `add TEXT` | writes one note, under the lock for as long as the statement runs |
//! | `import` | writes each line of its input, all or none: one transaction, one hold |
//! | `list` | reads; nobody who reads takes the lock |
//! | `export FILE` | writes every note to a file that has no transactions, under the same lock |
//! | `who` | says who has the lock, or who had it last, if no other command has tidied up since that one ended |
//!
//! With the feature `async`, `export` waits as a task does: its thread goes on and says each second that it still waits.

#[cfg(target_os = "linux")]
mod notes;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::io::Write as _;

    let patience = std::time::Duration::from_secs(5);
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (input, output) = (std::io::stdin().lock(), std::io::stdout());
    match notes::run(&arguments, patience, input, output) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(problem) => {
            // Where nobody listens, the exit code says it.
            let _told = writeln!(std::io::stderr(), "notebook: {problem}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}

//! Counts system calls by running a work again under strace.

use std::path::Path;
use std::process::Command;

/// Returns the system calls of one unit of a named work, or why they could not be counted.
///
/// Two runs that differ in the number of units: what the program does besides falls out.
pub(crate) fn calls(work: &str, units: u64) -> Result<f64, String> {
    let (few, many) = (counted(work, units)?, counted(work, units * 2)?);
    Ok((many - few) / units as f64)
}

fn counted(work: &str, units: u64) -> Result<f64, String> {
    let summary = std::env::temp_dir().join(format!("lease-bench-strace-{}", std::process::id()));
    let own = std::env::current_exe().map_err(|cause| cause.to_string())?;
    let traced = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(&summary)
        .arg(own)
        .args(["--work", work, "--units", &units.to_string()])
        .output()
        .map_err(|cause| format!("strace: {cause}"))?;
    let text = read_and_remove(&summary);
    if !traced.status.success() {
        let words = String::from_utf8_lossy(&traced.stderr);
        return Err(words.lines().last().unwrap_or("strace failed").to_owned());
    }
    total(&text?).ok_or_else(|| "strace printed no total".to_owned())
}

fn read_and_remove(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|cause| format!("strace: {cause}"));
    let _removed = std::fs::remove_file(file);
    text
}

/// share, seconds, microseconds a call, calls, errors or nothing, `total`
fn total(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.ends_with(" total"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn the_total_is_the_fourth_number_of_the_last_line() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000117           1       105         4 total\n";
        assert_eq!(total(text), Some(105.0));
        assert_eq!(total("nothing"), None);
    }
}

//! Counts system calls by running a work again under strace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each call was made.
type Counts = BTreeMap<String, f64>;

/// Returns the system calls of one unit of a named work, or why they could not be counted.
pub(crate) fn calls(work: &str, units: u64) -> Result<f64, String> {
    calls_by_name(work, units).map(|calls| calls.values().sum())
}

/// The same for each call that is made at all.
///
/// Two runs that differ in the number of units: what the program does besides falls out.
pub(crate) fn calls_by_name(work: &str, units: u64) -> Result<Counts, String> {
    let (few, many) = (counted(work, units)?, counted(work, units * 2)?);
    let each = many.into_iter().map(|(name, many)| {
        let more = many - few.get(&name).copied().unwrap_or(0.0);
        (name, more / units as f64)
    });
    Ok(each.filter(|(_, calls)| *calls != 0.0).collect())
}

fn counted(work: &str, units: u64) -> Result<Counts, String> {
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
    let counts = counts(&text?);
    if counts.is_empty() {
        return Err("strace counted nothing".to_owned());
    }
    Ok(counts)
}

fn read_and_remove(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|cause| format!("strace: {cause}"));
    let _removed = std::fs::remove_file(file);
    text
}

/// A line: share, seconds, microseconds a call, calls, errors or nothing, name. The last one is the
/// total.
fn counts(text: &str) -> Counts {
    let count = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let count = words.get(3)?.parse().ok()?;
        Some(((*words.last()?).to_owned(), count))
    };
    let all = text.lines().filter_map(count);
    all.filter(|(name, _)| name != "total").collect()
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn the_count_is_the_fourth_word_of_a_line_and_the_total_is_no_call() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                     60.00    0.000070           1        70           fcntl\n\
                     40.00    0.000047           1        35         4 stat\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000117           1       105         4 total\n";
        let found: Vec<_> = counts(text).into_iter().collect();
        assert_eq!(
            found,
            [("fcntl".to_owned(), 70.0), ("stat".to_owned(), 35.0)]
        );
        assert!(counts("nothing").is_empty());
    }
}

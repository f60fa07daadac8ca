//! On which processors the processes of one measurement run. Whoever is woken on the processor of the
//! one who wakes it comes much sooner than on another one that sleeps, and the scheduler chooses: so
//! ours and its floor are compared at the same places, too.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever the scheduler puts them.
    Any,
    /// All on one processor.
    One,
    /// Each on another one than the one before, by turns on two.
    Two,
}

impl Place {
    /// What a row says of it.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::One => ", all on one processor",
            Self::Two => ", on two processors in turns",
        }
    }

    /// The number of a processor for one of them, or `any`. `None` if there are too few.
    pub(crate) fn of(self, which: usize) -> Option<String> {
        let mut processors = (0..CpuSet::MAX_CPU).filter(|number| allowed().is_set(*number));
        let number = match self {
            Self::Any => return Some("any".to_owned()),
            Self::One => processors.next(),
            Self::Two => {
                let pair = [processors.next()?, processors.next()?];
                Some(pair[which % 2])
            }
        };
        number.map(|number| number.to_string())
    }
}

fn allowed() -> CpuSet {
    sched_getaffinity(None).expect("this thread runs somewhere")
}

/// Keeps this process on a processor, from now on; `None` if that is the number of none.
pub(crate) fn keep_to(processor: &str) -> Option<()> {
    if processor == "any" {
        return Some(());
    }
    let number: usize = processor.parse().ok()?;
    if number >= CpuSet::MAX_CPU {
        return None;
    }
    let mut only = CpuSet::new();
    only.set(number);
    sched_setaffinity(None, &only).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_kept_to_a_processor_stays_there() {
        let first = Place::One.of(7).unwrap();
        std::thread::spawn(move || {
            keep_to(&first).unwrap();
            assert_eq!(Place::One.of(0), Some(first));
            assert_eq!((allowed().count(), Place::Two.of(0)), (1, None));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_is_no_processor_is_refused() {
        for word in ["", "x", "-1", "1023", "99999999999"] {
            assert_eq!(keep_to(word), None, "{word}");
        }
        assert_eq!(keep_to("any"), Some(()));
    }
}

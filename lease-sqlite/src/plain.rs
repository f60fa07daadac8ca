//! A record exactly as this crate writes it, read without the means for any other.
//!
//! Most records are of this crate, and to read one is a large part of opening a lock. What is in any way different,
//! also by a single blank or escaped character, is left to the reader of JSON, which would say the same of what is read here.

use lease_procfs::Pid;

use crate::limits::RECORD_BYTES;
use crate::record::{self, CHECK, Content, LastWriter};

/// More digits may be no number of 64 bits.
const DIGITS: usize = 18;

/// What fills a record up.
const BLANKS: [u8; RECORD_BYTES] = [b' '; RECORD_BYTES];

/// What such a record says: whom it names, unless its sum does not fit. `None` if it is not one.
pub(crate) fn read(bytes: &[u8]) -> Option<Content> {
    let mut rest = Rest(bytes);
    rest.skip(record::START)?;
    let pid = Pid::new(rest.number()?).ok()?;
    rest.skip(b",\"thread_id\":")?;
    let thread = Some(rest.number()?);
    let token = Some(rest.text(b",\"token\":\"")?.to_owned());
    rest.skip(b",\"created_at_ms\":")?;
    let acquired_at_ms = Some(rest.number()?);
    rest.skip(b",\"acquiredAt\":")?;
    rest.number()?;
    let role = Some(rest.text(b",\"role\":\"")?.to_owned());
    let argv0 = Some(rest.text(b",\"argv0\":\"")?.to_owned());
    let purpose = Some(rest.text(b",\"purpose\":\"")?.to_owned());
    let label = Some(rest.text(b",\"label\":\"")?.to_owned());
    let identity = if rest.0.starts_with(CHECK) {
        None
    } else {
        rest.text(b",\"identity\":\"")?.parse().ok()
    };
    let summed = bytes.len().checked_sub(rest.0.len())?;
    let found = rest.sum()?;
    (BLANKS.get(..rest.0.len()) == Some(rest.0)).then_some(())?;
    let is_whole = found == record::sum(bytes.get(..summed)?);
    let writer = LastWriter {
        pid,
        thread,
        token,
        acquired_at_ms,
        role,
        argv0,
        purpose,
        label,
        identity,
    };
    Some(Content::Current(is_whole.then_some(writer)))
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip(&mut self, what: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(what)?;
        Some(())
    }

    /// Takes as many bytes.
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A whole number, as JSON has it.
    fn number(&mut self) -> Option<i64> {
        let is_negative = self.skip(b"-").is_some();
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let digits = self.take(count)?;
        let is_canonical = count == 1 || digits.first() != Some(&b'0');
        if count == 0 || count > DIGITS || !is_canonical || digits == b"0" && is_negative {
            return None;
        }
        let number = digits.iter().fold(0_i64, |number, digit| {
            let digit = i64::from(digit.saturating_sub(b'0'));
            number.saturating_mul(10).saturating_add(digit)
        });
        Some(if is_negative { -number } else { number })
    }

    /// A text behind its key, in which nothing is escaped.
    fn text(&mut self, key: &[u8]) -> Option<&'a str> {
        self.skip(key)?;
        // The first one that may not stand in it is its end, or it is left to others.
        let text = self.take(self.0.iter().position(record::is_escaped)?)?;
        self.skip(b"\"")?;
        str::from_utf8(text).ok()
    }

    /// The sum, and the end of the object.
    fn sum(&mut self) -> Option<u64> {
        self.skip(CHECK)?;
        let sum = self.take(16)?.iter().try_fold(0_u64, |sum, digit| {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            Some(sum << 4 | u64::from(digit))
        })?;
        self.skip(b"\"}")?;
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::limits::RECORD_BYTES;
    use crate::record::{Content, LastWriter, Signature, by_json, render};
    use lease_procfs::Pid;

    fn rendered(
        pid: i64,
        thread: u64,
        at_ms: i64,
        texts: [&str; 5],
        identity: Option<&str>,
    ) -> Vec<u8> {
        let [token, role, argv0, purpose, label] = texts;
        let mut buffer = Vec::new();
        let signature = Signature {
            pid: Pid::new(pid).unwrap(),
            thread,
            token,
            acquired_at_ms: at_ms,
            role,
            argv0,
            purpose,
            label,
            identity,
        };
        render(&signature, &mut buffer);
        buffer
    }

    #[track_caller]
    fn written(bytes: &[u8]) -> LastWriter {
        match read(bytes) {
            Some(Content::Current(Some(writer))) => writer,
            other => panic!("{other:?}"),
        }
    }

    /// A description of this process, which every reader understands.
    fn identity() -> String {
        crate::own::identity().unwrap().to_string()
    }

    #[test]
    fn what_this_crate_writes_is_read_and_whom_it_names() {
        let texts = ["1:2:ab:3", "rôle", "program", "writes", ""];
        let own = identity();
        for identity in [None, Some(&*own)] {
            let bytes = rendered(4_194_303, 7, 1_700_000_000_000, texts, identity);
            let writer = written(&bytes);
            assert_eq!(writer.pid.get(), 4_194_303);
            assert_eq!(writer.identity, identity.map(|own| own.parse().unwrap()));
            assert_eq!(writer.thread, Some(7));
            assert_eq!(writer.acquired_at_ms, Some(1_700_000_000_000));
            let told = [
                &writer.token,
                &writer.role,
                &writer.argv0,
                &writer.purpose,
                &writer.label,
            ];
            assert_eq!(told.map(|text| text.as_deref().unwrap()), texts);
            assert_eq!(by_json(&bytes, 1_024), Content::Current(Some(writer)));
        }
        let negative = rendered(1, 0, -5, texts, None);
        let writer = written(&negative);
        assert_eq!((writer.thread, writer.acquired_at_ms), (Some(0), Some(-5)));
    }

    #[test]
    fn a_sum_that_does_not_fit_names_nobody() {
        let bytes = rendered(9, 1, 5, ["t", "r", "a", "p", "l"], None);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let other = text.replacen("\"role\":\"r\"", "\"role\":\"s\"", 1);
        assert_eq!(read(other.as_bytes()), Some(Content::Current(None)));
        assert_eq!(by_json(other.as_bytes(), 1_024), Content::Current(None));
        let end = bytes.windows(2).rposition(|pair| pair == b"\"}").unwrap();
        let mut bytes = bytes;
        bytes[end - 1] = if bytes[end - 1] == b'0' { b'1' } else { b'0' };
        assert_eq!(read(&bytes), Some(Content::Current(None)));
        assert_eq!(by_json(&bytes, 1_024), Content::Current(None));
    }

    #[test]
    fn whatever_differs_is_left_to_others() {
        let bytes = rendered(9, 1, 5, ["t", "r", "a", "p", "l"], None);
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in [
            ("{\"", "{ \""),
            (":2,", ":2.0,"),
            ("\"pid\":9", "\"pid\":09"),
            ("\"pid\":9", "\"pid\":0"),
            ("\"pid\":9", "\"pid\":9e0"),
            ("\"thread_id\":1", "\"thread_id\":-0"),
            ("\"thread_id\":1", "\"thread_id\":12345678901234567890"),
            ("\"role\":\"r\"", "\"role\":\"\\u0072\""),
            ("\"role\":\"r\"", "\"role\":\"\u{1}\""),
            ("\"role\":\"r\"", "\"role\":null"),
            ("\"label\":\"l\"", "\"label\":\"l\",\"more\":1"),
            ("\"label\":\"l\"", "\"argv0\":\"l\""),
            ("\"} ", "\"}\n"),
            ("\"} ", "\"}x"),
            ("\"check\"", "\"chec\""),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{from}");
            assert_eq!(read(other.as_bytes()), None, "{to}");
        }
        assert_eq!(read(&text.as_bytes()[..100]), None);
        assert_eq!(read(b""), None);
        let mut bytes = text.into_bytes();
        let at = bytes
            .windows(9)
            .position(|part| part == b"\"role\":\"r")
            .unwrap();
        bytes[at + 8] = 0xff;
        assert_eq!(read(&bytes), None);
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_reader_of_json_says(
            pid in 1_i64..=4_194_304,
            thread: u64,
            at_ms: i64,
            texts in proptest::array::uniform5(".{0,40}|[ -~]{0,40}"),
            has_identity: bool,
            at in 0..RECORD_BYTES,
            byte in prop_oneof![any::<u8>(), proptest::sample::select(b"\"\\{}:,0123456789abcdef -+.eE".to_vec())],
            cut in prop_oneof![Just(RECORD_BYTES), 0..RECORD_BYTES],
        ) {
            let texts = texts.each_ref().map(|text| &**text);
            let own = identity();
            let mut bytes = rendered(pid, thread, at_ms, texts, has_identity.then_some(&*own));
            let agrees = |bytes: &[u8]| {
                let size = bytes.len().try_into().unwrap();
                read(bytes).is_none_or(|found| by_json(bytes, size) == found)
            };
            prop_assert!(agrees(&bytes));
            bytes.truncate(cut);
            prop_assert!(agrees(&bytes));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            prop_assert!(agrees(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

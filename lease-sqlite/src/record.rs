//! The record: what a writer says of itself, and what a file at the record's path means. Pure.

use std::collections::BTreeSet;
use std::fmt;

use lease_procfs::{Pid, ProcessIdentity};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits::{PURPOSE_CHARACTERS, RECORD_BYTES, RECORD_READ_BYTES};
use crate::plain;

/// The protocol that is written.
const PROTOCOL: u32 = 2;

/// The role of who says none.
pub(crate) const NO_ROLE: &str = "unknown";

/// What a record of ours begins with.
pub(crate) const START: &[u8] = b"{\"protocol\":2,\"pid\":";

/// What goes before the sum of everything ahead of it.
pub(crate) const CHECK: &[u8] = b",\"check\":\"";

/// Who wrote a record: the last writer, not necessarily somebody who writes now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastWriter {
    /// Its number, in its own pid namespace.
    pub pid: Pid,
    /// The lane or thread of it.
    pub thread: Option<i64>,
    /// Unique for each hold.
    pub token: Option<String>,
    /// When it got the lock, in milliseconds since 1970 by its own wall clock.
    pub acquired_at_ms: Option<i64>,
    /// What it does in general.
    pub role: Option<String>,
    /// Its program.
    pub argv0: Option<String>,
    /// What it does now.
    pub purpose: Option<String>,
    /// What it calls this hold.
    pub label: Option<String>,
    /// Which process it was, where it said so in full.
    pub identity: Option<ProcessIdentity>,
}

/// Its number, and what it calls itself, or else its program: `process 4711 (indexer: imports notes)`.
impl fmt::Display for LastWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        let role = self.role.as_ref().filter(|role| *role != NO_ROLE);
        let texts = [role.or(self.argv0.as_ref()), self.purpose.as_ref()];
        let mut before = " (";
        for text in texts.into_iter().flatten().filter(|text| !text.is_empty()) {
            // Whoever can write the file can write anything into it.
            write!(f, "{before}{}", text.escape_debug())?;
            before = ": ";
        }
        f.write_str(if before == " (" { "" } else { ")" })
    }
}

/// What a file at the record's path is, by its size and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A record of the present protocol; also an empty or a torn one, which names nobody.
    Current(Option<LastWriter>),
    /// A claim of the earlier protocol.
    Legacy(LastWriter),
    /// No record, or one that nobody should guess about.
    Unrecognised,
}

/// Says what the bytes of a regular file at the record's path are. `size` is that of the whole file.
pub(crate) fn classify(bytes: &[u8], size: u64) -> Content {
    if size == 0 {
        return Content::Current(None);
    }
    if bytes.len() >= RECORD_READ_BYTES {
        return Content::Unrecognised;
    }
    plain::read(bytes).unwrap_or_else(|| by_json(bytes, size))
}

/// Says the same of whatever may be a record, by all of its JSON.
pub(crate) fn by_json(bytes: &[u8], size: u64) -> Content {
    let record_size = u64::try_from(RECORD_BYTES).unwrap_or(u64::MAX);
    let value = match parse(bytes) {
        Ok(value) => value,
        // A writer of ours is in the middle of it, or died there.
        Err(Unparsed::NotJson) if size == record_size => return Content::Current(None),
        // The start of one and the end of another, as a machine leaves it that lost its power meanwhile.
        Err(Unparsed::Ambiguous) if size == record_size && is_torn(bytes) => {
            return Content::Current(None);
        }
        Err(Unparsed::NotJson | Unparsed::Beyond | Unparsed::Ambiguous) => {
            return Content::Unrecognised;
        }
    };
    let Value::Object(fields) = value else {
        return Content::Unrecognised;
    };
    let protocol = fields.get("protocol").and_then(Value::as_f64);
    if protocol == Some(f64::from(PROTOCOL)) {
        let is_whole = sum_fits(bytes);
        return Content::Current(writer(&fields).filter(|_| is_whole));
    }
    let is_earlier = match fields.get("protocol") {
        None | Some(Value::Null) => true,
        Some(_) => protocol == Some(1.0),
    };
    match writer(&fields) {
        Some(writer) if is_earlier => Content::Legacy(writer),
        Some(_) | None => Content::Unrecognised,
    }
}

/// Returns whom a record names. Never fails: what cannot be read names nobody.
pub(crate) fn named(bytes: &[u8]) -> Option<LastWriter> {
    match classify(bytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX)) {
        Content::Current(writer) => writer,
        Content::Legacy(writer) => Some(writer),
        Content::Unrecognised => None,
    }
}

fn writer(fields: &Map<String, Value>) -> Option<LastWriter> {
    let text = |key: &str| fields.get(key)?.as_str().map(str::to_owned);
    let whole = |key: &str| fields.get(key).and_then(Value::as_number).and_then(whole);
    Some(LastWriter {
        pid: Pid::new(whole("pid")?).ok()?,
        thread: whole("thread_id"),
        token: text("token"),
        acquired_at_ms: whole("created_at_ms").or_else(|| whole("acquiredAt")),
        role: text("role"),
        argv0: text("argv0"),
        purpose: text("purpose"),
        label: text("label"),
        identity: text("identity").and_then(|identity| identity.parse().ok()),
    })
}

/// A number as JavaScript knows it: `700.0` is 700.
fn whole(number: &Number) -> Option<i64> {
    /// Above this not every whole number has a double of its own.
    const MOST: f64 = 9_007_199_254_740_991.0;
    number.as_i64().or_else(|| {
        let real = number.as_f64()?;
        (real.fract() == 0.0 && real.abs() <= MOST).then(|| format!("{real:.0}").parse().ok())?
    })
}

/// Why bytes are no JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unparsed {
    NotJson,
    /// It is JSON, and deeper or larger than is read here. Whoever wrote it knows what it says.
    Beyond,
    /// Two keys of one name: two readers could see two different things.
    Ambiguous,
}

fn parse(bytes: &[u8]) -> Result<Value, Unparsed> {
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(strict) => Ok(strict.0),
        Err(error) if error.is_data() => Err(Unparsed::Ambiguous),
        Err(_) => match mended(bytes) {
            Some(mended) => parse(&mended),
            None if is_json(bytes) => Err(Unparsed::Beyond),
            None => Err(Unparsed::NotJson),
        },
    }
}

/// Tells whether it is JSON by its form, whatever its depth and its numbers.
fn is_json(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Puts the replacement character for each half of a character that has no other half. `None` if there is
/// none.
///
/// Languages whose texts are 16 bits wide cut characters in half, and write the half by its number, which is
/// JSON.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut mended, mut has_half) = (Vec::with_capacity(bytes.len()), false);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (count, is_half) = match unit(rest) {
            Some(0xd800..=0xdbff) => match rest.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => (12, false),
                Some(_) | None => (6, true),
            },
            Some(0xdc00..=0xdfff) => (6, true),
            Some(_) => (6, false),
            // What is escaped is no escape itself.
            None if rest.starts_with(b"\\") => (2, false),
            None => (1, false),
        };
        let (taken, left) = rest.split_at(count.min(rest.len()));
        mended.extend_from_slice(if is_half { b"\\ufffd" } else { taken });
        has_half |= is_half;
        rest = left;
    }
    has_half.then_some(mended)
}

/// Reads 16 bits that are written by their number, where that is what comes next.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = str::from_utf8(digits).ok().filter(|_| are_digits)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Any JSON value in which no object has a key twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value without repeated keys")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut keys = BTreeSet::new();
        let mut fields = Map::new();
        while let Some((key, Strict(value))) = map.next_entry::<String, Strict>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom("a key stands twice"));
            }
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

/// What a writer says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Signature<'a> {
    pub(crate) pid: Pid,
    pub(crate) thread: u64,
    pub(crate) token: &'a str,
    pub(crate) acquired_at_ms: i64,
    pub(crate) role: &'a str,
    pub(crate) argv0: &'a str,
    pub(crate) purpose: &'a str,
    pub(crate) label: &'a str,
    pub(crate) identity: Option<&'a str>,
}

/// Renders a record of exactly [`RECORD_BYTES`] bytes into a buffer that is kept between holds.
pub(crate) fn render(signature: &Signature<'_>, buffer: &mut Vec<u8>) {
    let purpose = first_characters(signature.purpose, PURPOSE_CHARACTERS);
    let texts = [signature.label, signature.argv0, signature.role, purpose];
    render_texts(signature, texts, buffer);
    let over = buffer.len().saturating_sub(RECORD_BYTES);
    if over > 0 {
        render_texts(signature, fit(texts, over), buffer);
    }
    buffer.resize(RECORD_BYTES, b' ');
}

/// Renders a record with other texts: label, argv0, role and purpose.
fn render_texts(signature: &Signature<'_>, texts: [&str; 4], buffer: &mut Vec<u8>) {
    let [label, argv0, role, purpose] = texts;
    let signature = Signature {
        label,
        argv0,
        role,
        purpose,
        ..signature.clone()
    };
    buffer.clear();
    render_whole(&signature, buffer);
}

fn render_whole(signature: &Signature<'_>, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(START);
    out.extend_from_slice(digits.format(signature.pid.get()).as_bytes());
    out.extend_from_slice(b",\"thread_id\":");
    out.extend_from_slice(
        digits
            .format(signature.thread.min(i64::MAX.unsigned_abs()))
            .as_bytes(),
    );
    text(b",\"token\":\"", signature.token, out);
    let acquired_at_ms = digits.format(signature.acquired_at_ms);
    for key in [&b",\"created_at_ms\":"[..], b",\"acquiredAt\":"] {
        out.extend_from_slice(key);
        out.extend_from_slice(acquired_at_ms.as_bytes());
    }
    text(b",\"role\":\"", signature.role, out);
    text(b",\"argv0\":\"", signature.argv0, out);
    text(b",\"purpose\":\"", signature.purpose, out);
    text(b",\"label\":\"", signature.label, out);
    if let Some(identity) = signature.identity {
        text(b",\"identity\":\"", identity, out);
    }
    let sum = sum(out);
    out.extend_from_slice(CHECK);
    let digits = std::array::from_fn::<u8, 16, _>(|place| {
        let digit = sum >> (60_usize.saturating_sub(place * 4)) & 0xf;
        let digit = HEXADECIMAL.get(usize::try_from(digit).unwrap_or(0));
        digit.copied().unwrap_or(b'0')
    });
    out.extend_from_slice(&digits);
    out.extend_from_slice(b"\"}");
}

const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// Adds a text behind its key.
fn text(key: &[u8], text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    let bytes = text.as_bytes();
    // Hardly any text has anything to escape. It is looked at to its end, as that is done in large steps.
    if bytes.iter().fold(false, |has, byte| has | is_escaped(byte)) {
        for character in text.chars() {
            escape(character, &mut |bytes| out.extend_from_slice(bytes));
        }
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(b'"');
}

pub(crate) const fn is_escaped(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1f)
}

/// Gives the bytes of one character inside a JSON text.
fn escape(character: char, out: &mut dyn FnMut(&[u8])) {
    match character {
        '"' => out(b"\\\""),
        '\\' => out(b"\\\\"),
        '\0'..='\u{1f}' => {
            let code = u32::from(character);
            let digit = |shift: u32| {
                let place = usize::try_from(code >> shift & 0xf).unwrap_or(0);
                HEXADECIMAL.get(place).copied().unwrap_or(b'0')
            };
            out(&[b'\\', b'u', b'0', b'0', digit(4), digit(0)]);
        }
        _ => out(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn escaped_bytes(text: &str) -> usize {
    let mut total = 0_usize;
    for character in text.chars() {
        escape(character, &mut |bytes| {
            total = total.saturating_add(bytes.len());
        });
    }
    total
}

/// Shortens texts, the first ones first, until they take at least `over` fewer bytes of JSON.
fn fit(texts: [&str; 4], mut over: usize) -> [&str; 4] {
    let mut fitted = texts;
    for text in &mut fitted {
        if over == 0 {
            break;
        }
        let size = escaped_bytes(text);
        *text = first_bytes(text, size.saturating_sub(over));
        over = over.saturating_sub(size.saturating_sub(escaped_bytes(text)));
    }
    fitted
}

/// Returns as many whole characters as fit into `most` bytes of JSON.
fn first_bytes(text: &str, most: usize) -> &str {
    let mut total = 0_usize;
    let end = text.char_indices().find_map(|(at, character)| {
        escape(character, &mut |bytes| {
            total = total.saturating_add(bytes.len());
        });
        (total > most).then_some(at)
    });
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

pub(crate) fn first_characters(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most).map(|(at, _)| at);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Tells whether the sum in a record fits; a record of others has none.
fn sum_fits(bytes: &[u8]) -> bool {
    let Some(at) = bytes
        .windows(CHECK.len())
        .rposition(|window| window == CHECK)
    else {
        return true;
    };
    let (before, rest) = bytes.split_at(at);
    let digits = rest.get(CHECK.len()..).and_then(|rest| rest.get(..16));
    let found = digits
        .and_then(|digits| str::from_utf8(digits).ok())
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    found == Some(sum(before))
}

/// Tells whether one of us wrote the start of a record, and the sum at its end is of another one.
fn is_torn(bytes: &[u8]) -> bool {
    bytes.starts_with(START) && !sum_fits(bytes)
}

/// FNV-1a: against accidents, not against people.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(feature = "test-util")]
pub mod testing {
    //! The parser and the formatter as tests call them.

    use lease_procfs::Pid;

    use super::{Content, LastWriter, Signature};
    use crate::limits::RECORD_BYTES;

    /// Names the class of what lies at a record's path.
    #[must_use]
    pub fn class_of(bytes: &[u8], size: u64) -> &'static str {
        match super::classify(bytes, size) {
            Content::Current(Some(_)) => "current",
            Content::Current(None) => "current, names nobody",
            Content::Legacy(_) => "legacy",
            Content::Unrecognised => "unrecognised",
        }
    }

    /// Returns whom a record names.
    #[must_use]
    pub fn named(bytes: &[u8]) -> Option<LastWriter> {
        super::named(bytes)
    }

    /// Renders what a writer would write. The texts are label, program, role and purpose.
    #[must_use]
    pub fn rendered(
        pid: Pid,
        token: &str,
        acquired_at_ms: i64,
        texts: [&str; 4],
        identity: Option<&str>,
    ) -> Vec<u8> {
        let [label, argv0, role, purpose] = texts;
        let mut buffer = Vec::with_capacity(RECORD_BYTES);
        super::render(
            &Signature {
                pid,
                thread: 1,
                token,
                acquired_at_ms,
                role,
                argv0,
                purpose,
                label,
                identity,
            },
            &mut buffer,
        );
        buffer
    }
}

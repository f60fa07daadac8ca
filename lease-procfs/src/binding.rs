//! Runtime bindings: the typed kind among the texts that say that something outside uses a place.
//!
//! `runtime:process-v1:` and one exact JSON object behind it. The shape is fixed and two objects
//! deep, so the parser follows it, never recurses and refuses all else where it begins to differ.
//! It is our own because a general one would hide what has to be refused: a repeated key, a number
//! with a fraction, and where either stands.

use core::fmt;
use core::fmt::Write as _;
use std::borrow::Cow;

use lease_core::{Code, LeaseId};

use crate::holder::{LabelError, ProcessHolder, check_client, check_label};
use crate::id::{BootId, BootIdError, StartTicks};
use crate::limits::BINDING_BYTES;

/// What a runtime binding begins with; any other text is not one.
pub const PREFIX: &str = "runtime:process-v1:";

/// The largest process number that a binding may hold: what fits the system's type.
const PID_MOST: u64 = 0x7fff_ffff;

/// A process that uses a place, under the labels and the lease it was admitted by.
///
/// It is a claim of whoever wrote it: the process is not looked at, and its number may be one that
/// no kernel gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeBinding {
    kind: BindingKind,
    lease: Option<LeaseId>,
    named: Named,
}

/// The holder inside a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    pid: i32,
    boot_id: BootId,
    start_ticks: StartTicks,
    client: Box<str>,
    session: Option<Box<str>>,
    run: Option<Box<str>>,
}

/// Makes the kinds and their texts from one table.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a bound process is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum BindingKind {
            $($(#[$doc])* $name,)*
        }

        impl BindingKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the stable text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// A program that works on its own.
    Agent = "agent",
    /// Runs in the background.
    Background = "background",
    /// A command somebody gave.
    Command = "command",
    /// Shows the work.
    Preview = "preview",
    /// A run of tests.
    Test = "test",
}

/// Why a runtime binding is malformed.
///
/// State: nothing was changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {reason}")]
#[non_exhaustive]
pub struct BindingError {
    /// Where in the text, prefix included, the wrong part begins.
    pub at: usize,
    /// What is wrong with it.
    pub reason: BindingReason,
}

/// What is wrong with a part of a runtime binding. Nothing of the text is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingReason {
    /// The boot id is wrong.
    #[error("{0}")]
    BootId(BootIdError),
    /// A text has a control character, which JSON wants escaped.
    #[error("a control character stands in a text")]
    ControlCharacter,
    /// A backslash with something behind it that JSON does not know, or half a surrogate pair.
    #[error("an escape is not one of JSON, or stands for no character")]
    Escape,
    /// Something else should stand here.
    #[error("{what} should stand here")]
    Expected {
        /// What.
        what: &'static str,
    },
    /// The kind is none of the five.
    #[error("kind is none of agent, background, command, preview and test")]
    Kind,
    /// A label of the holder is wrong.
    #[error("{0}")]
    Label(LabelError),
    /// The lease id is not a UUID in its canonical form.
    #[error("lease id is not a UUID in its canonical form")]
    LeaseId,
    /// A key is missing in the object that ends here.
    #[error("key {key} is missing")]
    MissingKey {
        /// Which.
        key: &'static str,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// A number is below 1 or above the most there can be.
    #[error("{key} is out of range")]
    OutOfRange {
        /// The key it belongs to.
        key: &'static str,
    },
    /// A key appears twice, equal value or not.
    #[error("key {key} is repeated")]
    RepeatedKey {
        /// Which.
        key: &'static str,
    },
    /// The text is longer than [`BINDING_BYTES`].
    #[error("binding has {bytes} bytes, the most is {BINDING_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Something stands behind the object.
    #[error("nothing more should stand here")]
    Trailing,
    /// The object has no such key.
    #[error("this object has no such key")]
    UnknownKey,
}

impl BindingError {
    /// Returns the stable code: always [`Code::InvalidRuntimeBinding`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidRuntimeBinding
    }
}

/// Why a list of bindings cannot be judged: one of them is malformed.
///
/// State: nothing was changed. Retry: after that binding is repaired or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("binding {index} of the list is malformed")]
#[non_exhaustive]
pub struct BindingListError {
    /// Its place in the list, from 0.
    pub index: usize,
    /// What is wrong with it.
    #[source]
    pub error: BindingError,
}

impl BindingListError {
    /// Returns the stable code: always [`Code::InvalidRuntimeBinding`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidRuntimeBinding
    }
}

impl RuntimeBinding {
    /// Binds the process of a holder.
    ///
    /// `None` if that process started in tick 0 of its boot, which a binding cannot say.
    #[must_use]
    pub fn new(kind: BindingKind, lease: Option<LeaseId>, holder: &ProcessHolder) -> Option<Self> {
        let process = holder.process();
        if process.start_ticks.get() == 0 {
            return None;
        }
        Some(Self {
            kind,
            lease,
            named: Named {
                pid: process.pid.get(),
                boot_id: process.boot_id,
                start_ticks: process.start_ticks,
                client: Box::from(holder.client()),
                session: holder.session().map(Box::from),
                run: holder.run().map(Box::from),
            },
        })
    }

    /// Reads a binding; `None` if the text is another kind of binding.
    ///
    /// The text may be any bytes. Keys may come in any order and blanks where JSON has them.
    ///
    /// # Errors
    ///
    /// [`BindingError`] if it begins with [`PREFIX`] and is not exactly what has to follow.
    pub fn decode<T: AsRef<[u8]> + ?Sized>(text: &T) -> Result<Option<Self>, BindingError> {
        let bytes = text.as_ref();
        if !bytes.starts_with(PREFIX.as_bytes()) {
            return Ok(None);
        }
        read_binding(bytes).map(Some)
    }

    /// Writes the one canonical text: keys in order, no blanks, the shortest escapes.
    ///
    /// It always fits in [`BINDING_BYTES`].
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::from(PREFIX);
        // Writing to a string cannot fail.
        let _written = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let Named {
            pid,
            boot_id,
            start_ticks,
            client,
            session,
            run,
        } = &self.named;
        write!(text, r#"{{"holder":{{"pid":{pid},"boot_id":"{boot_id}""#)?;
        write!(text, r#","start_ticks":{start_ticks},"client_id":"#)?;
        write_text(text, client)?;
        text.push_str(r#","session_id":"#);
        write_optional(text, session.as_deref())?;
        text.push_str(r#","run_id":"#);
        write_optional(text, run.as_deref())?;
        text.push_str(r#"},"lease_id":"#);
        match self.lease {
            Some(lease) => write!(text, r#""{lease}""#)?,
            None => text.push_str("null"),
        }
        write!(text, r#","kind":"{}"}}"#, self.kind.as_str())
    }

    /// Returns what the process is for.
    #[must_use]
    pub const fn kind(&self) -> BindingKind {
        self.kind
    }

    /// Returns the lease it was admitted under.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// Returns the number as it was written. Range: `1..=2^31 - 1`.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.named.pid
    }

    /// Returns the boot it was written in.
    #[must_use]
    pub const fn boot_id(&self) -> BootId {
        self.named.boot_id
    }

    /// Returns the start of the process as it was written; at least 1.
    #[must_use]
    pub const fn start_ticks(&self) -> StartTicks {
        self.named.start_ticks
    }

    /// Returns what the program calls itself.
    #[must_use]
    pub const fn client(&self) -> &str {
        &self.named.client
    }

    /// Returns the session, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.named.session.as_deref()
    }

    /// Returns the run, if there is one.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        self.named.run.as_deref()
    }
}

/// Tells whether a binding is the holder's own, under this lease or while there is none.
///
/// Lease id and labels must agree; two that are missing are equal. The process is not compared:
/// a child that was admitted may outlive the one that asks.
#[must_use]
pub fn is_own(binding: &RuntimeBinding, lease: Option<LeaseId>, holder: &ProcessHolder) -> bool {
    binding.lease == lease
        && binding.client() == holder.client()
        && binding.session() == holder.session()
        && binding.run() == holder.run()
}

/// Returns the places of the foreign bindings in a list, from 0 and ascending.
///
/// A text that is no runtime binding is foreign. The whole list is read before anything is said.
///
/// # Errors
///
/// [`BindingListError`] if any runtime binding is malformed, whatever the others are.
pub fn foreign<T: AsRef<[u8]>>(
    bindings: impl IntoIterator<Item = T>,
    lease: Option<LeaseId>,
    holder: &ProcessHolder,
) -> Result<Vec<usize>, BindingListError> {
    let mut foreign = Vec::new();
    for (index, text) in bindings.into_iter().enumerate() {
        match RuntimeBinding::decode(text.as_ref()) {
            Ok(Some(binding)) if is_own(&binding, lease, holder) => {}
            Ok(_) => foreign.push(index),
            Err(error) => return Err(BindingListError { index, error }),
        }
    }
    Ok(foreign)
}

fn read_binding(bytes: &[u8]) -> Result<RuntimeBinding, BindingError> {
    if bytes.len() > BINDING_BYTES {
        let bytes = bytes.len();
        return Err(BindingError {
            at: BINDING_BYTES,
            reason: BindingReason::TooLong { bytes },
        });
    }
    let mut reader = Reader {
        bytes,
        at: PREFIX.len(),
    };
    let mut named = Field::new("holder");
    let mut lease = Field::new("lease_id");
    let mut kind = Field::new("kind");
    let end = reader.object(|key, at, reader| match key {
        "holder" => named.fill(at, || read_holder(reader)),
        "lease_id" => lease.fill(at, || reader.lease_id()),
        "kind" => kind.fill(at, || reader.kind()),
        _ => fail(at, BindingReason::UnknownKey),
    })?;
    reader.finish()?;
    Ok(RuntimeBinding {
        named: named.take(end)?,
        lease: lease.take(end)?,
        kind: kind.take(end)?,
    })
}

fn read_holder(reader: &mut Reader<'_>) -> Result<Named, BindingError> {
    let mut pid = Field::new("pid");
    let mut boot_id = Field::new("boot_id");
    let mut start_ticks = Field::new("start_ticks");
    let mut client = Field::new("client_id");
    let mut session = Field::new("session_id");
    let mut run = Field::new("run_id");
    let end = reader.object(|key, at, reader| match key {
        "pid" => pid.fill(at, || reader.pid()),
        "boot_id" => boot_id.fill(at, || reader.boot_id()),
        "start_ticks" => start_ticks.fill(at, || {
            let ticks = reader.integer("start_ticks", u64::MAX)?;
            Ok(StartTicks::new(ticks))
        }),
        "client_id" => client.fill(at, || reader.client()),
        "session_id" => session.fill(at, || reader.label("session")),
        "run_id" => run.fill(at, || reader.label("run")),
        _ => fail(at, BindingReason::UnknownKey),
    })?;
    Ok(Named {
        pid: pid.take(end)?,
        boot_id: boot_id.take(end)?,
        start_ticks: start_ticks.take(end)?,
        client: client.take(end)?,
        session: session.take(end)?,
        run: run.take(end)?,
    })
}

/// A key of an object, and its value once it was read.
struct Field<T> {
    key: &'static str,
    value: Option<T>,
}

impl<T> Field<T> {
    const fn new(key: &'static str) -> Self {
        Self { key, value: None }
    }

    fn fill(
        &mut self,
        at: usize,
        read: impl FnOnce() -> Result<T, BindingError>,
    ) -> Result<(), BindingError> {
        if self.value.is_some() {
            return fail(at, BindingReason::RepeatedKey { key: self.key });
        }
        self.value = Some(read()?);
        Ok(())
    }

    fn take(self, end: usize) -> Result<T, BindingError> {
        let missing = BindingReason::MissingKey { key: self.key };
        self.value.map_or_else(|| fail(end, missing), Ok)
    }
}

const fn fail<T>(at: usize, reason: BindingReason) -> Result<T, BindingError> {
    Err(BindingError { at, reason })
}

const fn expected<T>(at: usize, what: &'static str) -> Result<T, BindingError> {
    fail(at, BindingReason::Expected { what })
}

/// The text that is still to be read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    /// Skips blanks and returns what stands behind them.
    fn next_part(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    fn mark(&mut self, mark: u8, what: &'static str) -> Result<(), BindingError> {
        if self.next_part() != Some(mark) {
            return expected(self.at, what);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads one object, hands over each key with its position, and returns where the object ends.
    fn object(
        &mut self,
        mut value: impl FnMut(&str, usize, &mut Self) -> Result<(), BindingError>,
    ) -> Result<usize, BindingError> {
        self.mark(b'{', "an object")?;
        if self.next_part() == Some(b'}') {
            self.at += 1;
            return Ok(self.at - 1);
        }
        loop {
            self.next_part();
            let at = self.at;
            let key = self.text("a key")?;
            self.mark(b':', "a colon")?;
            self.next_part();
            value(&key, at, self)?;
            match self.next_part() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(self.at - 1);
                }
                Some(_) | None => return expected(self.at, "a comma or the end of the object"),
            }
        }
    }

    fn finish(&mut self) -> Result<(), BindingError> {
        match self.next_part() {
            Some(_) => fail(self.at, BindingReason::Trailing),
            None => Ok(()),
        }
    }

    /// Reads a plain decimal integer, and nothing that merely has the value of one.
    fn integer(&mut self, key: &'static str, most: u64) -> Result<u64, BindingError> {
        let at = self.at;
        let digits = self.rest();
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let count = count.count();
        let digits = digits.get(..count).unwrap_or_default();
        self.at += count;
        let is_plain = match digits {
            [] => false,
            [b'0', _, ..] => false,
            [..] => !matches!(self.peek(), Some(b'.' | b'e' | b'E')),
        };
        if !is_plain {
            return expected(at, "an integer");
        }
        // Digits only, so what does not fit is too large.
        let number = str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
        match number {
            Some(number) if (1..=most).contains(&number) => Ok(number),
            Some(_) | None => fail(at, BindingReason::OutOfRange { key }),
        }
    }

    fn pid(&mut self) -> Result<i32, BindingError> {
        let at = self.at;
        let number = self.integer("pid", PID_MOST)?;
        i32::try_from(number)
            .or_else(|_too_large| fail(at, BindingReason::OutOfRange { key: "pid" }))
    }

    fn boot_id(&mut self) -> Result<BootId, BindingError> {
        let at = self.at;
        let text = self.text("a text")?;
        text.parse()
            .or_else(|error| fail(at, BindingReason::BootId(error)))
    }

    fn lease_id(&mut self) -> Result<Option<LeaseId>, BindingError> {
        let at = self.at;
        let Some(text) = self.text_or_null()? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(lease) => Ok(Some(lease)),
            Err(_not_canonical) => fail(at, BindingReason::LeaseId),
        }
    }

    fn kind(&mut self) -> Result<BindingKind, BindingError> {
        let at = self.at;
        let text = self.text("a text")?;
        let mut kinds = BindingKind::ALL.iter();
        match kinds.find(|kind| kind.as_str() == text) {
            Some(kind) => Ok(*kind),
            None => fail(at, BindingReason::Kind),
        }
    }

    fn client(&mut self) -> Result<Box<str>, BindingError> {
        let at = self.at;
        let text = self.text("a text")?;
        match check_client(&text) {
            Ok(()) => Ok(Box::from(text)),
            Err(error) => fail(at, BindingReason::Label(error)),
        }
    }

    fn label(&mut self, part: &'static str) -> Result<Option<Box<str>>, BindingError> {
        let at = self.at;
        let Some(text) = self.text_or_null()? else {
            return Ok(None);
        };
        match check_label(part, &text) {
            Ok(()) => Ok(Some(Box::from(text))),
            Err(error) => fail(at, BindingReason::Label(error)),
        }
    }

    fn text_or_null(&mut self) -> Result<Option<Cow<'a, str>>, BindingError> {
        if self.rest().starts_with(b"null") {
            self.at += 4;
            return Ok(None);
        }
        self.text("a text or null").map(Some)
    }

    /// Reads a text between quotes. It is copied only if it has an escape.
    fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>, BindingError> {
        if self.peek() != Some(b'"') {
            return expected(self.at, what);
        }
        self.at += 1;
        let mut text = Cow::Borrowed(self.plain()?);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    text.to_mut().push(self.escaped()?);
                    text.to_mut().push_str(self.plain()?);
                }
                Some(_) => return fail(self.at, BindingReason::ControlCharacter),
                None => return expected(self.at, "the end of the text"),
            }
        }
    }

    /// Reads up to what cannot stand for itself in a text.
    fn plain(&mut self) -> Result<&'a str, BindingError> {
        let rest = self.rest();
        let stands_for_itself = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
        let count = rest.iter().take_while(|byte| stands_for_itself(byte));
        let plain = rest.get(..count.count()).unwrap_or_default();
        match str::from_utf8(plain) {
            Ok(text) => {
                self.at += plain.len();
                Ok(text)
            }
            Err(error) => fail(self.at + error.valid_up_to(), BindingReason::NotUtf8),
        }
    }

    fn escaped(&mut self) -> Result<char, BindingError> {
        let at = self.at;
        let letter = self.rest().get(1).copied();
        self.at += 2;
        let character = match letter {
            Some(byte @ (b'"' | b'\\' | b'/')) => Some(char::from(byte)),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'u') => self.escaped_units(),
            Some(_) | None => None,
        };
        character.map_or_else(|| fail(at, BindingReason::Escape), Ok)
    }

    /// Reads the digits behind `\u`, and the second half where the first asks for one.
    fn escaped_units(&mut self) -> Option<char> {
        let first = self.unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first.into());
        }
        if !self.rest().starts_with(b"\\u") {
            return None;
        }
        self.at += 2;
        let units = [first, self.unit()?];
        let mut decoded = char::decode_utf16(units);
        decoded.next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.rest().get(..4)?;
        // Parsing alone would take a plus sign.
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.at += 4;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    }
}

fn write_optional(text: &mut String, value: Option<&str>) -> fmt::Result {
    match value {
        Some(value) => write_text(text, value),
        None => text.write_str("null"),
    }
}

fn write_text(text: &mut String, value: &str) -> fmt::Result {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0'..=' ' if character != ' ' => write!(text, "\\u{:04x}", u32::from(character))?,
            _ => text.push(character),
        }
    }
    text.push('"');
    Ok(())
}

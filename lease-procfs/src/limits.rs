//! Every bound of this crate on what others hand in, in one place.

/// The longest runtime binding, prefix included, in bytes.
pub const BINDING_BYTES: usize = 4_096;

/// The longest client name, in ASCII characters.
pub const CLIENT_BYTES: usize = 128;

/// The longest session or run label, in bytes of UTF-8.
pub const LABEL_BYTES: usize = 256;

/// The most processes that one death watch takes.
pub const WATCHES: usize = 4_096;

//! Every bound of this crate on what others hand in, in one place.

/// The most steps from a process to an ancestor that is looked for.
pub const ANCESTOR_STEPS: usize = 32;

/// The longest runtime binding, prefix included, in bytes.
pub const BINDING_BYTES: usize = 4_096;

/// The longest client name, in ASCII characters.
pub const CLIENT_BYTES: usize = 128;

/// The most of what is in the way of a clearing that a text shows; the error holds all.
pub const SHOWN_BLOCKERS: usize = 8;

/// The longest name of a program, in bytes: what file systems take.
pub const PROGRAM_BYTES: usize = 255;

/// The longest session or run label, in bytes of UTF-8.
pub const LABEL_BYTES: usize = 256;

/// The longest command line shown to people, in characters.
pub const COMMAND_CHARACTERS: usize = 120;

/// The most ancestors of a process that are walked.
pub const ANCESTORS: usize = 1_024;

/// The most uses of a path that are kept of one process.
pub const USES: usize = 16;

/// The most processes that one death watch takes.
pub const WATCHES: usize = 4_096;

/// The longest name of a repository, owner, role or state, in bytes of UTF-8.
pub const NAME_BYTES: usize = 256;

/// The most rounds of questions and answers that one decision takes.
///
/// Each round means that the lease in the way was granted or handed over in between.
pub const ROUNDS: usize = 16;

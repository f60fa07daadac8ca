//! Every bound of this crate.

use std::time::Duration;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 1_024;

/// The most that is read of what lies at a record's path; anything longer is no record.
pub const RECORD_READ_BYTES: usize = 65_536;

/// Characters of a purpose.
pub const PURPOSE_CHARACTERS: usize = 80;

/// How many places that are allowed to block are listed by name.
pub const ALLOWED_SITES: usize = 64;

/// How long to wait between two attempts, unless told otherwise.
pub const POLL: Duration = Duration::from_millis(25);

/// The shortest time between two attempts, so that somebody who never waits leaves a gap to win.
pub const POLL_FLOOR: Duration = Duration::from_millis(1);

/// From which age on a foreign hold is told of.
pub const FOREIGN_HOLD: Duration = Duration::from_secs(30);

/// How often a waiter tries the kernel lock although nobody has woken it.
pub(crate) const BEAT: Duration = Duration::from_millis(250);

/// How many beats the lock has to be free until those ahead are overtaken although they seem to run: one
/// of them may be suspended in a way that does not show.
pub(crate) const PATIENCE: u32 = 20;

/// How many holds of a process in a row there are before a poll interval is left free, so that somebody
/// who polls gets in.
pub(crate) const HANDOVERS_IN_A_ROW: u32 = 10;

/// How many poll intervals are left free in vain until nobody expects a peer any more.
pub(crate) const FREE_IN_VAIN: u8 = 8;

/// How soon the one whom the gate let through tries again when somebody came in beside the gate,
/// who will not ring when leaving; twice as late each time, up to a poll interval.
pub(crate) const IMPATIENCE: Duration = Duration::from_micros(100);

/// How long the thread at the gate stays when nobody waits.
pub(crate) const DOORMAN_IDLE: Duration = Duration::from_secs(5);

/// How often a moved mutex is opened anew within one attempt.
pub(crate) const REOPENINGS: u32 = 3;

/// How often the kernel lock is tried again within one attempt when it was refused and nobody has it.
pub(crate) const COLLISIONS: u32 = 3;

/// Past how many who gave up somebody goes one by one, before it waits for all who are ahead at once.
pub(crate) const HOPS: u32 = 64;

/// How often the end of the line at the gate is looked for, while others come: more than can wait.
pub(crate) const SLOT_TRIES: u32 = 4_096;

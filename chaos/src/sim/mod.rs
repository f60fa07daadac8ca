//! The simulation: seeded histories of a virtual machine room over the shipped core.
//!
//! One step is one call to the authority, or one thing that happens around it. After each call an
//! oracle that shares nothing with the core looks at everything that could be seen. One seed is one
//! history, byte for byte; a history that breaks a rule is made short and printed with the command
//! that repeats it.

mod config;
mod count;
mod driver;
mod generate;
mod history;
mod holder;
mod machines;
mod plain;
mod random;
mod room;
mod run;
mod step;

pub(crate) use self::machines::{Incarnation, Machines, Start};

pub use self::driver::{Answered, Driver, Shipped};
pub use self::holder::{Description, SimHolder};
pub use self::plain::Plain;
pub use self::run::{Play, play, scenarios, transcript};

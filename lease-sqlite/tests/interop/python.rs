//! The peer in Python, with the SQLite that its `sqlite3` is linked to.

use crate::rig::Language::Python;
use crate::rounds;

#[test]
fn experiment() {
    Python.run("python::experiment", rounds::experiment);
}

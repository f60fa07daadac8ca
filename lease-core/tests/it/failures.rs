//! What the end of an operation does to its lease, and who joins.

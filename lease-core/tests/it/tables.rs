//! The decision tables, cell by cell.

//! Laws that hold for every history.

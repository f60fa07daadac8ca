//! Every short history of a small world, against the reference.

//! Which policies build, and which authority they fit.

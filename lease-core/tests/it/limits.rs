//! Bad input and bounds: typed refusals that change nothing.

//! Who waits, who goes next, who leaves.

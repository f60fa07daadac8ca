//! Random bytes for ids, and chance that a seed repeats.

use rustix::rand::{GetRandomFlags, getrandom};

/// Draws the bytes of an id.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    // So few bytes are never drawn in part, and the pool is ready long before this program runs.
    while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
    bytes
}

/// Numbers that look random and follow from a seed: `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    state: u64,
}

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

//! Chance that is the same on every machine, for ever: xoshiro256** seeded by splitmix64.

/// A source of numbers that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// Starts the sequence of `seed`. Neighbouring seeds have nothing in common.
    pub(crate) const fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([
            splitmix(&mut state),
            splitmix(&mut state),
            splitmix(&mut state),
            splitmix(&mut state),
        ])
    }

    /// Draws 64 bits.
    pub(crate) const fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// Draws a number below `end`; 0 if there is none. The bias for small ends is far below what any
    /// history notices.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        match self.bits().checked_rem(end) {
            Some(number) => number,
            None => 0,
        }
    }

    /// Draws a number below 256 and `end`.
    pub(crate) fn small(&mut self, end: u8) -> u8 {
        u8::try_from(self.below(u64::from(end))).unwrap_or(0)
    }

    /// Answers yes this many times out of a hundred.
    pub(crate) const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Draws one of `choices`.
    pub(crate) fn one<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(u64::try_from(choices.len()).unwrap_or(0))).ok()?;
        choices.get(at).copied()
    }

    /// Draws 16 bytes for an identifier.
    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let wide = (u128::from(self.bits()) << 64) | u128::from(self.bits());
        wide.to_be_bytes()
    }
}

const fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        // The reference implementation's first numbers for the state 1, 2, 3, 4.
        let mut random = Random([1, 2, 3, 4]);
        let drawn = [(); 5].map(|()| random.bits());
        assert_eq!(
            drawn,
            [
                11520,
                0,
                1_509_978_240,
                1_215_971_899_390_074_240,
                1_216_172_134_540_287_360
            ]
        );
        assert_eq!(splitmix(&mut 0), 0xE220_A839_7B1D_CDAF);
    }
}

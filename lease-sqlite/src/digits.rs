//! Numbers in decimal, for what is written at each hold: the general means to format take several times as long.

/// The digits of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    bytes: [u8; MOST],
    start: usize,
}

/// As many as the largest number has.
const MOST: usize = 20;

impl Digits {
    pub(crate) fn of(number: u64) -> Self {
        let mut digits = Self {
            bytes: [b'0'; MOST],
            start: MOST,
        };
        let mut rest = number;
        for (place, byte) in digits.bytes.iter_mut().enumerate().rev() {
            *byte = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or(0));
            digits.start = place;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        digits
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Digits;

    #[test]
    fn every_number_has_its_digits() {
        let tens = (0..20).map(|power| 10_u64.pow(power));
        let around = tens.flat_map(|ten| [ten - 1, ten, ten + 1, ten.wrapping_mul(7)]);
        for number in around.chain([u64::MAX, u64::MAX - 1, 1_700_000_000_123]) {
            let digits = Digits::of(number);
            assert_eq!(digits.as_bytes(), number.to_string().as_bytes());
        }
    }
}

//! Random numbers: session ids, lease ids, operation ids.

use std::sync::{Mutex, PoisonError};

use lease_core::{AuthorityId, LeaseId, OpId};

use crate::authority::{AuthorityError, BoxError};

fn random<const N: usize>() -> Result<[u8; N], AuthorityError> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(AuthorityError::Unreachable(BoxError::from(
            error.to_string(),
        ))),
    }
}

/// For ids that are drawn all the time and need not be secret: they tell grants and operations apart.
static STOCK: Mutex<Stock> = Mutex::new(Stock {
    words: [0; 4],
    left: 0,
});

/// How many ids are drawn between two looks at the system's randomness.
const DRAWS: u32 = 4_096;

/// A generator (xoshiro256++), stirred with the system's randomness again and again.
struct Stock {
    words: [u64; 4],
    left: u32,
}

impl Stock {
    fn draw(&mut self) -> Option<[u8; 16]> {
        if self.left == 0 {
            self.refill().ok()?;
        }
        self.left = self.left.saturating_sub(1);
        let id = u128::from(self.next()) << 64 | u128::from(self.next());
        Some(id.to_be_bytes())
    }

    #[cold]
    fn refill(&mut self) -> Result<(), AuthorityError> {
        self.stir([random()?, random()?, random()?, random()?]);
        self.left = DRAWS;
        Ok(())
    }

    fn stir(&mut self, drawn: [[u8; 8]; 4]) {
        for (word, drawn) in self.words.iter_mut().zip(drawn) {
            *word ^= u64::from_ne_bytes(drawn);
        }
        // The one state that it would never leave.
        if self.words == [0; 4] {
            self.words = [1; 4];
        }
    }

    const fn next(&mut self) -> u64 {
        let [mut a, mut b, mut c, mut d] = self.words;
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        c ^= a;
        d ^= b;
        b ^= c;
        a ^= d;
        c ^= shifted;
        self.words = [a, b, c, d.rotate_left(45)];
        drawn
    }
}

/// A token is told by its generation too, so it is no matter that a forked child goes on with the same ones.
fn stocked() -> Option<[u8; 16]> {
    STOCK.lock().unwrap_or_else(PoisonError::into_inner).draw()
}

/// Draws the id of one operation.
pub(crate) fn operation() -> Result<OpId, AuthorityError> {
    // Where there is none, the system says why.
    Ok(OpId::from_random(stocked().map_or_else(random, Ok)?))
}

/// Draws the id of one authority.
pub(crate) fn authority() -> Result<AuthorityId, AuthorityError> {
    Ok(AuthorityId::from_random(random()?))
}

/// Draws the id of one lease. Where there is no randomness it is the reserved one, which no authority grants.
pub(crate) fn lease() -> LeaseId {
    stocked().map_or(LeaseId::NIL, LeaseId::from_random)
}

/// Draws the name of one session: 32 hexadecimal digits.
pub(crate) fn session() -> Result<String, AuthorityError> {
    Ok(format!("{:032x}", u128::from_be_bytes(random()?)))
}

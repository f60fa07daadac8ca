//! Random numbers: session ids, lease ids, operation ids.

use core::num::NonZeroU64;
use std::cell::RefCell;

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use lease_core::{AuthorityId, LeaseId, OpId};

use crate::authority::{AuthorityError, BoxError};
#[cfg(target_os = "linux")]
use crate::sys::{process, process_if_made};

fn random() -> Result<[u8; 16], AuthorityError> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(AuthorityError::Unreachable(BoxError::from(
            error.to_string(),
        ))),
    }
}

thread_local! {
    /// Random numbers in stock, for ids that are drawn all the time and need not be secret. Each thread has its own:
    /// it has nothing to wait for.
    static STOCK: RefCell<Stock> = const {
        RefCell::new(Stock {
            bytes: [0; STOCK_BYTES],
            left: 0,
            process: None,
        })
    };
}

const STOCK_BYTES: usize = 4_096;

struct Stock {
    bytes: [u8; STOCK_BYTES],
    left: usize,
    /// Whose it is: a forked child has a copy of its parent's, and takes nothing out of it.
    process: Option<NonZeroU64>,
}

impl Stock {
    #[inline]
    fn draw(&mut self) -> Result<[u8; 16], AuthorityError> {
        if self.left < 16 || self.process != process_if_made() {
            self.fill()?;
        }
        self.take().map_or_else(random, Ok)
    }

    #[inline]
    fn take(&mut self) -> Option<[u8; 16]> {
        self.left = self.left.checked_sub(16)?;
        self.bytes.get(self.left..)?.first_chunk().copied()
    }

    #[cold]
    fn fill(&mut self) -> Result<(), AuthorityError> {
        self.left = 0;
        self.process = process();
        if self.process.is_none() {
            // A child could not be told from its parent, so nothing is kept in stock.
            return Ok(());
        }
        let mut seed = <ChaCha12Rng as SeedableRng>::Seed::default();
        let drawn = getrandom::fill(&mut seed);
        drawn.map_err(|error| AuthorityError::Unreachable(error.to_string().into()))?;
        // As the system would do it itself, but with vectors, and with as many rounds as are used for such numbers.
        ChaCha12Rng::from_seed(seed).fill_bytes(&mut self.bytes);
        self.left = STOCK_BYTES;
        Ok(())
    }
}

/// One system call fills it for many ids.
#[inline]
fn stocked() -> Result<[u8; 16], AuthorityError> {
    STOCK.with_borrow_mut(Stock::draw)
}

/// Nothing tells a forked child here.
#[cfg(not(target_os = "linux"))]
const fn process() -> Option<NonZeroU64> {
    None
}

#[cfg(not(target_os = "linux"))]
const fn process_if_made() -> Option<NonZeroU64> {
    None
}

/// Draws the id of one operation.
pub(crate) fn operation() -> Result<OpId, AuthorityError> {
    Ok(OpId::from_random(stocked()?))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{STOCK_BYTES, Stock, stocked};

    /// A stock of no process, with so many bytes left.
    const fn of_sevens(left: usize) -> Stock {
        Stock {
            bytes: [7; STOCK_BYTES],
            left,
            process: None,
        }
    }

    #[test]
    fn nothing_is_taken_out_of_an_empty_stock() {
        let mut stock = of_sevens(32);
        assert_eq!(stock.take(), Some([7; 16]));
        assert_eq!(stock.take(), Some([7; 16]));
        assert_eq!(stock.take(), None);
    }

    #[test]
    fn no_id_is_in_stock_twice() {
        let mut stock = of_sevens(0);
        let mut ids = BTreeSet::new();
        for filled in 1..=2 {
            stock.fill().unwrap();
            ids.extend(core::iter::from_fn(|| stock.take()));
            assert_eq!(ids.len(), filled * STOCK_BYTES / 16);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_of_a_stock_is_drawn_before_it_is_filled_anew() {
        stocked().unwrap();
        let mut stock = of_sevens(STOCK_BYTES);
        stock.process = super::process_if_made();
        for _ in 0..STOCK_BYTES / 16 {
            assert_eq!(stock.draw().unwrap(), [7; 16]);
        }
        assert_ne!(stock.draw().unwrap(), [7; 16]);
    }

    #[test]
    fn a_stock_of_another_process_is_filled_anew() {
        stocked().unwrap();
        let mut stock = of_sevens(STOCK_BYTES);
        assert_ne!(stock.draw().unwrap(), [7; 16]);
        assert_ne!(stock.draw().unwrap(), [7; 16]);
    }
}

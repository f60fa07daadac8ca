//! Random numbers: session ids, lease ids, operation ids.

use std::cell::RefCell;

use lease_core::{AuthorityId, LeaseId, OpId};

use crate::authority::{AuthorityError, BoxError};

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
        })
    };
}

const STOCK_BYTES: usize = 4_096;

struct Stock {
    bytes: [u8; STOCK_BYTES],
    left: usize,
}

impl Stock {
    #[inline]
    fn draw(&mut self) -> Result<[u8; 16], AuthorityError> {
        if self.left < 16 {
            self.fill()?;
        }
        self.left = self.left.saturating_sub(16);
        let taken = self.bytes.get(self.left..).and_then(<[u8]>::first_chunk);
        match taken {
            Some(bytes) => Ok(*bytes),
            None => random(),
        }
    }

    #[cold]
    fn fill(&mut self) -> Result<(), AuthorityError> {
        let filled = getrandom::fill(&mut self.bytes);
        filled.map_err(|error| AuthorityError::Unreachable(error.to_string().into()))?;
        self.left = STOCK_BYTES;
        Ok(())
    }
}

/// One system call fills it for many ids. A token is told by its generation too, so it is no matter that a
/// forked child has the same stock.
#[inline]
fn stocked() -> Result<[u8; 16], AuthorityError> {
    STOCK.with_borrow_mut(Stock::draw)
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

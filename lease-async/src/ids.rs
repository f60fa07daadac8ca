//! Random numbers: session ids, lease ids, operation ids.

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

/// Draws the id of one operation.
pub(crate) fn operation() -> Result<OpId, AuthorityError> {
    Ok(OpId::from_random(random()?))
}

/// Draws the id of one authority.
pub(crate) fn authority() -> Result<AuthorityId, AuthorityError> {
    Ok(AuthorityId::from_random(random()?))
}

/// Draws the id of one lease. Where there is no randomness it is the reserved one, which no authority grants.
pub(crate) fn lease() -> LeaseId {
    random().map_or(LeaseId::NIL, LeaseId::from_random)
}

/// Draws the name of one session: 32 hexadecimal digits.
pub(crate) fn session() -> Result<String, AuthorityError> {
    Ok(format!("{:032x}", u128::from_be_bytes(random()?)))
}

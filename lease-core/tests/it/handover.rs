//! Hand-over, revocation, and verdicts that come late.

//! The gate at the resource.

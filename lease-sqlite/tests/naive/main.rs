//! What a simpler write lock would do: each test shows the damage, and that ours does not.
#![cfg(target_os = "linux")]

#[cfg(test)]
#[path = "../it/place.rs"]
mod place;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod variants;

//! Laws about the guarantees of a [`CasBackend`](idempotent_core::CasBackend) to [`Cas`](idempotent_core::Cas).
pub mod races;
pub mod records;
pub mod swaps;
pub mod versions;

pub use crate::conformance::cas::all;

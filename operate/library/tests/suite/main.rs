//! The library of the command line, from outside.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
mod plan;

//! The laws, one function each, in groups. The name says the law; a panic says that it is broken.
//!
//! [`conformance!`](crate::conformance!) lists them all; call one by [`hold`](super::hold). Those in [`cas`] are about
//! a backend: [`cas_conformance!`](crate::cas_conformance!) and [`hold_cas`](super::hold_cas).
#![allow(
    missing_docs,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "law bodies are test code, and the name of a law is its documentation"
)]
pub mod abilities;
pub mod attempts;
pub mod cas;
pub mod claims;
pub mod clients;
pub mod connections;
pub mod damage;
pub mod ends;
pub mod equality;
pub mod fencing;
pub mod keys;
pub mod owners;
pub mod payloads;
pub mod races;
pub mod replies;
pub mod time;

pub use super::list::all;

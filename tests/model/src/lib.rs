//! draft
#![allow(clippy::expect_used, clippy::panic, reason = "a model that has no room for a state must stop there")]
pub mod action;
pub mod check;
pub mod invariant;
pub mod record;
pub mod state;
pub mod store;
pub mod variant;
pub mod world;

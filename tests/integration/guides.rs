//! README, the guides of the facade, and the documentation of the attribute: their examples are compiled and run here, as
//! doc tests. What they need would slow down each first build of the facade.
#![cfg(doctest)]

#[doc = include_str!("../../README.md")]
pub mod readme {}

#[doc = include_str!("../../idempotent-macros/src/docs/idempotent.md")]
pub mod attribute {}

#[doc = include_str!("../../src/docs/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("../../src/docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../../src/docs/keys.md")]
pub mod keys {}

#[doc = include_str!("../../src/docs/steps.md")]
pub mod steps {}

#[doc = include_str!("../../src/docs/ordering.md")]
pub mod ordering {}

#[doc = include_str!("../../src/docs/redis.md")]
pub mod redis {}

#[doc = include_str!("../../src/docs/tiers.md")]
pub mod tiers {}

#[doc = include_str!("../../src/docs/http.md")]
pub mod http {}

#[doc = include_str!("../../src/docs/outbox.md")]
pub mod outbox {}

#[doc = include_str!("../../src/docs/delay.md")]
pub mod delay {}

#[doc = include_str!("../../src/docs/alerts.md")]
pub mod alerts {}

#[doc = include_str!("../../src/docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../../src/docs/custom_store.md")]
pub mod custom_store {}

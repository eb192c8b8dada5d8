//! Guides. Every example in them is compiled and run as a test.
//!
//! Read them in this order:
//! 1. [`getting_started`]: a handler, a store, duplicates, failures, shutting down.
//! 2. [`guarantees`]: levels L1 to L4, crash points, retention.
//! 3. [`keys`]: what makes two calls the same.
//! 4. [`steps`]: handlers over several systems: a retry goes on where it stopped; updates that carry a version.
//! 5. [`ordering`]: messages in their order, over any number of consumers.
//! 6. [`redis`]: the store that a fleet shares, and what it can lose.
//! 7. [`http`]: `Idempotency-Key` on REST: layer, attribute, clients, problems.
//! 8. `outbox` (features `outbox` and `postgres`; it works on the other databases, too): messages that are written in the transaction of what they tell of.
//! 9. `delay` (features `delay` and `sqlite`, likewise): work that is due at a time; five techniques, and how late they are.
//! 10. `alerts` (features `alert-email`, `outbox` and `sqlite`): what needs a person, by log, webhook and e-mail.
//! 11. [`testing`]: duplicates, crashes and refusals in tests of your own.
//! 12. [`custom_store`]: records where you want them.

#[cfg_attr(not(doctest), doc = include_str!("docs/getting_started.md"))]
pub mod getting_started {}

#[cfg_attr(not(doctest), doc = include_str!("docs/guarantees.md"))]
pub mod guarantees {}

#[cfg_attr(not(doctest), doc = include_str!("docs/keys.md"))]
pub mod keys {}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[cfg_attr(not(doctest), doc = include_str!("docs/steps.md"))]
pub mod steps {}

#[cfg_attr(not(doctest), doc = include_str!("docs/ordering.md"))]
pub mod ordering {}

#[cfg(feature = "redis")]
#[cfg_attr(not(doctest), doc = include_str!("docs/redis.md"))]
pub mod redis {}

#[cfg(feature = "axum")]
#[cfg_attr(not(doctest), doc = include_str!("docs/http.md"))]
#[doc = "```yaml"]
#[cfg_attr(not(doctest), doc = include_str!("docs/openapi.yaml"))]
#[doc = "```"]
pub mod http {}

#[cfg(all(feature = "outbox", feature = "postgres"))]
#[cfg_attr(not(doctest), doc = include_str!("docs/outbox.md"))]
pub mod outbox {}

#[cfg(all(feature = "delay", feature = "sqlite"))]
#[cfg_attr(not(doctest), doc = include_str!("docs/delay.md"))]
pub mod delay {}

#[cfg(all(feature = "alert-email", feature = "outbox", feature = "sqlite"))]
#[cfg_attr(not(doctest), doc = include_str!("docs/alerts.md"))]
pub mod alerts {}

#[cfg_attr(not(doctest), doc = include_str!("docs/testing.md"))]
pub mod testing {}

#[cfg_attr(not(doctest), doc = include_str!("docs/custom_store.md"))]
pub mod custom_store {}

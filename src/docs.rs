//! Guides. Every example in them is compiled and run as a test.
//!
//! Read them in this order:
//! 1. [`getting_started`]: a handler, a store, duplicates, failures, shutdown.
//! 2. [`guarantees`]: the guarantee levels L1 to L4, crash points, retention.
//! 3. [`keys`]: the choice of a key, scopes, tenants, fingerprints, tokens.
//! 4. [`steps`]: handlers that call several systems and continue where they stopped; updates with a version.
//! 5. [`ordering`]: ordered messages with any number of consumers.
//! 6. [`redis`]: the store that all instances share, and its limits.
//! 7. [`tiers`]: a database with Redis as its cache.
//! 8. [`http`]: the `Idempotency-Key` header in REST services: layer, attribute, clients, problems.
//! 9. `outbox` (documented with the features `outbox` and `postgres`; works with all databases): messages that are written in the
//!    transaction of the change that they announce.
//! 10. `delay` (documented with the features `delay` and `sqlite`; works with all databases): work that is due later; five techniques
//!     and their lateness.
//! 11. `alerts` (features `alert-email`, `outbox` and `sqlite`): alerts to operators by log, webhook and e-mail.
//! 12. [`testing`]: duplicates, crashes and rejections in your own tests.
//! 13. [`custom_store`]: stores for other systems.

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

#[cfg_attr(not(doctest), doc = include_str!("docs/tiers.md"))]
pub mod tiers {}

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

//! README, the guides of the facade, and the documentation of the attribute: their examples are compiled and run here, as
//! doc tests. What they need would slow down each first build of the facade.
#![cfg(doctest)]

#[doc = include_str!("../../README.md")]
pub mod readme {}

#[doc = include_str!("../../idempotent-macros/src/docs/idempotent.md")]
pub mod attribute {}

#[doc = include_str!("../../guides/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("../../guides/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../../guides/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../../guides/keys.md")]
pub mod keys {}

#[doc = include_str!("../../guides/consumers.md")]
pub mod consumers {}

#[doc = include_str!("../../guides/brokers.md")]
pub mod brokers {}

#[doc = include_str!("../../guides/payments.md")]
pub mod payments {}

#[doc = include_str!("../../guides/http.md")]
pub mod http {}

#[doc = include_str!("../../guides/http-reference.md")]
pub mod http_reference {}

#[doc = include_str!("../../guides/actix-web.md")]
pub mod actix_web {}

#[doc = include_str!("../../guides/grpc.md")]
pub mod grpc {}

#[doc = include_str!("../../guides/runtimes.md")]
pub mod runtimes {}

#[doc = include_str!("../../guides/steps.md")]
pub mod steps {}

#[doc = include_str!("../../guides/ordering.md")]
pub mod ordering {}

#[doc = include_str!("../../guides/outbox.md")]
pub mod outbox {}

#[doc = include_str!("../../guides/delay.md")]
pub mod delay {}

#[doc = include_str!("../../guides/redis.md")]
pub mod redis {}

#[doc = include_str!("../../guides/tiers.md")]
pub mod tiers {}

#[doc = include_str!("../../guides/testing.md")]
pub mod testing {}

#[doc = include_str!("../../guides/shutting-down.md")]
pub mod shutting_down {}

#[doc = include_str!("../../guides/deploying.md")]
pub mod deploying {}

#[doc = include_str!("../../guides/sizing.md")]
pub mod sizing {}

#[doc = include_str!("../../guides/capacity.md")]
pub mod capacity {}

#[doc = include_str!("../../guides/regions.md")]
pub mod regions {}

#[doc = include_str!("../../guides/alerts.md")]
pub mod alerts {}

#[doc = include_str!("../../guides/console.md")]
pub mod console {}

#[doc = include_str!("../../guides/operating.md")]
pub mod operating {}

#[doc = include_str!("../../guides/metrics.md")]
pub mod metrics {}

#[doc = include_str!("../../guides/reference.md")]
pub mod reference {}

#[doc = include_str!("../../guides/traces.md")]
pub mod traces {}

#[doc = include_str!("../../guides/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("../../guides/faq.md")]
pub mod faq {}

#[doc = include_str!("../../guides/coming-from.md")]
pub mod coming_from {}

#[doc = include_str!("../../guides/coming-from-12306.md")]
pub mod coming_from_12306 {}

#[doc = include_str!("../../guides/custom-stores.md")]
pub mod custom_stores {}

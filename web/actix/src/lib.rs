//! The actix-web side of [`idempotent`](https://docs.rs/idempotent-rs): a middleware that protects handlers against repeated
//! requests.
//!
//! - [`IdempotencyMiddleware`] is the middleware. Its settings are those of the
//!   [`IdempotencyLayer`](idempotent_tower::IdempotencyLayer), which makes all decisions.
//! - [`IdempotencyService`] selects the requests that the layer handles, and converts them.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod bodies;
mod heads;
mod inner_service;
mod middleware;
mod service;

pub use self::middleware::IdempotencyMiddleware;
pub use self::service::IdempotencyService;

//! The gRPC side of [`idempotent`](https://docs.rs/idempotent-rs): a layer that protects unary calls of tonic services
//! against repeated calls.
//!
//! The types follow the path of a call:
//!
//! - [`GrpcLayer`] has the settings.
//! - [`GrpcService`] selects the calls with a key and reads their request, which consists of one message.
//! - The layer of `idempotent-tower` checks key, caller and fingerprint, and runs the method once.
//! - A [`StreamPolicy`] applies to a call that turns out to be a stream.
//! - [`problem_code`] maps each problem to its code.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod call_rules;
mod idle_timer;
mod layer;
mod message_frames;
mod method_set;
mod problem_status;
mod service;
mod unary_request;
mod unary_responses;

pub use self::call_rules::StreamPolicy;
pub use self::layer::GrpcLayer;
pub use self::problem_status::{DOMAIN, denied, problem_code};
pub use self::service::{GrpcService, ResponseFuture};
pub use self::unary_request::UnaryRequest;

//! The HTTP side of [`idempotent`](https://docs.rs/idempotent-rs): a tower layer that protects handlers against
//! repeated requests, and the integration with axum.
//!
//! The types follow the path of a request:
//!
//! - [`IdempotencyLayer`] selects a request by its method.
//! - [`KeyRules`] read its key, and a [`Principal`] names its caller.
//! - [`PayloadCheck`] computes the fingerprint while the layer reads the body.
//! - The executor of `idempotent-core` claims the key and runs the handler in a task.
//! - [`ResponseRules`] decide whether the response is stored, and [`StoredResponse`] is its stored form.
//! - A [`Problem`] is the response to a request that has no other. If the layer sends it before the body has arrived,
//!   the layer then reads and discards the rest of the body.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod accept_language;
mod attempt;
#[cfg(feature = "axum")]
mod axum;
mod buffered_body;
mod layer;
mod panic_guard;
mod problem;
mod request;
mod response;

pub use self::accept_language::{AcceptLanguageLayer, AcceptLanguageService};
pub use self::attempt::RequestAttempt;
#[cfg(feature = "axum")]
pub use self::axum::{AxumJson, DefaultHttpRules, Http, HttpRules, WholeRequest};
pub use self::layer::{IdempotencyLayer, IdempotencyService, LayerSettings, ResponseFuture, SetupError};
pub use self::problem::{Problem, ProblemKind};
pub use self::request::body::RequestBody;
pub use self::request::key::{IdempotencyKey, InvalidKey, KeyFormat, KeyRules, KeySyntax};
pub use self::request::payload::PayloadCheck;
pub use self::request::principal::{Caller, Denied, Principal};
pub use self::response::body::ResponseBody;
pub use self::response::body_store::{BodyStore, BodyStoreFuture};
pub use self::response::replay_header::ReplayHeader;
pub use self::response::rules::ResponseRules;
pub use self::response::store_policy::{Idempotent, StorePolicy};
pub use self::response::stored::StoredResponse;

/// The parts that the adapters of this project share.
#[doc(hidden)]
pub mod __private {
    pub use crate::layer::{LocalLayer, RouteTemplate};
    pub use crate::panic_guard::catch_panic;
    pub use crate::response::body::PartialBody;
    pub use crate::response::classify::StreamedBody;
    pub use crate::response::exchange_headers::EXCHANGE_HEADERS;
    pub use crate::response::store_policy::{is_grpc, is_grpc_web};
}

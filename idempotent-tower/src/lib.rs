//! The REST side of [`idempotent`](https://docs.rs/idempotent-rs): a layer that makes the handlers behind it safe against
//! requests that come twice, and what annotated axum handlers answer with.
//!
//! Read in the order a request takes: [`IdempotencyLayer`] picks it by method; [`KeyRules`] read its key, a [`Principal`]
//! says whose it is, [`PayloadCheck`] takes its fingerprint while the body is read; the executor of `idempotent-core`
//! claims the key, and the handler runs in a task of its own; [`ResponseRules`] say whether the answer is kept and what
//! of it, [`Kept`] is its stored form; what cannot be answered so is a [`Problem`], and where that is known before the body
//! is in, the rest of the body is read behind it.
mod attempt;
#[cfg(feature = "axum")]
mod axum;
mod buffered_body;
mod layer;
mod panic_guard;
mod problem;
mod request;
mod response;

pub use self::attempt::Attempt;
#[cfg(feature = "axum")]
pub use self::axum::{AxumJson, Http, HttpRules, Standard, WholeRequest};
pub use self::layer::{IdempotencyLayer, IdempotencyService, ResponseFuture, SetupError};
pub use self::problem::{Problem, ProblemKind};
pub use self::request::body::RequestBody;
pub use self::request::key::{IdempotencyKey, InvalidKey, KeyFormat, KeyRules, KeySyntax};
pub use self::request::payload::PayloadCheck;
pub use self::request::principal::{Caller, Denied, Principal};
pub use self::response::body::ResponseBody;
pub use self::response::body_store::{Spill, Spilling};
pub use self::response::replay_header::ReplayHeader;
pub use self::response::rules::ResponseRules;
pub use self::response::store_policy::{Idempotent, StorePolicy};
pub use self::response::stored::Kept;

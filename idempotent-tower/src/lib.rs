//! The REST side of [`idempotent`](https://docs.rs/idempotent-rs): a layer that makes the handlers behind it safe against
//! requests that come twice, and what annotated axum handlers answer with.
//!
//! Read in the order a request takes: [`IdempotencyLayer`] picks it by method; [`KeyRules`] read its key, a [`Principal`]
//! says whose it is, [`PayloadCheck`] takes its fingerprint while the body is read; the executor of `idempotent-core`
//! claims the key, and the handler runs in a task of its own; [`ResponseRules`] say whether the answer is kept and what
//! of it, [`Kept`] is its stored form; what cannot be answered so is a [`Problem`], and where that is known before the body
//! is in, the rest of the body is read behind it.
mod attempt;
mod body;
#[cfg(feature = "axum")]
mod for_axum;
mod handle;
mod hook;
mod json;
mod kept;
mod key;
mod layer;
mod leftover;
mod payload;
mod principal;
mod problem;
mod reply;
mod response;
mod service;
mod setup;
mod shared;
mod spill;
#[cfg(feature = "axum")]
mod whole_request;

pub use self::attempt::Attempt;
pub use self::body::{RequestBody, ResponseBody};
#[cfg(feature = "axum")]
pub use self::for_axum::{AxumJson, Http, HttpRules, Standard};
pub use self::kept::Kept;
pub use self::key::{IdempotencyKey, InvalidKey, KeyFormat, KeyRules, KeySyntax};
pub use self::layer::IdempotencyLayer;
pub use self::payload::PayloadCheck;
pub use self::principal::{Caller, Denied, Principal};
pub use self::problem::{Problem, ProblemKind};
pub use self::response::{Idempotent, ReplayHeader, ResponseRules, StorePolicy};
pub use self::service::{IdempotencyService, ResponseFuture};
pub use self::setup::SetupError;
pub use self::spill::{Spill, Spilling};
#[cfg(feature = "axum")]
pub use self::whole_request::WholeRequest;

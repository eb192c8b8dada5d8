//! Idempotency of HTTP requests: the tower layer, and types for axum handlers. The guide is [`docs::http`](crate::docs::http).
pub use idempotent_tower::{
    AcceptLanguageLayer, AcceptLanguageService, BodyStore, BodyStoreFuture, Caller, Denied, IdempotencyKey,
    IdempotencyLayer, IdempotencyService, Idempotent, InvalidKey, KeyFormat, KeyRules, KeySyntax, PayloadCheck,
    Principal, Problem, ProblemKind, ReplayHeader, RequestAttempt, RequestBody, ResponseBody, ResponseFuture,
    ResponseRules, SetupError, StorePolicy, StoredResponse,
};
#[cfg(feature = "axum")]
pub use idempotent_tower::{AxumJson, DefaultHttpRules, Http, HttpRules, WholeRequest};

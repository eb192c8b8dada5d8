//! Idempotency of HTTP requests: the tower layer, types for axum handlers, and the middleware for actix-web. The guide is
//! [`docs::http`](crate::docs::http).
#[cfg(feature = "actix-web")]
pub use idempotent_actix_web::IdempotencyMiddleware;
pub use idempotent_tower::{
    AcceptLanguageLayer, AcceptLanguageService, BodyStore, BodyStoreFuture, Caller, Denied, IdempotencyKey,
    IdempotencyLayer, IdempotencyService, Idempotent, InvalidKey, KeyFormat, KeyRules, KeySyntax, LayerSettings,
    PayloadCheck, Principal, Problem, ProblemKind, ReplayHeader, RequestAttempt, RequestBody, ResponseBody,
    ResponseFuture, ResponseRules, SetupError, StorePolicy, StoredResponse,
};
#[cfg(feature = "axum")]
pub use idempotent_tower::{AxumJson, DefaultHttpRules, Http, HttpRules, WholeRequest};

//! Idempotency of gRPC calls: the layer for services of tonic. The guide is [`docs::grpc`](crate::docs::grpc).
//!
//! `Principal`, `KeyRules` and `ResponseRules` are in [`http`](crate::http).
pub use idempotent_tonic::{
    DOMAIN, GrpcLayer, GrpcService, ResponseFuture, StreamPolicy, UnaryRequest, denied, problem_code,
};

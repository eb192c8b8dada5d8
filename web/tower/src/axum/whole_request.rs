//! An extractor that computes the fingerprint of the whole request.
use axum::RequestExt;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::response::{IntoResponse, Response};
use idempotent_core::Fingerprint;

use crate::request::payload;

/// The body of a request as the extractor `B` reads it, and the fingerprint of the whole request: method, path, query
/// and the bytes of the body, without the boundary of a multipart body. With `fingerprint = request`, the same key with any other request is rejected with 422,
/// as inside an [`IdempotencyLayer`](crate::IdempotencyLayer). A field of the body that the type does not know counts
/// as well.
///
/// The extractor reads the whole body into memory, up to axum's `DefaultBodyLimit`. Path and query are as the client
/// sent them, even inside axum's `nest`. A handler without a body takes `WholeRequest<Bytes>`.
///
/// ```
/// use axum::Json;
/// use axum::response::IntoResponse;
/// use idempotent_macros::idempotent;
/// use idempotent_tower::{Http, IdempotencyKey, WholeRequest};
///
/// #[idempotent(
///     scene = rest, key = key, tenant = (), fingerprint = request, reply = Http, detach, crate = ::idempotent_core
/// )]
/// async fn create(
///     key: IdempotencyKey,
///     WholeRequest(Json(sku), request): WholeRequest<Json<String>>,
/// ) -> impl IntoResponse {
///     format!("one {sku}")
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeRequest<B>(pub B, pub Fingerprint);

/// Rejects what `B` rejects. A body that is too large or incomplete is rejected as by the `Bytes` of axum.
impl<S: Send + Sync, B: FromRequest<S>> FromRequest<S> for WholeRequest<B> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (parts, body) = request.with_limited_body().into_parts();
        let mut whole = Request::new(body);
        // The body already enforces the limit of the request.
        DefaultBodyLimit::disable().apply(&mut whole);
        let bytes = Bytes::from_request(whole, state).await.map_err(IntoResponse::into_response)?;
        let fingerprint = payload::of_bytes(&parts, &bytes);
        let request = Request::from_parts(parts, Body::from(bytes));
        let body = B::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        Ok(Self(body, fingerprint))
    }
}

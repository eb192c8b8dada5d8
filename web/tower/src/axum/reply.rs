//! The reply strategy of annotated axum handlers.
use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::Map;
use http::HeaderValue;
use idempotent_core::{
    Codec, CodecError, HandlerOutcome, Json, Policy, RejectStrategy, Rejection, ReplyStrategy, ResponseShape,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::panic_guard::catch_panic;
use crate::response::body::ResponseBody;
use crate::response::classify::classify;
use crate::{Idempotent, Problem, ProblemKind, ReplayHeader, ResponseRules, StoredResponse};

/// The settings of the reply strategy [`Http`].
pub trait HttpRules: 'static {
    /// Returns the rules for storing responses. If this function panics, the response counts as complete and is not
    /// stored.
    ///
    /// # Default
    /// [`ResponseRules::default`]
    fn rules() -> Arc<ResponseRules> {
        static RULES: LazyLock<Arc<ResponseRules>> = LazyLock::new(Arc::default);
        RULES.clone()
    }

    /// Converts a problem into a response.
    ///
    /// # Default
    /// `application/problem+json`
    fn problem(problem: Problem) -> Response {
        problem.into_response()
    }
}

/// The default settings of [`Http`].
#[derive(Clone, Copy, Debug)]
pub struct DefaultHttpRules;

impl HttpRules for DefaultHttpRules {}

/// The reply strategy of axum handlers: `reply = Http`. It stores status, headers and body of any axum response, and
/// replays them. The wrapped handler returns [`Response`].
///
/// The [`ResponseRules`] decide which responses complete a request and are stored. Any other response frees the key.
///
/// ```
/// use axum::Json;
/// use axum::http::StatusCode;
/// use axum::response::IntoResponse;
/// use idempotent_macros::idempotent;
/// use idempotent_tower::{Http, IdempotencyKey};
///
/// #[idempotent(scene = rest, key = key, fingerprint = order, tenant = (), reply = Http, detach, crate = ::idempotent_core)]
/// async fn create(key: IdempotencyKey, Json(order): Json<String>) -> impl IntoResponse {
///     (StatusCode::CREATED, Json(order))
/// }
///
/// let _: axum::Router = axum::Router::new().route("/orders", axum::routing::post(create));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Http<C = DefaultHttpRules>(PhantomData<C>);

impl<C> Http<C> {
    /// Converts the output of a handler into a [`Response`] while its concrete type is known.
    #[doc(hidden)]
    pub fn unified<R, F, Fut>(run: F) -> impl FnOnce() -> Map<Fut, fn(R) -> Response>
    where
        R: IntoAxumResponse,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        move || run().map(R::answer as fn(R) -> Response)
    }
}

/// A type that [`Http`] accepts: any [`IntoResponse`]. This trait provides the error message for other types.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`reply = Http` does not support `{Self}`",
    label = "axum cannot convert this type into a response",
    note = "return a type that axum accepts from handlers: `impl IntoResponse`, `Json<T>`, `Response`, a tuple that begins \
            with a status, or a `Result` of these whose error is a response, too"
)]
pub trait IntoAxumResponse {
    fn answer(self) -> Response;
}

#[diagnostic::do_not_recommend]
impl<R: IntoResponse> IntoAxumResponse for R {
    fn answer(self) -> Response {
        self.into_response()
    }
}

impl<C> ResponseShape for Http<C> {
    type Output<R> = Response;
}

impl<C: HttpRules, R: IntoResponse> ReplyStrategy<R> for Http<C> {
    type Value = StoredResponse<Body>;
    type Failure = axum::http::Response<ResponseBody<Body>>;

    // This is not an `async fn`, because its future would hold `R` and be `Send` only if `R` is.
    fn split(reply: R) -> impl Future<Output = HandlerOutcome<StoredResponse<Body>, Self::Failure>> {
        classify(reply.into_response(), rules::<C>(), false)
    }

    fn value(kept: StoredResponse<Body>) -> Response {
        match kept.into_response() {
            Ok(response) => response.map(Body::new),
            Err(location) => not_retained::<C>(location),
        }
    }

    fn replayed(kept: StoredResponse<Body>) -> Response {
        match kept.into_response() {
            Ok(mut response) => {
                let mark = rules::<C>().map_or_else(ReplayHeader::default, |rules| rules.replay_header.clone());
                mark.mark(response.headers_mut());
                response.map(Body::new)
            }
            Err(location) => not_retained::<C>(location),
        }
    }

    fn failure(response: Self::Failure) -> Response {
        response.map(Body::new)
    }

    fn policy() -> Option<Policy> {
        Some(rules::<C>().unwrap_or_default().policy())
    }

    /// Returns the response although it was not recorded, because the effect has happened. A duplicate learns the
    /// outcome from the store.
    fn unrecorded(kept: StoredResponse<Body>, _: Rejection) -> Result<Response, Rejection> {
        Ok(<Self as ReplyStrategy<R>>::value(kept))
    }

    fn describe(response: &Self::Failure) -> Cow<'static, str> {
        format!("answered {}", response.status().as_u16()).into()
    }
}

impl<C: HttpRules, R: IntoResponse> RejectStrategy<R> for Http<C> {
    fn rejected(rejection: Rejection) -> Response {
        problem_response::<C>(rejection.into())
    }
}

/// Returns the rules, or `None` if they panic. The request has still completed.
fn rules<C: HttpRules>() -> Option<Arc<ResponseRules>> {
    catch_panic("HttpRules::rules", C::rules)
}

/// Returns the response to a duplicate whose recorded response has no body.
fn not_retained<C: HttpRules>(location: Option<HeaderValue>) -> Response {
    problem_response::<C>(Problem::new(ProblemKind::ResponseNotRetained).location(location))
}

/// Converts a problem into a response that no outer layer stores.
fn problem_response<C: HttpRules>(problem: Problem) -> Response {
    let mut response = C::problem(problem);
    response.extensions_mut().insert(Idempotent::release());
    response
}

/// A codec for handlers that return `Result<axum::Json<T>, E>` and do not use [`Http`]: `codec = AxumJson`. It stores
/// the value inside the [`axum::Json`].
#[derive(Clone, Copy, Debug)]
pub struct AxumJson;

impl<T: Serialize + DeserializeOwned> Codec<axum::Json<T>> for AxumJson {
    fn encode(value: &axum::Json<T>) -> Result<Option<Vec<u8>>, CodecError> {
        Json::encode(&value.0)
    }

    fn decode(bytes: Option<&[u8]>) -> Result<axum::Json<T>, CodecError> {
        Json::decode(bytes).map(axum::Json)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use idempotent_core::{StoreError, StoreErrorKind};

    use super::*;

    type Reply = Http<DefaultHttpRules>;

    #[test]
    fn a_failure_is_described_by_its_status() {
        let response = StatusCode::BAD_GATEWAY.into_response().map(ResponseBody::passing);
        assert_eq!(<Reply as ReplyStrategy<Response>>::describe(&response), "answered 502");
    }

    #[test]
    fn a_response_that_was_not_recorded_is_returned() {
        let response = StoredResponse::passing(StatusCode::CREATED.into_response(), None);
        let lost = Rejection::Store(StoreError::new(StoreErrorKind::NotApplied));
        let returned = <Reply as ReplyStrategy<Response>>::unrecorded(response, lost);
        assert!(returned.is_ok_and(|response| response.status() == StatusCode::CREATED));
    }
}

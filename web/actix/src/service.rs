//! The service of the middleware, which handles a request or passes it through.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::error::ErrorBadRequest;
use futures_util::TryFutureExt;
use futures_util::future::{Either, MapOk};
use http::Request;
use idempotent_tower::__private::LocalLayer;

use crate::bodies::PayloadBody;
use crate::heads;
use crate::inner_service::InnerService;
use crate::middleware::ExtensionFn;

/// A service inside an [`IdempotencyMiddleware`](crate::IdempotencyMiddleware).
pub struct IdempotencyService<S> {
    inner: Rc<S>,
    layer: LocalLayer,
    extensions: Vec<Arc<ExtensionFn>>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: Rc<S>, layer: LocalLayer, extensions: Vec<Arc<ExtensionFn>>) -> Self {
        Self { inner, layer, extensions }
    }

    /// Returns the head of a request for the layer, or `None` if the request passes through.
    fn head(&self, request: &ServiceRequest) -> Result<Option<http::request::Parts>, http::Error> {
        if self.layer.bypasses_method(&heads::method(request.method())?) {
            return Ok(None);
        }
        let mut head = heads::request_head(request.request())?;
        for extension in &self.extensions {
            extension(request.request(), &mut head.extensions);
        }
        Ok(Some(head).filter(|head| !self.layer.bypasses(head)))
    }
}

type Passed<S, B> =
    MapOk<<S as Service<ServiceRequest>>::Future, fn(ServiceResponse<B>) -> ServiceResponse<EitherBody<B>>>;
type Handled<B> = Pin<Box<dyn Future<Output = Result<ServiceResponse<EitherBody<B>>, Error>>>>;

/// # Cancellation
/// Dropping the future of a request before its body has arrived has no effect on the store, nor does dropping it while it
/// waits for a run in flight. After that the request continues in its own task, unless `cancel_on_disconnect` is set.
impl<S, B> Service<ServiceRequest> for IdempotencyService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Either<Passed<S, B>, Handled<B>>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let head = match self.head(&request) {
            Ok(Some(head)) => head,
            Ok(None) => return Either::Left(self.inner.call(request).map_ok(ServiceResponse::map_into_left_body)),
            Err(error) => return Either::Right(Box::pin(std::future::ready(Err(ErrorBadRequest(error))))),
        };
        let layer = self.layer.clone();
        let (request, payload) = request.into_parts();
        let body = PayloadBody::new(payload, &head.headers);
        let (inner, handover) = InnerService::new(self.inner.clone(), request);
        Either::Right(Box::pin(async move {
            let response = layer.handle(inner, Request::from_parts(head, body)).await?;
            handover.respond(response)
        }))
    }
}

impl<S> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("layer", &self.layer).finish_non_exhaustive()
    }
}

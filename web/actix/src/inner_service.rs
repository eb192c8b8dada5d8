//! The actix service as the layer sees it.
use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse};
use actix_web::error::{ErrorInternalServerError, InternalError};
use actix_web::http::ConnectionType;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};
use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, Response};
use http_body::Body;
use idempotent_tower::{IdempotencyKey, Idempotent, RequestAttempt, RequestBody, ResponseBody};

use crate::bodies::{HandlerBody, LayerBody, PayloadBody};
use crate::heads;

/// A tower service for one request, which calls an actix service.
pub(crate) struct InnerService<S> {
    service: Rc<S>,
    handover: Handover,
}

/// The parts of a request and its response that do not pass through the layer.
#[derive(Clone, Default)]
pub(crate) struct Handover(Rc<HandoverCells>);

#[derive(Default)]
struct HandoverCells {
    /// The request, except while the service has it. actix-web requires that there is no clone while it routes.
    request: Cell<Option<HttpRequest>>,
    /// The head of the service's response, with its extensions and its error.
    response: Cell<Option<HttpResponse<()>>>,
}

/// A mark in the extensions of the service's response. Other responses are those of the layer.
#[derive(Clone, Copy)]
struct FromService;

impl<S> InnerService<S> {
    pub(crate) fn new(service: Rc<S>, request: HttpRequest) -> (Self, Handover) {
        let handover = Handover::default();
        handover.0.request.set(Some(request));
        (Self { service, handover: handover.clone() }, handover)
    }
}

impl<S, B> tower_service::Service<Request<RequestBody<PayloadBody>>> for InnerService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = Response<HandlerBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody<PayloadBody>>) -> Self::Future {
        let (service, handover) = (self.service.clone(), self.handover.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = whole(body).await?;
            let Some(request) = handover.0.request.take() else {
                // The layer calls a service once.
                return Err(ErrorInternalServerError("the request was handled before"));
            };
            if let Some(attempt) = head.extensions.get::<RequestAttempt>() {
                request.extensions_mut().insert(*attempt);
            }
            if let Some(key) = head.extensions.get::<IdempotencyKey>() {
                request.extensions_mut().insert(key.clone());
            }
            let payload = if body.is_empty() { Payload::None } else { Payload::from(body) };
            let response = service.call(ServiceRequest::from_parts(request, payload)).await?;
            Ok(handover.split(response))
        })
    }
}

/// Returns a body that the layer has read.
async fn whole(body: RequestBody<PayloadBody>) -> Result<Bytes, Error> {
    let mut body = pin!(body);
    // A body in memory is one frame.
    let first = poll_fn(|cx| body.as_mut().poll_frame(cx)).await.transpose()?;
    Ok(first.and_then(|frame| frame.into_data().ok()).unwrap_or_default())
}

impl Handover {
    /// Converts the response of the service for the layer, and keeps the rest.
    fn split<B: MessageBody>(&self, response: ServiceResponse<B>) -> Response<HandlerBody<B>> {
        let (request, response) = response.into_parts();
        let (own, body) = response.into_parts();
        let mut response = Response::new(HandlerBody::new(body));
        *response.status_mut() = heads::status(own.status());
        *response.headers_mut() = heads::headers(own.headers());
        if let Some(decision) = own.extensions().get::<Idempotent>() {
            response.extensions_mut().insert(*decision);
        }
        response.extensions_mut().insert(FromService);
        self.0.request.set(Some(request));
        self.0.response.set(Some(own));
        response
    }

    /// Converts the response of the layer. A response to a request that the service did not return is an error of actix-web
    /// with this response.
    pub(crate) fn respond<B>(
        &self,
        response: Response<ResponseBody<HandlerBody<B>>>,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error>
    where
        B: MessageBody + 'static,
    {
        let (head, body) = response.into_parts();
        let own = self.0.response.take().filter(|_| head.extensions.get::<FromService>().is_some());
        let response = own.map_or_else(|| of_layer(&head), |own| own_head(own, &head));
        let body = BoxBody::new(LayerBody::new(body));
        match self.0.request.take() {
            Some(request) => Ok(ServiceResponse::new(request, response.set_body(EitherBody::right(body)))),
            None => Err(InternalError::from_response(RequestLost, response.set_body(body)).into()),
        }
    }
}

/// Returns the head of the service's response without the headers that the layer has removed.
fn own_head(mut own: HttpResponse<()>, head: &http::response::Parts) -> HttpResponse<()> {
    own.headers_mut().retain(|name, _| head.headers.contains_key(name.as_str()));
    own
}

/// Returns a head for a response of the layer.
fn of_layer(head: &http::response::Parts) -> HttpResponse<()> {
    let mut response = HttpResponse::with_body(heads::actix_status(head.status), ());
    heads::extend(response.headers_mut(), &head.headers);
    // actix-web ignores the header.
    if head.headers.get(CONNECTION).is_some_and(|value| value == "close") {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    if let Some(decision) = head.extensions.get::<Idempotent>() {
        response.extensions_mut().insert(*decision);
    }
    response
}

/// The cause of a response to a request whose handler panicked or was dropped.
#[derive(Debug)]
struct RequestLost;

impl fmt::Display for RequestLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handler did not complete")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_the_layer_that_closes_the_connection_closes_it() {
        for (value, expected) in [("close", ConnectionType::Close), ("upgrade", ConnectionType::KeepAlive)] {
            let (head, ()) = http::Response::builder().header(CONNECTION, value).body(()).unwrap().into_parts();
            assert_eq!(of_layer(&head).head().connection_type(), expected, "{value}");
        }
    }
}

//! The middleware, and its settings.
use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::{Error, HttpRequest};
use http::Extensions;
use idempotent_tower::__private::LocalLayer;
use idempotent_tower::IdempotencyLayer;

use crate::IdempotencyService;

pub(crate) type ExtensionFn = dyn Fn(&HttpRequest, &mut Extensions) + Send + Sync;

/// A middleware that protects handlers against repeated requests, with the decisions of an [`IdempotencyLayer`].
///
/// POST and PATCH requests with an `Idempotency-Key` run once. All other requests pass through untouched. The handler runs
/// in its own task on its worker thread, so a client that disconnects does not stop it.
///
/// Create the layer *outside* of the closure of `HttpServer::new`, and clone the middleware in it. The closure runs once for
/// each worker: an executor with a [`MemoryStore`] that it creates would recognize only duplicates on the same worker.
///
/// The middleware fits `App::wrap`, `Scope::wrap`, `Resource::wrap` and `Route::wrap`. The last `wrap` is the outermost:
/// put authentication, CORS, compression and logging outside, in a later `wrap`.
///
/// ```no_run
/// use actix_web::{App, HttpServer, web};
/// use idempotent_actix_web::IdempotencyMiddleware;
/// use idempotent_core::{Executor, MemoryStore};
/// use idempotent_tower::{Caller, IdempotencyLayer, Principal};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let principal = Principal::from_fn(|head| {
///     let user = head.headers.get("x-user").and_then(|user| user.to_str().ok());
///     Ok(user.map_or_else(Caller::anonymous, Caller::named))
/// });
/// let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), principal);
/// layer.check()?; // fails at the start instead of at each request
/// let once = IdempotencyMiddleware::new(layer);
/// HttpServer::new(move || {
///     App::new().service(web::resource("/orders").wrap(once.clone()).route(web::post().to(async || "ordered")))
/// })
/// .bind(("127.0.0.1", 3000))?
/// .run()
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// [`MemoryStore`]: https://docs.rs/idempotent-rs/latest/idempotent/struct.MemoryStore.html
#[derive(Clone)]
#[must_use]
pub struct IdempotencyMiddleware {
    layer: LocalLayer,
    extensions: Vec<Arc<ExtensionFn>>,
}

impl IdempotencyMiddleware {
    /// Creates a middleware with the settings of this layer. A middleware with invalid settings responds with 500 to each
    /// request that it handles, and logs the reason; [`IdempotencyLayer::check`] returns the reason.
    pub fn new(layer: IdempotencyLayer) -> Self {
        Self { layer: LocalLayer::new(&layer), extensions: Vec::new() }
    }

    /// Adds an extension to the head that the functions of the layer receive, such as those of `Principal::from_fn`, `skip`
    /// and `route`. The head contains no extensions of the actix request, because they need not be `Send`. The function
    /// reads one from the request, for example the user that authentication outside has found. `None` adds nothing.
    ///
    /// ```
    /// use actix_web::HttpMessage;
    /// use http::StatusCode;
    /// use idempotent_actix_web::IdempotencyMiddleware;
    /// # use idempotent_core::{Executor, MemoryStore};
    /// use idempotent_tower::{Caller, Denied, IdempotencyLayer, Principal};
    ///
    /// // Inserted by the authentication outside.
    /// #[derive(Clone)]
    /// struct UserId(u64);
    ///
    /// let principal = Principal::from_fn(|head| match head.extensions.get::<UserId>() {
    ///     Some(user) => Ok(Caller::named(user.0.to_string())),
    ///     None => Err(Denied::status(StatusCode::UNAUTHORIZED)),
    /// });
    /// # let executor = Executor::new(MemoryStore::new());
    /// let once = IdempotencyMiddleware::new(IdempotencyLayer::new(executor, principal))
    ///     .extension(|request| request.extensions().get::<UserId>().cloned());
    /// # drop(once);
    /// ```
    ///
    /// # Default
    /// The address of the peer, as `std::net::SocketAddr`
    pub fn extension<T>(mut self, read: impl Fn(&HttpRequest) -> Option<T> + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
    {
        self.extensions.push(Arc::new(move |request, extensions| {
            if let Some(value) = read(request) {
                extensions.insert(value);
            }
        }));
        self
    }
}

impl<S, B> Transform<S, ServiceRequest> for IdempotencyMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = IdempotencyService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdempotencyService::new(Rc::new(service), self.layer.clone(), self.extensions.clone())))
    }
}

impl fmt::Debug for IdempotencyMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyMiddleware")
            .field("layer", &self.layer)
            .field("extensions", &self.extensions.len())
            .finish()
    }
}

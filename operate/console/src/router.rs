//! The routes.
use std::sync::Arc;

use axum::Router;
use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use crate::error::PageError;
use crate::state::Shared;
use crate::{assets, gate, pages, plan};

/// Returns the routes of a console. A read-only console has no route that changes anything.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/", get(root))
        .route("/assets/{name}", get(assets::asset))
        .route("/audit", get(pages::audit::audit))
        .route("/dead", get(pages::keys::dead))
        .route("/dead-letters", get(pages::letters::letters))
        .route("/delay", get(pages::delay::delay))
        .route("/find", post(pages::find::find))
        .route("/health", get(pages::health::health))
        .route("/healthz", get(async || "ok"))
        .route("/in-flight", get(pages::keys::in_flight))
        .route("/key", get(pages::keys::key))
        .route("/keys", get(pages::keys::keys))
        .route("/login", get(pages::login::form).post(pages::login::login))
        .route("/logout", post(pages::login::logout))
        .route("/order", get(pages::order::order))
        .route("/overview", get(pages::overview::overview))
        .route("/readyz", get(ready))
        .route("/stream", get(pages::order::stream))
        .route("/theme", get(pages::login::theme_choice));
    #[cfg(feature = "__outbox")]
    {
        router = router.route("/outbox", get(pages::outbox::outbox));
    }
    if !shared.is_read_only {
        router = router
            .route("/plan", post(plan::plan))
            .route("/apply", post(plan::apply))
            .route("/task", get(plan::task))
            .route("/cancel", post(plan::cancel));
    }
    let router =
        router.fallback(async || PageError::NotFound).method_not_allowed_fallback(async || PageError::NotFound);
    router.layer(from_fn_with_state(shared.clone(), gate::gate)).with_state(shared)
}

/// Leads to the overview. The link is relative to the mount, which a browser may know with or without its slash.
async fn root(OriginalUri(uri): OriginalUri) -> Redirect {
    match uri.path().rsplit('/').next() {
        Some(mount) if !mount.is_empty() => Redirect::to(&format!("{mount}/overview")),
        _ => Redirect::to("overview"),
    }
}

/// Answers 503 only if no store answers.
async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match shared.readiness.is_ready(&shared.targets.stores).await {
        true => "ok".into_response(),
        false => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

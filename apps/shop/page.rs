//! The page at `/`. It consists of files of this example only, and a content security policy enforces that.
use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub(crate) fn router() -> Router {
    let file = |kind: &'static str, text: &'static str| get(async move || served(kind, text));
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/icon.svg", file("image/svg+xml", include_str!("page/icon.svg")))
        .route("/code", file("text/plain; charset=utf-8", shown(include_str!("main.rs"))))
}

fn served(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}

/// Returns the marked part of the source of this example.
fn shown(source: &'static str) -> &'static str {
    let part = source.split_once("// [shown]\n").and_then(|(_, rest)| rest.split_once("// [/shown]"));
    part.map_or(source, |(part, _)| part)
}

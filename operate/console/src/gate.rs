//! The checks that each request passes, and the security headers of each response.
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::uri::{Authority, Uri};
use http::{Extensions, HeaderMap, Method, StatusCode};

use crate::access::{AccessKind, Throttle, User};
use crate::error::PageError;
use crate::state::Shared;

/// The name of the session cookie.
pub(crate) const SESSION: &str = "idempotent_session";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
/// The longest path with query, in bytes.
const LONGEST_PATH: usize = 8 << 10;
/// The longest time of a request.
const LONGEST_TIME: Duration = Duration::from_secs(30);
/// The cost of a failed login.
const FAILED_LOGIN: Duration = Duration::from_millis(200);
/// The paths below the mount that need no user.
const OPEN: [&str; 5] = ["/", "/healthz", "/login", "/readyz", "/theme"];

/// The authenticated sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) user: User,
    /// The cookie of the session or the name of the host's user, to which form tokens belong. `None` for a bearer token.
    pub(crate) session: Option<String>,
}

/// Admits or refuses a request, and adds the security headers to the response.
pub(crate) async fn gate(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let is_asset = request.uri().path().starts_with("/assets/");
    let mut response = match admit(&shared, request).await {
        Ok(request) => match tokio::time::timeout(LONGEST_TIME, next.run(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        },
        Err(refused) => refused,
    };
    let headers = response.headers_mut();
    // With `no-referrer`, browsers would send `Origin: null` with the forms of these pages.
    let fixed: [(HeaderName, &str); 6] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !(is_asset && headers.contains_key(CACHE_CONTROL)) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

async fn admit(shared: &Shared, request: Request) -> Result<Request, Response> {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if path > LONGEST_PATH {
        return Err(PageError::TooLarge.into_response());
    }
    if !is_known_host(&shared.hosts, host(request.uri(), request.headers())) {
        return Err(PageError::WrongHost.into_response());
    }
    let path = request.uri().path();
    if OPEN.contains(&path) || path.starts_with("/assets/") {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    match visitor(shared, &parts).await {
        Ok(visitor) => {
            parts.extensions.insert(visitor);
            Ok(Request::from_parts(parts, body))
        }
        // A person logs in; a program gets the status.
        Err(PageError::Unauthenticated) if has_login_page(shared, &parts) => Err(Redirect::to("login").into_response()),
        Err(error) => Err(error.into_response()),
    }
}

fn has_login_page(shared: &Shared, parts: &Parts) -> bool {
    let is_page = parts.method == Method::GET && !wants_json(&parts.headers);
    is_page && matches!(shared.access.0, AccessKind::Tokens(_)) && !parts.headers.contains_key(AUTHORIZATION)
}

/// Returns the host and the port that the client has named: in the URI of HTTP/2, otherwise in a header.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = headers.get(HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| uri.authority().map(Authority::as_str))
}

fn is_known_host(hosts: &[String], host: Option<&str>) -> bool {
    hosts.is_empty() || host.is_some_and(|host| hosts.iter().any(|known| known.eq_ignore_ascii_case(host)))
}

/// Returns whether the client prefers JSON to a page.
pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.trim_start().starts_with("application/json"))
}

/// Returns the user of a request.
async fn visitor(shared: &Shared, parts: &Parts) -> Result<Visitor, PageError> {
    let tokens = match &shared.access.0 {
        AccessKind::Host(user_of) => {
            let user = user_of(parts).ok_or(PageError::Unauthenticated)?;
            return Ok(Visitor { session: Some(format!("host {}", user.name)), user });
        }
        AccessKind::Tokens(tokens) => tokens,
    };
    if let Some(header) = parts.headers.get(AUTHORIZATION) {
        // A browser that sends cookies needs a form token, which a program has not.
        if parts.headers.contains_key(COOKIE) {
            return Err(PageError::Invalid("send a bearer token without cookies".into()));
        }
        let token = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
        let user = check_login(shared, address(&parts.extensions), || tokens.user(token?)).await?;
        return Ok(Visitor { user, session: None });
    }
    let cookie = cookie(&parts.headers).ok_or(PageError::Unauthenticated)?;
    let user = shared.sessions.user(cookie).ok_or(PageError::Unauthenticated)?;
    Ok(Visitor { user, session: Some(cookie.to_owned()) })
}

/// Returns the user of a login. A failure takes a moment and is logged, and too many failures of one address get another error.
///
/// A valid token always passes: all users of a proxy have one address, so anyone could lock them out.
pub(crate) async fn check_login(
    shared: &Shared,
    address: Option<IpAddr>,
    user: impl FnOnce() -> Option<User>,
) -> Result<User, PageError> {
    if let Some(user) = user() {
        return Ok(user);
    }
    let failures = shared.throttle.failed(address);
    if failures <= Throttle::MOST {
        let from = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        let more = if failures == Throttle::MOST { "; more failures within a minute are not logged" } else { "" };
        tracing::warn!(from, failures, "a login has failed{more}");
    }
    tokio::time::sleep(FAILED_LOGIN).await;
    Err(if failures <= Throttle::MOST { PageError::Unauthenticated } else { PageError::TooManyLogins })
}

/// Returns the client's address, if the server records it as [`ConnectInfo`].
pub(crate) fn address(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip())
}

/// Returns the value of the session cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    value_of(headers, SESSION)
}

/// Returns the value of a cookie.
pub(crate) fn value_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let mut pairs = cookies.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

//! The login form, and the choice of the theme.
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{HeaderValue, SET_COOKIE};
use http::{HeaderMap, StatusCode, Uri};

use super::{LoginLayout, html, theme};
use crate::access::AccessKind;
use crate::assets;
use crate::error::PageError;
use crate::form::{Fields, OpenForm, UserForm};
use crate::gate::{SESSION, address, check_login, cookie};
use crate::state::Shared;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginView<'a> {
    layout: LoginLayout,
    /// The one-time token of the link that the console has printed.
    token: &'a str,
    is_wrong: bool,
}

pub(crate) async fn form(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    if !matches!(shared.access.0, AccessKind::Tokens(_)) {
        return Err(PageError::NotFound);
    }
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    Ok(view(&headers, query.get("token"), false))
}

fn view(headers: &HeaderMap, token: &str, is_wrong: bool) -> Response {
    html(&LoginView { layout: LoginLayout { theme: theme(headers), version: assets::VERSION }, token, is_wrong })
}

pub(crate) async fn login(State(shared): State<Arc<Shared>>, form: OpenForm) -> Result<Response, PageError> {
    let AccessKind::Tokens(tokens) = &shared.access.0 else { return Err(PageError::NotFound) };
    let user = check_login(&shared, address(&form.parts.extensions), || tokens.user(form.fields.get("access_token")));
    let user = match user.await {
        Ok(user) => user,
        Err(PageError::Unauthenticated) => {
            return Ok((StatusCode::UNAUTHORIZED, view(&form.parts.headers, "", true)).into_response());
        }
        Err(error) => return Err(error),
    };
    let session = shared.sessions.open(user)?;
    Ok(with_cookie(Redirect::to("overview"), &session_cookie(&shared, &session)))
}

pub(crate) async fn logout(State(shared): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    if let Some(cookie) = cookie(&form.parts.headers) {
        shared.sessions.close(cookie);
    }
    let expired = format!("{}; Max-Age=0", session_cookie(&shared, ""));
    Ok(with_cookie(Redirect::to("login"), &expired))
}

/// Stores the choice of light or dark in a cookie, which no other page depends on.
pub(crate) async fn theme_choice(uri: Uri) -> Response {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let theme = match query.get("set") {
        "dark" => "dark",
        "light" => "light",
        _ => "auto",
    };
    let cookie = format!("idempotent_theme={theme}; HttpOnly; SameSite=Strict; Max-Age=31536000");
    with_cookie(Redirect::to("overview"), &cookie)
}

/// Without a path: a browser takes that of this page, also if a proxy strips a prefix.
fn session_cookie(shared: &Shared, value: &str) -> String {
    let secure = if shared.has_secure_cookie { "; Secure" } else { "" };
    format!("{SESSION}={value}; HttpOnly; SameSite=Strict{secure}")
}

fn with_cookie(redirect: Redirect, cookie: &str) -> Response {
    let mut response = redirect.into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

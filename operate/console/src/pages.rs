//! The pages of the console.
pub(crate) mod audit;
pub(crate) mod delay;
pub(crate) mod find;
pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod letters;
pub(crate) mod login;
pub(crate) mod order;
#[cfg(feature = "__outbox")]
pub(crate) mod outbox;
pub(crate) mod overview;
mod view;

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{Html, IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Serialize;

pub(crate) use self::view::{Layout, LoginLayout, or_error, shown};
use crate::error::PageError;
use crate::form::Fields;
use crate::gate::{Visitor, value_of, wants_json};
use crate::state::Shared;

/// A request for a page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) shared: Arc<Shared>,
    pub(crate) visitor: Visitor,
    pub(crate) query: Fields,
    headers: HeaderMap,
}

impl FromRequestParts<Arc<Shared>> for Page {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, PageError> {
        let visitor = parts.extensions.get::<Visitor>().cloned().ok_or(PageError::Unauthenticated)?;
        let query = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        Ok(Self { shared: shared.clone(), visitor, query, headers: parts.headers.clone() })
    }
}

impl Page {
    /// Returns the header and the navigation of a page.
    pub(crate) fn layout(&self, title: &'static str) -> Layout {
        Layout::new(title, &self.shared, &self.visitor, theme(&self.headers))
    }

    /// Returns the page, or its data as JSON for a program.
    pub(crate) fn answer(&self, view: &(impl Template + Serialize)) -> Response {
        if wants_json(&self.headers) { axum::Json(view).into_response() } else { html(view) }
    }

    /// Returns a field of the query, or `None` if the field is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        Some(self.query.get(name)).filter(|value| !value.is_empty())
    }

    /// Returns the number in a field of the query, at most `most`.
    pub(crate) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, PageError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let number = text.parse::<usize>().ok().filter(|number| *number > 0);
        let wrong = || PageError::Invalid(format!("`{name}` is `{}`: expected a number from 1 to {most}", shown(text)));
        Ok(number.ok_or_else(wrong)?.min(most))
    }
}

/// Returns the theme that the reader has chosen, or an empty text.
pub(crate) fn theme(headers: &HeaderMap) -> &'static str {
    match value_of(headers, "idempotent_theme") {
        Some("dark") => "dark",
        Some("light") => "light",
        _ => "",
    }
}

/// Returns a rendered page.
pub(crate) fn html(view: &impl Template) -> Response {
    match view.render() {
        Ok(text) => Html(text).into_response(),
        // The templates are checked when this crate is built, so only a failed write remains.
        Err(error) => {
            tracing::error!(%error, "a page of the console cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorView<'a> {
    status: u16,
    text: &'a str,
}

/// Returns the page of an error.
pub(crate) fn error(status: StatusCode, text: &str) -> Response {
    html(&ErrorView { status: status.as_u16(), text })
}

//! The errors that a page can have.
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::pages;

/// An error of a whole request. A failed target is no error: its panel shows the text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("this page does not exist")]
    NotFound,
    #[error("the console has no target of this name")]
    NoTarget,
    #[error("{0}")]
    Invalid(String),
    #[error("log in first")]
    Unauthenticated,
    #[error("this role may not do that")]
    Forbidden,
    #[error("the form is stale or comes from another site: load the page again")]
    Forged,
    #[error("this plan has expired or belongs to another user: select the entries again")]
    Stale,
    #[error("too many failed logins: wait a minute")]
    TooManyLogins,
    #[error("other requests use this target: try again")]
    Busy,
    #[error("the request is too large")]
    TooLarge,
    #[error("the console answers only to its own host names")]
    WrongHost,
    #[error("the console has no random numbers from the operating system")]
    Random,
}

impl PageError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::NoTarget => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::Forged => StatusCode::FORBIDDEN,
            Self::Stale => StatusCode::CONFLICT,
            Self::TooManyLogins => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Random => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<getrandom::Error> for PageError {
    fn from(_: getrandom::Error) -> Self {
        Self::Random
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, pages::error(status, &self.to_string())).into_response();
        let seconds = match self {
            Self::TooManyLogins => 60,
            Self::Busy => 1,
            _ => return response,
        };
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
        response
    }
}

//! The files of the pages, which are part of the program.
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::error::PageError;

/// The version in the links to the files, so that a browser may keep them for a year.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const FILES: [(&str, &str, &str); 3] = [
    ("console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("../assets/console.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

pub(crate) async fn asset(Path(name): Path<String>) -> Result<Response, PageError> {
    let file = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = file.ok_or(PageError::NotFound)?;
    let headers = [(CONTENT_TYPE, *kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, *text).into_response())
}

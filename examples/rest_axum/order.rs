//! What is ordered, and how a caller wants the handler to behave: slow, failing, panicking.
use axum::Json;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) sku: String,
    qty: i64,
    /// The handler takes this long.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    fail: Option<Fail>,
    /// Only the first so many runs of this `sku` fail.
    fail_times: Option<u64>,
    /// The answer sets a cookie.
    #[serde(default)]
    cookie: bool,
    /// The handler itself compresses its answer.
    #[serde(default)]
    gzip: bool,
}

#[derive(Serialize)]
struct Receipt<'a> {
    order_id: &'a str,
    sku: &'a str,
    qty: i64,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) enum Fail {
    #[serde(rename = "500")]
    Server,
    #[serde(rename = "400")]
    Client,
    #[serde(rename = "panic")]
    Panic,
}

impl Order {
    /// Fails as asked; `run` counts the runs of this `sku`, this one included.
    pub(crate) fn rehearse(&self, run: u64) -> Result<(), Failed> {
        let fail = match (self.fail, self.fail_times) {
            (_, Some(times)) if run > times => return Ok(()),
            (fail, Some(_)) => fail.unwrap_or(Fail::Server),
            (Some(fail), None) => fail,
            (None, None) => return Ok(()),
        };
        match fail {
            Fail::Server => Err(Failed(StatusCode::INTERNAL_SERVER_ERROR)),
            Fail::Client => Err(Failed(StatusCode::BAD_REQUEST)),
            #[allow(clippy::panic, reason = "the request asks for it")]
            Fail::Panic => panic!("run {run} panics, as the request asks"),
        }
    }

    /// The answer: it is placed.
    pub(crate) fn placed(&self, status: StatusCode, id: &str) -> Response {
        let receipt = Receipt { order_id: id, sku: &self.sku, qty: self.qty };
        let mut headers = HeaderMap::new();
        let mut set = |name, value: String| {
            // Of hexadecimal digits: always a header's value.
            headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        };
        set(LOCATION, format!("/orders/{id}"));
        if self.cookie {
            set(SET_COOKIE, format!("last_order={id}; Path=/; HttpOnly; SameSite=Lax"));
        }
        if !self.gzip {
            return (status, headers, Json(receipt)).into_response();
        }
        set(CONTENT_ENCODING, "gzip".to_owned());
        set(CONTENT_TYPE, "application/json".to_owned());
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let json = serde_json::to_writer(&mut gzip, &receipt).map_err(std::io::Error::from);
        match json.and_then(|()| gzip.finish()) {
            Ok(bytes) => (status, headers, bytes).into_response(),
            Err(_) => Failed(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        }
    }
}

/// An order that was not placed: its key is free again.
pub(crate) struct Failed(pub(crate) StatusCode);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let told = json!({ "error": "the order was not placed", "status": self.0.as_u16() });
        (self.0, Json(told)).into_response()
    }
}

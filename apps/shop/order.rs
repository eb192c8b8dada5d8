//! Orders, and the failures that a caller can request: delays, errors and panics.
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
    /// The duration of the handler, in milliseconds.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    fail: Option<FailureMode>,
    /// Limits the failures to the first runs of this `sku`.
    fail_times: Option<u64>,
    /// Adds a cookie to the response.
    #[serde(default)]
    cookie: bool,
    /// Compresses the response in the handler.
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
pub(crate) enum FailureMode {
    #[serde(rename = "500")]
    Server,
    #[serde(rename = "400")]
    Client,
    #[serde(rename = "panic")]
    Panic,
}

impl Order {
    /// Fails if the order requests it. `run` is the number of runs of this `sku`, including this one.
    pub(crate) fn rehearse(&self, run: u64) -> Result<(), OrderFailed> {
        let fail = match (self.fail, self.fail_times) {
            (_, Some(times)) if run > times => return Ok(()),
            (fail, Some(_)) => fail.unwrap_or(FailureMode::Server),
            (Some(fail), None) => fail,
            (None, None) => return Ok(()),
        };
        match fail {
            FailureMode::Server => Err(OrderFailed(StatusCode::INTERNAL_SERVER_ERROR)),
            FailureMode::Client => Err(OrderFailed(StatusCode::BAD_REQUEST)),
            #[allow(clippy::panic, reason = "the request asks for it")]
            FailureMode::Panic => panic!("run {run} panics, as the request asks"),
        }
    }

    /// Returns the response to a placed order.
    pub(crate) fn placed(&self, status: StatusCode, id: &str) -> Response {
        let receipt = Receipt { order_id: id, sku: &self.sku, qty: self.qty };
        let mut headers = HeaderMap::new();
        let mut set = |name, value: String| {
            // The id consists of hexadecimal digits, so the header value is valid.
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
            Err(_) => OrderFailed(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        }
    }
}

/// An order that was not placed. Its key is free.
pub(crate) struct OrderFailed(pub(crate) StatusCode);

impl IntoResponse for OrderFailed {
    fn into_response(self) -> Response {
        let told = json!({ "error": "the order was not placed", "status": self.0.as_u16() });
        (self.0, Json(told)).into_response()
    }
}

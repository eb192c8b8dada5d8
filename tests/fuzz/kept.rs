//! The stored form of a response: hostile bytes are rejected or are a response, and a response returns from the layer
//! unchanged.
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use idempotent_core::{Codec, Executor, Json, MemoryStore};
use idempotent_tower::{
    IdempotencyLayer, Principal, ReplayHeader, RequestBody, ResponseRules, StorePolicy, StoredResponse,
};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt};

/// A response, seen from outside.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// The status of the response.
    pub status: u16,
    /// The headers in order, and whether they are sensitive.
    pub headers: Vec<(String, Vec<u8>, bool)>,
    /// The body, or `None` if it was not stored.
    pub body: Option<Vec<u8>>,
    /// The trailers, or `None` if they were not stored.
    pub trailers: Option<Vec<(String, Vec<u8>, bool)>>,
}

/// The functions under test.
#[derive(Debug)]
pub struct Form {
    /// Reads the stored form, or returns the text of the error.
    pub decode: fn(&[u8]) -> Result<Seen, String>,
    /// Returns the response that a duplicate gets.
    pub replay: fn(&Seen) -> Seen,
}

impl Form {
    /// The real functions: the stored form, and the layer.
    pub const REAL: Self = Self { decode, replay };
}

fn decode(bytes: &[u8]) -> Result<Seen, String> {
    let kept = <Json as Codec<StoredResponse<Full<Bytes>>>>::decode(Some(bytes)).map_err(|error| error.to_string())?;
    Ok(Seen {
        status: kept.status().as_u16(),
        headers: lines(kept.headers()),
        body: kept.body().map(|body| body.to_vec()),
        trailers: kept.trailers().map(lines),
    })
}

fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>, bool)> {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), value.as_bytes().to_vec(), value.is_sensitive())
    };
    headers.iter().map(line).collect()
}

/// Checks the input as bytes in a store, and as the headers and body of a response.
pub fn hold(form: &Form, input: &[u8]) -> &'static str {
    let way = read(form, input);
    if let Some(answer) = answer(input) {
        replayed(form, &answer);
    }
    way
}

const TEXTS: [&str; 9] = [
    "invalid name of an external body",
    "unknown format version",
    "invalid status",
    "unexpected end of data",
    "invalid header name",
    "invalid header value",
    "too many headers",
    "trailing bytes",
    "the record contains no response",
];

fn read(form: &Form, bytes: &[u8]) -> &'static str {
    match (form.decode)(bytes) {
        Ok(seen) => {
            assert_eq!((form.decode)(&written(&seen)).as_ref(), Ok(&seen), "one answer, whatever way it is written");
            match &seen.body {
                Some(body) => {
                    assert!(bytes.ends_with(body), "the body is what stands behind the headers");
                    "read"
                }
                None => "read without a body",
            }
        }
        Err(text) => {
            let (_, why) = text.rsplit_once(": ").expect("it says why");
            assert!(TEXTS.contains(&why), "nothing of what was kept is told: {text}");
            "refused"
        }
    }
}

/// Returns the stored form, as its documentation specifies it.
fn written(seen: &Seen) -> Vec<u8> {
    let flags = u8::from(seen.body.is_none()) | if seen.trailers.is_some() { 2 } else { 0 };
    let mut out = vec![1, flags];
    out.extend(seen.status.to_be_bytes());
    for lines in [Some(&seen.headers), seen.trailers.as_ref()].into_iter().flatten() {
        out.extend(u16::try_from(lines.len()).expect("a header map has fewer").to_be_bytes());
        for (name, value, sensitive) in lines {
            out.extend(u16::try_from(name.len()).expect("a name is shorter").to_be_bytes());
            out.extend(name.as_bytes());
            let length = u32::try_from(value.len()).expect("a value is shorter") | u32::from(*sensitive) << 31;
            out.extend(length.to_be_bytes());
            out.extend(value);
        }
    }
    out.extend(seen.body.iter().flatten());
    out
}

/// Creates a response from the input: its status, some headers, and the rest as its body.
fn answer(input: &[u8]) -> Option<Seen> {
    let (&[status, count], mut rest) = input.split_first_chunk::<2>()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count % 8 {
        let (&[name, length], more) = rest.split_first_chunk::<2>()?;
        let (value, more) = more.split_at_checked(usize::from(length % 32))?;
        let name = HeaderName::from_static(NAMES[usize::from(name) % NAMES.len()]);
        let mut value = HeaderValue::from_bytes(value).ok()?;
        value.set_sensitive(length & 0x80 != 0);
        headers.append(name, value);
        rest = more;
    }
    let status = 200 + u16::from(status);
    Some(Seen { status, headers: lines(&headers), body: Some(rest.to_vec()), trailers: None })
}

const NAMES: [&str; 8] = ["x-a", "x-b", "location", "vary", "set-cookie", "connection", "content-encoding", "date"];

/// Checks that the response is replayed unchanged, except for parts that are never stored (decisions 15 and 16).
fn replayed(form: &Form, answer: &Seen) {
    let found = (form.replay)(answer);
    let named = answer.headers.iter().filter(|(name, ..)| name == "connection");
    let named = named.filter_map(|(_, value, _)| HeaderValue::from_bytes(value).ok()?.to_str().ok().map(str::to_owned));
    let hops: Vec<String> = named
        .flat_map(|list| list.split(',').map(|hop| hop.trim().to_ascii_lowercase()).collect::<Vec<_>>())
        .chain(["connection", "set-cookie", "date"].map(str::to_owned))
        .collect();
    let kept = answer.headers.iter().filter(|(name, ..)| !hops.contains(name)).cloned().collect();
    assert_eq!(found, Seen { headers: kept, ..answer.clone() });
}

fn replay(answer: &Seen) -> Seen {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime =
        runtime.get_or_insert_with(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
    let seen = runtime.block_on(async {
        let rules = ResponseRules::default().store(StorePolicy::All).replay_header(ReplayHeader::None);
        let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none()).response(rules);
        let answer = Arc::new(answer.clone());
        let service = layer.layer(tower::service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
            let response = response(&answer);
            async move { Ok::<_, Infallible>(response) }
        }));
        let ask = || {
            let ask = Request::post("/").header("idempotency-key", "k").body(Full::new(Bytes::new()));
            service.clone().oneshot(ask.expect("a request"))
        };
        ask().await.expect("it cannot fail");
        let (parts, body) = ask().await.expect("it cannot fail").into_parts();
        let body = body.collect().await.expect("it cannot fail").to_bytes();
        Seen {
            status: parts.status.as_u16(),
            headers: lines(&parts.headers),
            body: Some(body.to_vec()),
            trailers: None,
        }
    });
    // The runtime runs the task of the dropped executor, which ends. None of the calls above had to wait.
    runtime.block_on(tokio::task::yield_now());
    seen
}

fn response(answer: &Seen) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body.clone().unwrap_or_default().into()));
    *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status");
    for (name, value, sensitive) in &answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let mut value = HeaderValue::from_bytes(value).expect("a value");
        value.set_sensitive(*sensitive);
        response.headers_mut().append(name, value);
    }
    response
}

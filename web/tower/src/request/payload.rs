//! The fingerprint of a request, by which a key that was reused for another request is recognized.
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http::request::Parts;
use idempotent_core::{Fingerprint, Fingerprinter};
use serde_json::Value;

use crate::request::multipart::{self, boundary};
use crate::request::unambiguous_json::unambiguous;

type FingerprintFn = dyn Fn(&Parts, &Bytes) -> Option<Fingerprint> + Send + Sync;

/// The comparison of two requests with the same key. The layer rejects a request whose key was used for a different
/// request.
///
/// Method, path and query always count. Headers never do, because tracing headers differ between attempts. Path and
/// query are as the client sent them, even inside axum's `nest`. The body counts as it was sent: the same content with another
/// `Content-Encoding` is another body.
#[derive(Clone)]
#[must_use]
pub struct PayloadCheck(CheckKind);

#[derive(Clone)]
enum CheckKind {
    Bytes,
    Json(Arc<[Box<str>]>),
    By(Arc<FingerprintFn>),
    Off,
}

impl PayloadCheck {
    /// Compares the bytes of the body, regardless of how they were split into frames. This is the default.
    ///
    /// Of a multipart body, such as a form with files, compares the bytes of each part with its headers. The boundary between
    /// parts does not count, because a client chooses another one for each attempt.
    pub fn bytes() -> Self {
        Self(CheckKind::Bytes)
    }

    /// Compares the JSON value of the body, regardless of white space and the order of fields. If the body is not JSON, or
    /// if parsers could read it differently, it is compared as with [`bytes`](Self::bytes). Examples of the latter are
    /// duplicate field names and numbers with more than 15 digits.
    pub fn canonical_json() -> Self {
        Self(CheckKind::Json(Arc::from([])))
    }

    /// Ignores the field that a JSON pointer (RFC 6901) names, such as a timestamp: `"/sent_at"`. The pointer cannot
    /// name an element of an array. Applies only to [`canonical_json`](Self::canonical_json); other checks ignore it.
    pub fn exclude(self, pointer: impl Into<String>) -> Self {
        match self.0 {
            CheckKind::Json(excluded) => {
                let new = pointer.into().into_boxed_str();
                Self(CheckKind::Json(excluded.iter().cloned().chain([new]).collect()))
            }
            other => Self(other),
        }
    }

    /// Compares a fingerprint that a function computes from the head and body of the request, in addition to method,
    /// path and query.
    ///
    /// If the function returns `None`, only method, path and query count. Such a request differs from each request for
    /// which the function returns a fingerprint. A layer without keys ([`by_param`](crate::IdempotencyLayer::by_param))
    /// rejects such a request with 400, because nothing distinguishes it from others.
    pub fn by(fingerprint: impl Fn(&Parts, &Bytes) -> Option<Fingerprint> + Send + Sync + 'static) -> Self {
        Self(CheckKind::By(Arc::new(fingerprint)))
    }

    /// Ignores the body: a request with the same key and another body counts as a duplicate.
    pub fn off() -> Self {
        Self(CheckKind::Off)
    }

    /// Starts a fingerprint that the body extends as it arrives, if the check supports that.
    pub(crate) fn begin(&self, parts: &Parts) -> Option<Fingerprinter> {
        match self.0 {
            CheckKind::Bytes if boundary(&parts.headers).is_none() => Some(of_head(parts)),
            CheckKind::Bytes | CheckKind::Json(_) | CheckKind::By(_) | CheckKind::Off => None,
        }
    }

    /// Returns the fingerprint: the one that `begin` started, or one of the complete body.
    pub(crate) fn finish(&self, begun: Option<Fingerprinter>, parts: &Parts, body: &Bytes) -> Option<Fingerprint> {
        match (&self.0, begun) {
            (_, Some(begun)) => Some(begun.finish()),
            (CheckKind::Json(excluded), None) => Some(of_json(parts, body, excluded)),
            (CheckKind::By(by), None) => by(parts, body).map(|own| {
                let mut all = of_head(parts);
                all.push(own.to_bytes());
                all.finish()
            }),
            (CheckKind::Bytes, None) => Some(of_bytes(parts, body)),
            (CheckKind::Off, None) => Some(of_target(parts)),
        }
    }
}

impl fmt::Debug for PayloadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CheckKind::Bytes => "PayloadCheck::bytes()",
            CheckKind::Json(_) => "PayloadCheck::canonical_json()",
            CheckKind::By(_) => "PayloadCheck::by(…)",
            CheckKind::Off => "PayloadCheck::off()",
        })
    }
}

/// Returns the fingerprint of method, path and query.
pub(crate) fn of_target(parts: &Parts) -> Fingerprint {
    of_head(parts).finish()
}

/// Returns the fingerprint of method, path, query and body.
pub(crate) fn of_bytes(parts: &Parts, body: &Bytes) -> Fingerprint {
    let mut all = of_head(parts);
    push_body(&mut all, parts, body);
    all.finish()
}

/// Appends the bytes of a body, or those of each part of a multipart body.
fn push_body(all: &mut Fingerprinter, head: &Parts, body: &Bytes) {
    match boundary(&head.headers).and_then(|boundary| multipart::parts(body, boundary)) {
        Some(parts) => {
            all.part("multipart");
            parts.into_iter().for_each(|part| all.part(part));
        }
        None => all.push(body),
    }
}

/// Starts a fingerprint with method, path and query.
fn of_head(parts: &Parts) -> Fingerprinter {
    let mut head = Fingerprinter::new();
    head.part(parts.method.as_str());
    head.part(target(parts).path_and_query().map_or("", |target| target.as_str()));
    head
}

/// Returns the URI that the client sent. A nested router removes the prefix from the URI of a request, and with it the
/// difference between `/a/orders` and `/b/orders`.
pub(crate) fn target(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

/// Returns the fingerprint of method, path, query and the JSON value of the body.
fn of_json(parts: &Parts, body: &Bytes, excluded: &[Box<str>]) -> Fingerprint {
    let mut all = of_head(parts);
    let json = unambiguous(body).and_then(|mut value| {
        excluded.iter().for_each(|pointer| leave_out(&mut value, pointer));
        Fingerprint::of(&value).ok()
    });
    match json {
        Some(json) => {
            all.push([1]);
            all.push(json.to_bytes());
        }
        None => {
            all.push([0]);
            push_body(&mut all, parts, body);
        }
    }
    all.finish()
}

/// Removes the field that `pointer` names.
fn leave_out(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = value.pointer_mut(parent) {
        fields.remove(&name.replace("~1", "/").replace("~0", "~"));
    }
}

//! The body of a request: read to its end under a limit, and its fingerprint taken on the way.
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http::request::Parts;
use idempotent_core::{Fingerprint, Fingerprinter};
use serde_json::Value;

use crate::request::unambiguous_json::unambiguous;

type By = dyn Fn(&Parts, &Bytes) -> Option<Fingerprint> + Send + Sync;

/// What two requests with one key must have in common to be the same request. Anything else with that key is refused.
///
/// Method, path and query always count, headers never do: tracing headers differ from try to try. Path and query are
/// those the client sent, also behind axum's `nest`.
#[derive(Clone)]
#[must_use]
pub struct PayloadCheck(Check);

#[derive(Clone)]
enum Check {
    Bytes,
    Json(Arc<[Box<str>]>),
    By(Arc<By>),
    Off,
}

impl PayloadCheck {
    /// The body's bytes, however they were cut. The default.
    pub fn bytes() -> Self {
        Self(Check::Bytes)
    }

    /// The body's JSON, whatever the order of its names and its white space. A body that is no JSON counts by its bytes,
    /// and so does one that readers may take for different things: with a name given twice, or with a number of more
    /// digits than all of them keep.
    pub fn canonical_json() -> Self {
        Self(Check::Json(Arc::from([])))
    }

    /// Leaves out what this JSON pointer (RFC 6901) names, such as the time of sending: `"/sent_at"`. Elements of arrays
    /// cannot be left out. Only for [`canonical_json`](Self::canonical_json); no other check looks at it.
    pub fn exclude(self, pointer: impl Into<String>) -> Self {
        match self.0 {
            Check::Json(excluded) => {
                let new = pointer.into().into_boxed_str();
                Self(Check::Json(excluded.iter().cloned().chain([new]).collect()))
            }
            other => Self(other),
        }
    }

    /// By a function of the request's head and body, over method, path and query. Where it says `None` those three alone
    /// count, and such a request is not the same as one of which it says more. Requests without a key
    /// ([`params`](crate::IdempotencyLayer::params)) are refused there (400): nothing tells them apart.
    pub fn by(fingerprint: impl Fn(&Parts, &Bytes) -> Option<Fingerprint> + Send + Sync + 'static) -> Self {
        Self(Check::By(Arc::new(fingerprint)))
    }

    /// The same key with another body is a duplicate all the same.
    pub fn off() -> Self {
        Self(Check::Off)
    }

    /// Takes the body's pieces as they come, if they count as they come.
    pub(crate) fn begin(&self, parts: &Parts) -> Option<Fingerprinter> {
        match self.0 {
            Check::Bytes => Some(of_head(parts)),
            Check::Json(_) | Check::By(_) | Check::Off => None,
        }
    }

    /// The fingerprint, from what was begun or from the whole.
    pub(crate) fn finish(&self, begun: Option<Fingerprinter>, parts: &Parts, body: &Bytes) -> Option<Fingerprint> {
        match (&self.0, begun) {
            (_, Some(begun)) => Some(begun.finish()),
            (Check::Json(excluded), None) => Some(of_json(parts, body, excluded)),
            (Check::By(by), None) => by(parts, body).map(|own| {
                let mut all = of_head(parts);
                all.push(own.to_bytes());
                all.finish()
            }),
            (Check::Bytes | Check::Off, None) => Some(of_target(parts)),
        }
    }
}

impl fmt::Debug for PayloadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Check::Bytes => "PayloadCheck::bytes()",
            Check::Json(_) => "PayloadCheck::canonical_json()",
            Check::By(_) => "PayloadCheck::by(…)",
            Check::Off => "PayloadCheck::off()",
        })
    }
}

/// Of method, path and query alone.
pub(crate) fn of_target(parts: &Parts) -> Fingerprint {
    of_head(parts).finish()
}

/// Returns the fingerprint of method, path, query and body.
#[cfg(feature = "axum")]
pub(crate) fn of_bytes(parts: &Parts, body: &Bytes) -> Fingerprint {
    let mut all = of_head(parts);
    all.push(body);
    all.finish()
}

fn of_head(parts: &Parts) -> Fingerprinter {
    let mut head = Fingerprinter::new();
    head.part(parts.method.as_str());
    head.part(target(parts).path_and_query().map_or("", |target| target.as_str()));
    head
}

/// What the client asked for. Behind a nested router a request's own URI has lost what it begins with, and with it what
/// tells `/a/orders` and `/b/orders` apart.
#[cfg(feature = "axum")]
pub(crate) fn target(parts: &Parts) -> &Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
pub(crate) fn target(parts: &Parts) -> &Uri {
    &parts.uri
}

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
            all.push(body);
        }
    }
    all.finish()
}

fn leave_out(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = value.pointer_mut(parent) {
        fields.remove(&name.replace("~1", "/").replace("~0", "~"));
    }
}

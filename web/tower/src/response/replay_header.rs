//! The header that marks a replayed response.
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header that marks a replayed response. Other responses never have it: the layer removes a header of this name
/// that the handler sets, for example when a proxy passes on the response of another service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReplayHeader {
    /// `Idempotent-Replayed: true`. This is the default, and the most common convention.
    #[default]
    Replayed,
    /// A custom header with the value `true`.
    Named(HeaderName),
    /// `Idempotent-Replayed` and `Idempotency-Replayed`, which some services use.
    Both,
    /// No header.
    None,
}

impl ReplayHeader {
    /// Marks a response as a replay.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        for name in self.names().into_iter().flatten() {
            headers.insert(name, HeaderValue::from_static("true"));
        }
    }

    /// Removes the mark from a response of the handler.
    pub(crate) fn unmark(&self, headers: &mut HeaderMap) {
        for name in self.names().into_iter().flatten() {
            headers.remove(name);
        }
    }

    fn names(&self) -> [Option<&HeaderName>; 2] {
        match self {
            Self::Replayed => [Some(&MARKS[0]), None],
            Self::Named(name) => [Some(name), None],
            Self::Both => [Some(&MARKS[0]), Some(&MARKS[1])],
            Self::None => [None, None],
        }
    }
}

static MARKS: [HeaderName; 2] =
    [HeaderName::from_static("idempotent-replayed"), HeaderName::from_static("idempotency-replayed")];

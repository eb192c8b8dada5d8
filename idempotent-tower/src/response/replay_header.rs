//! The header that marks a replayed response.
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// How a replayed answer is marked. An answer that is none does not have the mark: what the handler itself puts there, as
/// a proxy does that passes on another service's, is taken out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReplayHeader {
    /// `Idempotent-Replayed: true`. The default: most services that mark replays do it so.
    #[default]
    Replayed,
    /// This header, with `true`.
    Named(HeaderName),
    /// `Idempotent-Replayed` and `Idempotency-Replayed`, which others use.
    Both,
    /// Not at all.
    None,
}

impl ReplayHeader {
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        for name in self.names().into_iter().flatten() {
            headers.insert(name, HeaderValue::from_static("true"));
        }
    }

    /// An answer of the handler's own must not read as a replay of ours.
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

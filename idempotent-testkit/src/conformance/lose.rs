//! Calls whose request or reply gets lost.
#![allow(clippy::panic, reason = "law bodies are test code: an answer to a lost call fails the law")]
use std::future::Future;

use idempotent_core::{StoreError, StoreErrorKind};

use super::Subject;
use super::subject::must;
use crate::{FaultStore, Verb};

/// Where the next call gets lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Lose {
    /// Before it is sent: the connection is refused. Surely nothing is done.
    Connection,
    /// On its way: nothing is done, and the caller cannot know.
    Request,
    /// On its way back: it is done, and the caller cannot know.
    Reply,
}

impl Lose {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Connection, Self::Request, Self::Reply];

    /// Whether an error of this kind says what is known.
    pub(crate) fn may_be(self, kind: StoreErrorKind) -> bool {
        match self {
            Self::Connection => kind == StoreErrorKind::NotApplied,
            Self::Request => matches!(kind, StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous),
            Self::Reply => kind == StoreErrorKind::Ambiguous,
        }
    }
}

/// Makes the next call of a verb get lost. A [`FaultStore`] is one, for the store in it; so is a function.
pub trait Loses: Send + Sync {
    /// The next call of `verb` on the subject's store gets lost there, and only that one.
    fn lose(&self, verb: Verb, at: Lose);
}

impl Loses for FaultStore {
    fn lose(&self, verb: Verb, at: Lose) {
        match at {
            Lose::Connection => self.fail_before(verb, 1),
            Lose::Request => self.lose_request(verb, 1),
            Lose::Reply => self.lose_reply(verb, 1),
        }
    }
}

impl<F: Fn(Verb, Lose) + Send + Sync> Loses for F {
    fn lose(&self, verb: Verb, at: Lose) {
        self(verb, at);
    }
}

impl Subject {
    /// Loses this call. By the subject's own way if it offers one, which also shows the error; else the law does it:
    /// it does not send the call, or throws the answer away.
    pub(crate) async fn lost<T>(
        &self,
        verb: Verb,
        at: Lose,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<StoreError> {
        match (&self.losing, at) {
            (Some(losing), _) => {
                losing.lose(verb, at);
                match call.await {
                    Err(error) => Some(error),
                    Ok(_) => panic!("a {verb:?} that was to get lost ({at:?}) was answered"),
                }
            }
            (None, Lose::Reply) => {
                must("a call whose answer is thrown away", call.await);
                None
            }
            (None, Lose::Connection | Lose::Request) => None,
        }
    }
}

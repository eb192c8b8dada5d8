//! Calls whose request or reply gets lost.
#![allow(clippy::panic, reason = "law bodies are test code: an answer to a lost call fails the law")]
use std::future::Future;

use idempotent_core::{StoreError, StoreErrorKind};

use super::Subject;
use super::subject::must;
use crate::{FaultStore, StoreOperation};

/// Where the next call gets lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostPart {
    /// Before it is sent: the connection is refused. Surely nothing is done.
    Connection,
    /// On its way: nothing is done, and the caller cannot know.
    Request,
    /// On its way back: it is done, and the caller cannot know.
    Reply,
}

impl LostPart {
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
pub trait LossInjector: Send + Sync {
    /// The next call of `verb` on the subject's store gets lost there, and only that one.
    fn lose(&self, verb: StoreOperation, at: LostPart);
}

impl LossInjector for FaultStore {
    fn lose(&self, verb: StoreOperation, at: LostPart) {
        match at {
            LostPart::Connection => self.fail_before(verb, 1),
            LostPart::Request => self.lose_request(verb, 1),
            LostPart::Reply => self.lose_reply(verb, 1),
        }
    }
}

impl<F: Fn(StoreOperation, LostPart) + Send + Sync> LossInjector for F {
    fn lose(&self, verb: StoreOperation, at: LostPart) {
        self(verb, at);
    }
}

impl Subject {
    /// Loses this call. By the subject's own way if it offers one, which also shows the error; else the law does it:
    /// it does not send the call, or throws the answer away.
    pub(crate) async fn lost<T>(
        &self,
        verb: StoreOperation,
        at: LostPart,
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
            (None, LostPart::Reply) => {
                must("a call whose answer is thrown away", call.await);
                None
            }
            (None, LostPart::Connection | LostPart::Request) => None,
        }
    }
}

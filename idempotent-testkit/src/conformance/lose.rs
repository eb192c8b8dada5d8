//! Calls whose request or reply is lost.
#![allow(clippy::panic, reason = "law bodies are test code: an answer to a lost call fails the law")]
use std::future::Future;

use idempotent_core::{StoreError, StoreErrorKind};

use super::Subject;
use super::subject::must;
use crate::{FaultStore, StoreOperation};

/// The part of the next call that is lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostPart {
    /// Before the request is sent: the connection is refused. The call was certainly not applied.
    Connection,
    /// The request: the call is not applied, which the caller cannot know.
    Request,
    /// The reply: the call is applied, which the caller cannot know.
    Reply,
}

impl LostPart {
    /// All parts.
    pub const ALL: &'static [Self] = &[Self::Connection, Self::Request, Self::Reply];

    /// Returns whether an error of this kind is correct.
    pub(crate) fn may_be(self, kind: StoreErrorKind) -> bool {
        match self {
            Self::Connection => kind == StoreErrorKind::NotApplied,
            Self::Request => matches!(kind, StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous),
            Self::Reply => kind == StoreErrorKind::Ambiguous,
        }
    }
}

/// Loses the next call of an operation. Implemented by [`FaultStore`], for its wrapped store, and by functions.
pub trait LossInjector: Send + Sync {
    /// Loses the next call of `verb` on the subject's store at this part, and only that call.
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
    /// Loses this call. If the subject offers a way, that also shows the error. Otherwise, the law does not send the
    /// call, or discards the answer.
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

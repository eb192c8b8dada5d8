//! A call that waits for its answer, whatever its kind.
use async_trait::async_trait;
use idempotent_core::protocol::Write;
use idempotent_core::{Key, Record, StoreError, StoreErrorKind, Timestamp};
use tokio::sync::oneshot;

use super::connection::ConnectionGuard;
use super::record_access::RecordAccess;
use super::requests::Request;
use crate::answer;

#[async_trait]
pub(super) trait QueuedCall: Send + Sync {
    fn key(&self) -> &Key;
    fn number(&self) -> u64;
    /// Takes the protocol's answer.
    fn step(&mut self, found: Option<&Record>, now: Timestamp) -> Write;
    /// Takes it only if the record stays as it is.
    fn look(&mut self, found: Option<&Record>, now: Timestamp);
    fn fail(&mut self, error: StoreError);
    /// Sends it in a statement of its own.
    async fn alone(&mut self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>);
    /// Hands the answer to the caller, if there is one by now.
    fn tell(&mut self);
    /// Returns true if the caller no longer waits.
    fn is_left(&self) -> bool;
}

/// An [`Request`] with the place of its answer.
pub(super) struct QueuedRequest<A: Request> {
    ask: A,
    pub(super) told: Option<Result<A::Answer, StoreError>>,
    caller: Option<oneshot::Sender<Result<A::Answer, StoreError>>>,
    number: u64,
}

impl<A: Request> QueuedRequest<A> {
    /// Creates a call whose answer is read from this value.
    pub(super) fn new(ask: A) -> Self {
        Self { ask, told: None, caller: None, number: 0 }
    }

    /// Creates a call whose answer is sent to the caller.
    pub(super) fn queued(ask: A, number: u64, caller: oneshot::Sender<Result<A::Answer, StoreError>>) -> Self {
        Self { ask, told: None, caller: Some(caller), number }
    }
}

#[async_trait]
impl<A: Request> QueuedCall for QueuedRequest<A> {
    fn key(&self) -> &Key {
        self.ask.key()
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn step(&mut self, found: Option<&Record>, now: Timestamp) -> Write {
        let (told, write) = self.ask.decide(found, now);
        self.told = Some(Ok(told));
        write
    }

    fn look(&mut self, found: Option<&Record>, now: Timestamp) {
        self.told = answer::kept(self.ask.decide(found, now)).map(Ok);
    }

    fn fail(&mut self, error: StoreError) {
        self.told = Some(Err(error));
    }

    async fn alone(&mut self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) {
        self.told = Some(self.ask.alone(access, turn).await);
    }

    fn tell(&mut self) {
        if let Some(told) = self.told.take()
            && let Some(caller) = self.caller.take()
        {
            // A caller that went away wants no answer.
            let _ = caller.send(told);
        }
    }

    fn is_left(&self) -> bool {
        self.caller.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// Answers all calls with the same error.
pub(super) fn fail(jobs: &mut [&mut dyn QueuedCall], error: &StoreError) {
    let (kind, text) = parts(error);
    for job in jobs {
        job.fail(again(kind, &text));
    }
}

/// Returns the kind and text of an error. Errors cannot be cloned, and one error answers several calls.
pub(super) fn parts(error: &StoreError) -> (StoreErrorKind, String) {
    let text = error.to_string();
    let shown = format!("{}: ", error.kind());
    (error.kind(), text.strip_prefix(&shown).unwrap_or_default().to_owned())
}

pub(super) fn again(kind: StoreErrorKind, text: &str) -> StoreError {
    StoreError::new(kind).because(text)
}

/// Returns the error of a call whose runtime ended before the answer.
pub(super) fn gone(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind).because("the runtime that executed the call has ended: retry")
}

//! What was asked, what the store did, and what the caller heard.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::{Claim, OwnerToken, Record, Settled, StoreErrorKind};

use super::StoreOperation;

/// One call in the log of a [`FaultStore`](super::FaultStore). Times are by the clock, since the store was
/// wrapped.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoreCall {
    /// The handle it came through.
    pub worker: Arc<str>,
    /// What was asked.
    pub verb: StoreOperation,
    /// Of which key; `None` for purge and browse.
    pub key: Option<u128>,
    /// By whom; `None` where nobody asks.
    pub owner: Option<OwnerToken>,
    /// What the store answered, heard or not; `None` if it was never asked.
    pub applied: Option<StoreAnswer>,
    /// When the store had answered.
    pub applied_at: Option<Duration>,
    /// What the caller heard; `None` as long as it hangs, or if it was dropped.
    pub answer: Option<StoreAnswer>,
    /// When it was asked.
    pub started: Duration,
    /// When the caller heard.
    pub ended: Option<Duration>,
}

/// An answer of a store, of any verb.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StoreAnswer {
    /// To a claim.
    Claim(Claim),
    /// To a renewal, completion, release, forget or note.
    Settled(Settled),
    /// To a peek.
    Peeked(Option<Record>),
    /// To a purge, a browse or a look at steps: how many. To a look at a line or a change of one: whether.
    Count(usize),
    /// An error, of the store or injected.
    Error(StoreErrorKind),
}

impl StoreCall {
    pub(super) fn new(
        worker: Arc<str>,
        verb: StoreOperation,
        key: Option<u128>,
        owner: Option<OwnerToken>,
        started: Duration,
    ) -> Self {
        Self { worker, verb, key, owner, applied: None, applied_at: None, answer: None, started, ended: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Vec<StoreCall>>);

/// Where in the log a call stands.
#[derive(Clone, Copy)]
pub(super) struct Ticket(usize);

impl Log {
    pub(super) fn begin(&self, call: StoreCall) -> Ticket {
        let mut calls = self.lock();
        calls.push(call);
        Ticket(calls.len() - 1)
    }

    pub(super) fn applied(&self, ticket: Ticket, answer: StoreAnswer, at: Duration) {
        if let Some(call) = self.lock().get_mut(ticket.0) {
            (call.applied, call.applied_at) = (Some(answer), Some(at));
        }
    }

    pub(super) fn end(&self, ticket: Ticket, answer: StoreAnswer, at: Duration) {
        if let Some(call) = self.lock().get_mut(ticket.0) {
            (call.answer, call.ended) = (Some(answer), Some(at));
        }
    }

    pub(super) fn calls(&self) -> Vec<StoreCall> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<StoreCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The log of calls: the request, the store's answer, and the answer that the caller got.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::{Claim, OwnerToken, Record, Settled, StoreErrorKind};

use super::StoreOperation;

/// One call in the log of a [`FaultStore`](super::FaultStore). Times are measured by the clock, from the creation of
/// the store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoreCall {
    /// The handle of the call.
    pub worker: Arc<str>,
    /// The operation.
    pub verb: StoreOperation,
    /// The hash of the key; `None` for purge and search.
    pub key: Option<u128>,
    /// The owner token; `None` for operations without an owner.
    pub owner: Option<OwnerToken>,
    /// The store's answer, delivered or not; `None` if the store was not called.
    pub applied: Option<StoreAnswer>,
    /// The time of the store's answer.
    pub applied_at: Option<Duration>,
    /// The answer to the caller; `None` while the call hangs, or if it was dropped.
    pub answer: Option<StoreAnswer>,
    /// The time of the request.
    pub started: Duration,
    /// The time of the answer to the caller.
    pub ended: Option<Duration>,
}

/// An answer of a store to any operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StoreAnswer {
    /// The answer to a claim.
    Claim(Claim),
    /// The answer to a renewal, completion, release, forget or note.
    Settled(Settled),
    /// The answer to a peek.
    Peeked(Option<Record>),
    /// The number of results of a purge, of a search or of read steps. For an order table, 1 if it was found or
    /// changed, and 0 if not.
    Count(usize),
    /// An error, from the store or injected.
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

/// The position of a call in the log.
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

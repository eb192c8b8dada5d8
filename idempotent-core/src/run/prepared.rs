//! A call that is ready to be claimed.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, InFlightKeys};
use crate::ordering::SequencePosition;
use crate::policy::ResolvedPolicy;
use crate::transaction::TransactionalRun;
use crate::{ClaimHandle, ClaimRequest, DuplicateMessages, Grant, Key, OnConsumed, Rejection, Store};

/// A call with its resolved policy and claim request.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) request: ClaimRequest,
    pub(crate) policy: Arc<ResolvedPolicy>,
    pub(crate) message: Option<DuplicateMessages>,
    /// True if the key must have been issued as a token.
    pub(crate) is_token: bool,
    /// True inside another run. Both may finish while the executor drains.
    pub(crate) is_nested: bool,
    /// The predecessor or position of the call.
    pub(crate) ordering: Option<Box<ResolvedOrdering>>,
    /// The store that runs this call in its transaction.
    pub(crate) transaction_store: Option<Arc<dyn TransactionalRun>>,
    /// The attempt according to the delivery, for runs whose recorded count is rolled back with their transaction.
    pub(crate) delivery_attempt: Option<NonZeroU32>,
}

/// The predecessor of a call by its key, or the position of the call in a stream.
#[derive(Clone)]
pub(crate) enum ResolvedOrdering {
    After(Key),
    Sequence(SequencePosition),
}

impl Prepared {
    /// Returns the proof of a claim whose answer is unknown.
    pub(crate) fn unanswered(&self) -> ClaimHandle {
        ClaimHandle::unanswered(self.request.key.clone(), self.request.owner)
    }

    /// Returns the grant without the attempt that was the issue of a token. A token that has expired after its check has no
    /// such attempt.
    pub(crate) fn without_issue(&self, mut grant: Grant) -> Grant {
        grant.attempt -= u32::from(self.is_token && grant.attempt > 1);
        grant
    }

    /// Returns the store that claims, completes and releases the run.
    pub(crate) fn store<'s>(&'s self, engine: &'s Engine) -> &'s dyn Store {
        self.transaction_store.as_deref().map_or(&*engine.store, |own| own)
    }

    /// Returns the keys that the executor knows to be in flight, if this call may be answered from them. A call with an
    /// order or a transaction asks the store, which decides together with more than the record of the key.
    pub(crate) fn in_flight_keys<'e>(&self, engine: &'e Engine) -> Option<&'e Arc<InFlightKeys>> {
        engine.in_flight_keys.as_ref().filter(|_| self.ordering.is_none() && self.transaction_store.is_none())
    }

    /// Describes the predecessor for operators. Names only the visible part of keys, and no part of an identity.
    pub(crate) fn waits_for(&self) -> String {
        match self.ordering.as_deref() {
            Some(ResolvedOrdering::After(after)) => format!("it comes after `{after}`"),
            Some(ResolvedOrdering::Sequence(position)) => position.to_string(),
            None => String::new(),
        }
    }

    pub(crate) fn refuses_duplicates(&self) -> bool {
        self.policy.on_consumed == OnConsumed::Refuse
    }

    /// Creates the rejection of a duplicate of a run in flight.
    pub(crate) fn in_flight_rejection(&self, retry_after: Duration) -> Rejection {
        Rejection::InFlight { retry_after, message: self.message.clone() }
    }

    /// Creates the rejection of a duplicate without a result. `rest` is the time left of the deduplication window.
    pub(crate) fn duplicate_rejection(&self, rest: Duration) -> Rejection {
        let retry_after = (!self.policy.window.is_zero()).then_some(rest);
        Rejection::Duplicate { retry_after, message: self.message.clone() }
    }
}

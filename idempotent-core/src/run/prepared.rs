//! A call that is ready to be claimed.
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::ordering::SequencePosition;
use crate::policy::ResolvedPolicy;
use crate::transaction::OneRun;
use crate::{ClaimRequest, Fencing, Held, Key, OnConsumed, Rejection, Store};

/// A call made ready to be claimed.
pub(crate) struct Prepared {
    pub(crate) request: ClaimRequest,
    pub(crate) policy: ResolvedPolicy,
    pub(super) message: Option<Arc<str>>,
    /// The key must have been issued before.
    pub(crate) is_token: bool,
    /// Inside another run: that one may finish while the executor drains, and so may this.
    pub(crate) is_nested: bool,
    /// What it comes after.
    pub(crate) ordering: Option<Box<ResolvedOrdering>>,
    /// A store of its own, whose steps are those of its transaction.
    pub(crate) transaction_store: Option<Arc<dyn OneRun>>,
    /// Which attempt it is by the delivery's mark, where the record's count is rolled back with its transaction.
    pub(crate) delivery_attempt: Option<u32>,
}

/// What a call comes after, by its key.
pub(crate) enum ResolvedOrdering {
    After(Key),
    Sequence(SequencePosition),
}

impl Prepared {
    pub(crate) fn held(&self, fencing: Option<Fencing>) -> Held {
        Held { key: self.request.key.clone(), owner: self.request.owner, fencing }
    }

    /// Where the run is claimed, completed and released.
    pub(crate) fn store<'s>(&'s self, engine: &'s Engine) -> &'s dyn Store {
        self.transaction_store.as_deref().map_or(&*engine.store, |own| own)
    }

    /// What it comes after, for people. Names only what keys show: no part of an identity.
    pub(crate) fn waits_for(&self) -> String {
        match self.ordering.as_deref() {
            Some(ResolvedOrdering::After(after)) => format!("it comes after `{after}`"),
            Some(ResolvedOrdering::Sequence(place)) => place.to_string(),
            None => String::new(),
        }
    }

    pub(crate) fn refuses_duplicates(&self) -> bool {
        self.policy.on_consumed == OnConsumed::Refuse
    }

    /// What a duplicate in flight is told.
    pub(crate) fn in_flight_rejection(&self, retry_after: Duration) -> Rejection {
        Rejection::InFlight { retry_after, message: self.message.clone() }
    }

    /// What a duplicate that gets no result is told, with this much left of the window.
    pub(crate) fn duplicate_rejection(&self, rest: Duration) -> Rejection {
        let retry_after = (!self.policy.window.is_zero()).then_some(rest);
        Rejection::Duplicate { retry_after, message: self.message.clone() }
    }
}

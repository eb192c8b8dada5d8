//! Information about the current run, for its handler.
use idempotent_core::{FencingToken, Lease};

/// The run that a request's handler belongs to. The layer inserts it into the request's extensions.
///
/// If the policy does not count attempts, which is the default for REST, a retry after a failure is attempt 1 again.
/// The store keeps nothing about a failed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestAttempt {
    number: u32,
    fencing: FencingToken,
    taken_over: Option<FencingToken>,
}

impl RequestAttempt {
    /// Returns the run that the calling code belongs to, or `None` outside a run.
    #[must_use]
    pub fn current() -> Option<Self> {
        let lease = Lease::current()?;
        Some(Self { number: lease.attempt(), fencing: lease.fencing(), taken_over: lease.taken_over() })
    }

    /// Returns the number of this attempt. The first run of a key has number 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the fencing token of this run. A resource can use it to refuse writes of earlier runs.
    #[must_use]
    pub fn fencing(&self) -> FencingToken {
        self.fencing
    }

    /// Returns the fencing token of the run that this one took over from after its lease had expired. The effect of
    /// that run may have happened.
    #[must_use]
    pub fn taken_over(&self) -> Option<FencingToken> {
        self.taken_over
    }

    /// Returns whether the handler is known to have run for this key before.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.number > 1 || self.taken_over.is_some()
    }
}

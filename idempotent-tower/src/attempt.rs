//! What a handler may want to know of the run it stands in.
use idempotent_core::{Fencing, Lease};

/// The run a request's handler stands in: among the request's extensions, behind the layer.
///
/// A key whose retries are not counted (the default for REST) is at its first attempt again after a failure, since
/// nothing is remembered of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    number: u32,
    fencing: Fencing,
    taken_over: Option<Fencing>,
}

impl Attempt {
    /// The run around this place.
    #[must_use]
    pub fn current() -> Option<Self> {
        let lease = Lease::current()?;
        Some(Self { number: lease.attempt(), fencing: lease.fencing(), taken_over: lease.taken_over() })
    }

    /// 1 for the first run of the key.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// This run's number, for a resource that refuses smaller ones.
    #[must_use]
    pub fn fencing(&self) -> Fencing {
        self.fencing
    }

    /// The number of the run that let its lease end, if this one took over from it: its effect may have happened.
    #[must_use]
    pub fn taken_over(&self) -> Option<Fencing> {
        self.taken_over
    }

    /// Whether the handler is known to have run for this key before.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.number > 1 || self.taken_over.is_some()
    }
}

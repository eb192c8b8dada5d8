//! The description of a delivery, which a consumer passes to the runs inside its handler.
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::claim_admission::ClaimAdmission;
use crate::Redelivery;

/// A description of a delivery, for [`Executor::scope_of_delivery`](crate::Executor::scope_of_delivery).
///
/// A consumer knows facts about its broker that the runs inside its handler need. Only the outermost runs use these
/// facts: a run nested in another run ignores them.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DeliveryContext {
    pub(crate) redelivery: Option<Arc<Redelivery>>,
    pub(crate) attempt: Option<NonZeroU32>,
    pub(crate) is_logged: bool,
    pub(crate) admission: Option<Arc<dyn ClaimAdmission>>,
    /// A permit for each handler that may run at the same time.
    pub(crate) turns: Option<Arc<Semaphore>>,
}

impl DeliveryContext {
    /// Creates the description of a delivery about which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the redelivery behaviour of the broker.
    ///
    /// A run of the scene `mq`, including an annotated function's, is rejected if its lease or retention does not fit
    /// the redelivery. The error names both.
    pub fn redelivery(mut self, redelivery: Arc<Redelivery>) -> Self {
        self.redelivery = Some(redelivery);
        self
    }

    /// Sets the attempt of the delivery, counted from 1.
    ///
    /// Some runs roll their record back with their transaction ([`ClaimMode::Inside`](crate::ClaimMode::Inside)), so a
    /// failed attempt is not counted in the record. Such a run uses the larger of `attempt` and the recorded count. If
    /// records survive a failure, only the recorded count matters. Several successive runs of one handler share the
    /// attempt, since the message is retried as a whole.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = NonZeroU32::new(attempt);
        self
    }

    /// Declares that a log records the delivery, and that the sender resends messages without a recorded end.
    ///
    /// Only then does a run accept [`OnInFlight::Ack`](crate::OnInFlight::Ack). The consumer must acknowledge a
    /// delivery whose [`RunSummary::acks_in_flight`](crate::RunSummary::acks_in_flight) is true only if the sender
    /// resends this very message.
    pub fn logged(mut self) -> Self {
        self.is_logged = true;
        self
    }

    /// Lets a handler start when it has a permit of this semaphore, which it waits for after its claim. A consumer thereby claims keys
    /// ahead of its handlers.
    ///
    /// The lease of a waiting run is renewed. If the run is dropped, its key is released, and its attempt is not counted.
    #[doc(hidden)]
    pub fn turns(mut self, turns: Arc<Semaphore>) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Sets the admission of claims.
    #[doc(hidden)]
    pub fn admission(mut self, admission: Arc<dyn ClaimAdmission>) -> Self {
        self.admission = Some(admission);
        self
    }
}

//! Workers, and a publisher, that are wrong on purpose.
use crate::named::named;

named! {
    /// A deliberate bug, with which a run must violate an invariant.
    pub enum Flaw {
        /// A delivery is acknowledged before it is run.
        AckBeforeRun = "ack-before-run",
        /// A duplicate of what is in flight is acknowledged.
        AckInFlight = "ack-in-flight",
        /// A message goes back to the broker, and its key is not given back.
        RequeueUnreleased = "requeue-unreleased",
        /// A dead letter is its body alone.
        BareDeadLetter = "bare-dead-letter",
        /// The publisher takes whatever it hears for a confirm.
        UnconfirmedPublisher = "unconfirmed-publisher",
    }
}

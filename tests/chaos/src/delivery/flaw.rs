//! Deliberate flaws.
use super::Play;
use crate::named::named;

named! {
    /// A run with it has to be violated.
    pub enum DeliveryFlaw {
        /// The delay queue delivers messages up to 100 ms before they are due.
        TakesEarly = "takes-early",
        /// A consumer commits a message before its handler runs.
        CommitsFirst = "commits-first",
        /// The handler's effect is not bound to its key.
        Unmarked = "unmarked",
        /// A rollback forgets how often a message has come back.
        ResetsCounter = "resets-counter",
        /// A rollback drops the message.
        LosesOnRollback = "loses-on-rollback",
        /// A message that is called off is delivered all the same.
        CancelsNothing = "cancels-nothing",
        /// A message that was not settled in time is not delivered again.
        KeepsHeld = "keeps-held",
        /// A dead letter is dropped.
        BuriesNothing = "buries-nothing",
        /// A message is enqueued outside of the transaction of its effect.
        EnqueuesOutside = "enqueues-outside",
        /// A relay's publisher sends a batch from its end.
        SendsBackwards = "sends-backwards",
        /// The consumer's effect is bound to no key.
        Unbound = "unbound",
        /// The consumer answers, and then runs its handler.
        AnswersFirst = "answers-first",
        /// No alert is sent for a message that was given up.
        TellsNobody = "tells-nobody",
        /// No link waits for the one it comes after.
        IgnoresOrder = "ignores-order",
        /// No number looks at the line of its stream.
        IgnoresLine = "ignores-line",
        /// The producer registers every other number only.
        ForgetsNumber = "forgets-number",
        /// The producer registers each number once it was sent.
        RegistersLate = "registers-late",
        /// A link whose turn has not come is acknowledged.
        DropsWaiting = "drops-waiting",
        /// A producer schedules tasks 100 ms too early.
        SchedulesEarly = "schedules-early",
        /// A task is scheduled outside of the transaction of its row.
        SchedulesOutside = "schedules-outside",
        /// A cancelled task stays in the table.
        KeepsCancelled = "keeps-cancelled",
        /// The effect of a task is bound to no key.
        RunsUnbound = "runs-unbound",
        /// The consumer acknowledges a task, and then runs its handler.
        AcknowledgesFirst = "acknowledges-first",
    }
}

impl DeliveryFlaw {
    /// Returns the play with the flaw, and a word of the finding that the judge must report.
    #[must_use]
    pub fn found(self) -> (Play, &'static str) {
        match self {
            Self::CommitsFirst | Self::LosesOnRollback | Self::KeepsHeld => (Play::Delay, "Q1"),
            Self::TakesEarly => (Play::Delay, "Q2"),
            Self::Unmarked => (Play::Delay, "Q3"),
            Self::ResetsCounter | Self::BuriesNothing => (Play::Delay, "Q4"),
            Self::CancelsNothing => (Play::Delay, "Q5"),
            Self::AnswersFirst => (Play::Outbox, "O1"),
            Self::Unbound => (Play::Outbox, "O2"),
            Self::EnqueuesOutside => (Play::Outbox, "O3"),
            Self::SendsBackwards => (Play::Outbox, "O4"),
            Self::TellsNobody => (Play::Outbox, "O6"),
            Self::DropsWaiting => (Play::Ordering, "R1"),
            Self::IgnoresOrder | Self::IgnoresLine | Self::ForgetsNumber | Self::RegistersLate => {
                (Play::Ordering, "R2")
            }
            Self::AcknowledgesFirst => (Play::DelayTable, "T1"),
            Self::SchedulesEarly => (Play::DelayTable, "T2"),
            Self::SchedulesOutside | Self::KeepsCancelled | Self::RunsUnbound => (Play::DelayTable, "T3"),
        }
    }

    /// Returns the flaws of a play.
    pub fn of(play: Play) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |flaw| flaw.found().0 == play)
    }
}

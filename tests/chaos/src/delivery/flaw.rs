//! Deliberate flaws.
use serde::{Deserialize, Serialize};

use super::Play;

/// A run with it has to be violated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryFlaw {
    /// The delay queue delivers messages up to 100 ms before they are due.
    TakesEarly,
    /// A consumer commits a message before its handler runs.
    CommitsFirst,
    /// The handler's effect is not bound to its key.
    Unmarked,
    /// A rollback forgets how often a message has come back.
    ResetsCounter,
    /// A rollback drops the message.
    LosesOnRollback,
    /// A message that is called off is delivered all the same.
    CancelsNothing,
    /// A message that was not settled in time is not delivered again.
    KeepsHeld,
    /// A dead letter is dropped.
    BuriesNothing,
    /// A message is enqueued outside of the transaction of its effect.
    EnqueuesOutside,
    /// A relay's publisher sends a batch from its end.
    SendsBackwards,
    /// The consumer's effect is bound to no key.
    Unbound,
    /// The consumer answers, and then runs its handler.
    AnswersFirst,
    /// No alert is sent for a message that was given up.
    TellsNobody,
    /// No link waits for the one it comes after.
    IgnoresOrder,
    /// No number looks at the line of its stream.
    IgnoresLine,
    /// The producer registers every other number only.
    ForgetsNumber,
    /// The producer registers each number once it was sent.
    RegistersLate,
    /// A link whose turn has not come is acknowledged.
    DropsWaiting,
    /// A producer schedules tasks 100 ms too early.
    SchedulesEarly,
    /// A task is scheduled outside of the transaction of its row.
    SchedulesOutside,
    /// A cancelled task stays in the table.
    KeepsCancelled,
    /// The effect of a task is bound to no key.
    RunsUnbound,
    /// The consumer acknowledges a task, and then runs its handler.
    AcknowledgesFirst,
}

impl DeliveryFlaw {
    /// All flaws.
    pub const ALL: [Self; 23] = [
        Self::TakesEarly,
        Self::CommitsFirst,
        Self::Unmarked,
        Self::ResetsCounter,
        Self::LosesOnRollback,
        Self::CancelsNothing,
        Self::KeepsHeld,
        Self::BuriesNothing,
        Self::EnqueuesOutside,
        Self::SendsBackwards,
        Self::Unbound,
        Self::AnswersFirst,
        Self::TellsNobody,
        Self::IgnoresOrder,
        Self::IgnoresLine,
        Self::ForgetsNumber,
        Self::RegistersLate,
        Self::DropsWaiting,
        Self::SchedulesEarly,
        Self::SchedulesOutside,
        Self::KeepsCancelled,
        Self::RunsUnbound,
        Self::AcknowledgesFirst,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TakesEarly => "takes-early",
            Self::CommitsFirst => "commits-first",
            Self::Unmarked => "unmarked",
            Self::ResetsCounter => "resets-counter",
            Self::LosesOnRollback => "loses-on-rollback",
            Self::CancelsNothing => "cancels-nothing",
            Self::KeepsHeld => "keeps-held",
            Self::BuriesNothing => "buries-nothing",
            Self::EnqueuesOutside => "enqueues-outside",
            Self::SendsBackwards => "sends-backwards",
            Self::Unbound => "unbound",
            Self::AnswersFirst => "answers-first",
            Self::TellsNobody => "tells-nobody",
            Self::IgnoresOrder => "ignores-order",
            Self::IgnoresLine => "ignores-line",
            Self::ForgetsNumber => "forgets-number",
            Self::RegistersLate => "registers-late",
            Self::DropsWaiting => "drops-waiting",
            Self::SchedulesEarly => "schedules-early",
            Self::SchedulesOutside => "schedules-outside",
            Self::KeepsCancelled => "keeps-cancelled",
            Self::RunsUnbound => "runs-unbound",
            Self::AcknowledgesFirst => "acknowledges-first",
        }
    }

    /// Returns the play with the flaw.
    #[must_use]
    pub fn play(self) -> Play {
        match self {
            Self::EnqueuesOutside | Self::SendsBackwards | Self::Unbound | Self::AnswersFirst | Self::TellsNobody => {
                Play::Outbox
            }
            Self::IgnoresOrder | Self::IgnoresLine | Self::ForgetsNumber | Self::RegistersLate | Self::DropsWaiting => {
                Play::Ordering
            }
            Self::SchedulesEarly
            | Self::SchedulesOutside
            | Self::KeepsCancelled
            | Self::RunsUnbound
            | Self::AcknowledgesFirst => Play::DelayTable,
            _ => Play::Delay,
        }
    }

    /// Returns a word of the finding that the judge must report.
    #[must_use]
    pub fn found_as(self) -> &'static str {
        match self {
            Self::TakesEarly => "Q2",
            Self::CommitsFirst | Self::LosesOnRollback | Self::KeepsHeld => "Q1",
            Self::Unmarked => "Q3",
            Self::ResetsCounter | Self::BuriesNothing => "Q4",
            Self::CancelsNothing => "Q5",
            Self::EnqueuesOutside => "O3",
            Self::SendsBackwards => "O4",
            Self::Unbound => "O2",
            Self::AnswersFirst => "O1",
            Self::TellsNobody => "O6",
            Self::IgnoresOrder | Self::IgnoresLine | Self::ForgetsNumber | Self::RegistersLate => "R2",
            Self::DropsWaiting => "R1",
            Self::AcknowledgesFirst => "T1",
            Self::SchedulesEarly => "T2",
            Self::SchedulesOutside | Self::KeepsCancelled | Self::RunsUnbound => "T3",
        }
    }

    /// Returns the flaw with this name in a play.
    #[must_use]
    pub fn named(play: Play, name: &str) -> Option<Self> {
        Self::of(play).find(|flaw| flaw.name() == name)
    }

    /// Returns the bugs of a play.
    pub fn of(play: Play) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |flaw| flaw.play() == play)
    }
}

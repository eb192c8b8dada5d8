//! The order in which calls run: `after = …` and `sequence = (stream, number)`.
//!
//! A call [`after`](crate::Call::after) another call runs once that call's key is consumed. Until then the call is
//! deferred: its own key is not held, and no attempt is spent. `admission.rs` decides, as a pure function of the state
//! of the two keys; `after.rs` reads the records and carries out the decision.
//!
//! A call with a number in a stream comes after the calls that the stream's order table names. The table is a pure
//! value (`order_table.rs`) that stores keep as bytes ([`OrderStore`](crate::OrderStore)); `sequence.rs` reads and replaces the
//! table.
mod admission;
pub(crate) mod after;
mod encoding;
mod halted;
mod order_table;
mod position;
mod predecessor;
mod predecessor_record;
mod register;
mod registered;
pub(crate) mod sequence;
mod stream;
mod stream_view;
mod wait_marker;

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

pub(crate) use self::halted::given_up;
pub use self::order_table::MAX_WAITING_RANGES;
pub(crate) use self::position::SequencePosition;
pub(crate) use self::predecessor::Named;
pub use self::predecessor::Predecessor;
pub use self::registered::Registered;
pub use self::stream::Stream;
pub use self::stream_view::{AdmittedNumber, StreamBlocker, StreamView, WaitingNumbers};
use crate::units::time;

/// The treatment of a call whose predecessor will not be consumed without intervention.
///
/// Such a predecessor has failed permanently, is dead, or was not seen for the given time. The time counts from the
/// first deferral of the call, by the store's clock. Choose a time longer than the predecessor's retries take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnBrokenOrder {
    /// Holds the call until an operator has fixed the predecessor. The outcome is
    /// [`Outcome::Held`](crate::Outcome::Held), which is counted and logged as a warning.
    ///
    /// The call is held at once after a failed or dead predecessor, and after this time if the predecessor was never
    /// seen. The default, with 10 minutes.
    Hold(#[serde(deserialize_with = "time")] Duration),
    /// Runs the call out of order after this time. Until then, the call is held after a failed or dead predecessor.
    Skip(#[serde(deserialize_with = "time")] Duration),
    /// Marks the call as dead without running it, and so the calls after it. This happens at once after a failed or
    /// dead predecessor, and after this time if the predecessor was never seen.
    Halt(#[serde(deserialize_with = "time")] Duration),
}

impl Default for OnBrokenOrder {
    fn default() -> Self {
        Self::Hold(Duration::from_secs(600))
    }
}

impl OnBrokenOrder {
    /// Returns how long a call waits for a predecessor that was never seen.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self {
            Self::Hold(time) | Self::Skip(time) | Self::Halt(time) => *time,
        }
    }
}

/// The treatment of a [number](crate::Call::sequence) that arrives after a larger number of its stream was admitted,
/// because it was registered or sent too late, or was skipped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLate {
    /// Runs the call, serialized with the rest of its stream, and emits
    /// [`Event::OrderBroken`](crate::Event::OrderBroken). The default.
    #[default]
    Run,
    /// Marks the call as dead without running it.
    Refuse,
}

/// The reason why a call is held, skipped or halted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BrokenOrder {
    /// The predecessor failed permanently.
    Failed,
    /// The predecessor is dead: out of attempts, or parked.
    Dead,
    /// The predecessor was not seen in time: lost, never sent, or expired after its retention.
    Missing,
    /// The call itself is late: a larger number of its stream was admitted before.
    Late,
}

impl BrokenOrder {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Failed => "its predecessor failed for good",
            Self::Dead => "its predecessor is dead",
            Self::Missing => "its predecessor was never seen",
            Self::Late => "a larger number of its stream was let in before",
        }
    }
}

impl fmt::Display for BrokenOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The ordering of a call before its own identity is known: after a call, or at a number of a stream.
#[derive(Clone, Debug)]
pub(crate) enum OrderingRequest {
    After(Named),
    Sequence(Named, u64),
}

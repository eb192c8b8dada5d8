//! The order in which calls run: `after = …` and `sequence = (stream, number)`.
//!
//! A call that comes [`after`](crate::Call::after) another call runs once that call's key is consumed. Until then the call is
//! deferred: its own key is not held, and no attempt is spent. `admission.rs` decides, as a pure function of the state of the
//! two keys; `after.rs` reads and acts.
//!
//! A call with a number in a stream comes after the calls that the stream's order table names. The table is a pure value
//! (`order_table.rs`) that stores keep as bytes ([`Order`](crate::Order)); `sequence.rs` reads and acts.
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
mod wait_marker;

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

pub(crate) use self::halted::given_up;
pub use self::order_table::MAX_LINE;
pub(crate) use self::position::SequencePosition;
pub(crate) use self::predecessor::Named;
pub use self::predecessor::Predecessor;
pub use self::registered::Registered;
pub use self::stream::Stream;
use crate::units::time;

/// What becomes of a call whose predecessor will not be consumed by itself: one that failed for good, is dead, or of which
/// nothing has been seen for a while. The time counts from the moment at which the call was first put off, by the store's
/// clock; it should be longer than the predecessor's retries take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnBrokenOrder {
    /// It is held until a person has put the predecessor right:
    /// [`Outcome::Held`](crate::Outcome::Held), which is counted and logged as a warning. At once after a failed or dead
    /// predecessor, after this time after one that was never seen. The default, with 10 minutes.
    Hold(#[serde(deserialize_with = "time")] Duration),
    /// After this time it runs all the same. Until then it is held after a failed or dead predecessor.
    Skip(#[serde(deserialize_with = "time")] Duration),
    /// It is buried without a run, and so are those after it: at once after a failed or dead predecessor, after this time
    /// after one that was never seen.
    Halt(#[serde(deserialize_with = "time")] Duration),
}

impl Default for OnBrokenOrder {
    fn default() -> Self {
        Self::Hold(Duration::from_secs(600))
    }
}

impl OnBrokenOrder {
    /// How long a predecessor that was never seen is waited for.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self {
            Self::Hold(time) | Self::Skip(time) | Self::Halt(time) => *time,
        }
    }
}

/// What becomes of a [number](crate::Call::sequence) that comes when a larger one of its stream was let in already: it was
/// registered or sent too late, or skipped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLate {
    /// It runs, but not beside another one of its stream, and is told of: [`Event::OrderBroken`](crate::Event::OrderBroken).
    /// The default.
    #[default]
    Run,
    /// It is buried without a run.
    Refuse,
}

/// Why a call's predecessor will not be consumed by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BrokenOrder {
    /// It failed for good.
    Failed,
    /// It is dead: out of attempts, or parked.
    Dead,
    /// It was not seen for as long as it is waited for: lost, never sent, or forgotten after its retention.
    Missing,
    /// It is the call itself that comes too late: a larger number of its stream was let in before.
    Late,
}

impl fmt::Display for BrokenOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "its predecessor failed for good",
            Self::Dead => "its predecessor is dead",
            Self::Missing => "its predecessor was never seen",
            Self::Late => "a larger number of its stream was let in before",
        })
    }
}

/// What a call comes after, once its own identity is known: a call, or what its stream says.
#[derive(Clone, Debug)]
pub(crate) enum OrderingRequest {
    After(Named),
    Sequence(Named, u64),
}

//! Which call has to wait for which: `after = …`, `sequence = (stream, number)`.
//!
//! A call that comes [`after`](crate::Call::after) another runs once that one's key is consumed. Until then it is put off:
//! its own key is not held, and no attempt is spent. What is decided is in [`turn`], a pure function of what is known of
//! the two keys; the executor looks and acts (`executor/turn.rs`).
//!
//! A call that is a number of a stream comes after whatever the stream's order table says is before it: [`Line`], a pure
//! value that stores keep as bytes ([`Order`](crate::Order)); `executor/line.rs` looks and acts by the same [`turn`].
mod halted;
mod line;
mod packed;
mod predecessor;
mod register;
mod stream;

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

pub(crate) use self::halted::{given_up, halted};
pub use self::line::MAX_LINE;
pub(crate) use self::line::{Before, Full, Inside, Line, SeenAt, keep};
pub(crate) use self::packed::{pack, unpack};
pub(crate) use self::predecessor::Named;
pub use self::predecessor::Predecessor;
pub use self::register::Registered;
pub use self::stream::Stream;
use crate::StateKind;
use crate::policy::time;

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

impl BrokenOrder {
    pub(crate) fn words(self) -> &'static str {
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
        f.write_str(self.words())
    }
}

/// What a call comes after, once its own identity is known: a call, or what its stream says.
#[derive(Clone, Debug)]
pub(crate) enum Comes {
    After(Named),
    InLine(Named, u64),
}

/// What is to become of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Its turn has come.
    Run,
    /// The predecessor may yet be consumed.
    Wait,
    /// Put off until a person looks, or its time is over.
    Hold(BrokenOrder),
    /// Its turn, the predecessor notwithstanding.
    Skip(BrokenOrder),
    /// It is buried.
    Halt(BrokenOrder),
}

/// Whose turn it is, by what the predecessor's key is in and how long the call has waited.
pub(crate) fn turn(predecessor: StateKind, waited: Duration, policy: OnBrokenOrder) -> Turn {
    let over = waited >= policy.patience();
    let broken = match predecessor {
        StateKind::Consumed => return Turn::Run,
        // Somebody runs it, or is to: it failed and will be tried again, or waits for its own turn.
        StateKind::Consuming | StateKind::Vacant => return Turn::Wait,
        StateKind::Absent if !over => return Turn::Wait,
        StateKind::Absent => BrokenOrder::Missing,
        StateKind::Failed => BrokenOrder::Failed,
        StateKind::Dead => BrokenOrder::Dead,
    };
    match policy {
        OnBrokenOrder::Skip(_) if over => Turn::Skip(broken),
        OnBrokenOrder::Hold(_) | OnBrokenOrder::Skip(_) => Turn::Hold(broken),
        OnBrokenOrder::Halt(_) => Turn::Halt(broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(60);
    const POLICIES: [OnBrokenOrder; 3] = [OnBrokenOrder::Hold(T), OnBrokenOrder::Skip(T), OnBrokenOrder::Halt(T)];

    #[test]
    fn s0_28_a_consumed_predecessor_lets_run_and_one_that_lives_makes_wait_whatever_the_policy_and_time() {
        for policy in POLICIES {
            for waited in [Duration::ZERO, T, Duration::MAX] {
                assert_eq!(turn(StateKind::Consumed, waited, policy), Turn::Run);
                assert_eq!(turn(StateKind::Consuming, waited, policy), Turn::Wait);
                assert_eq!(turn(StateKind::Vacant, waited, policy), Turn::Wait);
            }
        }
    }

    #[test]
    fn s0_31_a_broken_predecessor_is_dealt_with_as_the_policy_says() {
        let early = T - Duration::from_nanos(1);
        let [hold, skip, halt] = POLICIES;
        for (state, broken) in [(StateKind::Failed, BrokenOrder::Failed), (StateKind::Dead, BrokenOrder::Dead)] {
            assert_eq!(turn(state, Duration::ZERO, hold), Turn::Hold(broken));
            assert_eq!(turn(state, T, hold), Turn::Hold(broken));
            assert_eq!(turn(state, early, skip), Turn::Hold(broken));
            assert_eq!(turn(state, T, skip), Turn::Skip(broken));
            assert_eq!(turn(state, Duration::ZERO, halt), Turn::Halt(broken));
        }
        for policy in POLICIES {
            assert_eq!(turn(StateKind::Absent, early, policy), Turn::Wait);
        }
        assert_eq!(turn(StateKind::Absent, T, hold), Turn::Hold(BrokenOrder::Missing));
        assert_eq!(turn(StateKind::Absent, T, skip), Turn::Skip(BrokenOrder::Missing));
        assert_eq!(turn(StateKind::Absent, T, halt), Turn::Halt(BrokenOrder::Missing));
    }
}

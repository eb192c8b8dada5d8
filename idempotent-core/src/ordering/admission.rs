//! The decision whether a call may run, as a pure function of its predecessor's state.
use std::time::Duration;

use super::{BrokenOrder, OnBrokenOrder};
use crate::StateKind;

/// The decision on a call that comes after another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// The call runs: its predecessor is consumed.
    Run,
    /// The call waits: its predecessor may still be consumed.
    Wait,
    /// The call is held until an operator acts, or until the time of the policy has passed.
    Hold(BrokenOrder),
    /// The call runs although its predecessor is not consumed.
    Skip(BrokenOrder),
    /// The call is buried without a run.
    Halt(BrokenOrder),
}

/// Decides on a call by the state of its predecessor's key and the time for which the call has waited.
pub(crate) fn admission(predecessor: StateKind, waited: Duration, policy: OnBrokenOrder) -> Admission {
    let is_overdue = waited >= policy.patience();
    let broken = match predecessor {
        StateKind::Consumed => return Admission::Run,
        // A worker runs the predecessor or will run it: a failed attempt is retried, or the predecessor waits itself.
        StateKind::Consuming | StateKind::Vacant => return Admission::Wait,
        StateKind::Absent if !is_overdue => return Admission::Wait,
        StateKind::Absent => BrokenOrder::Missing,
        StateKind::Failed => BrokenOrder::Failed,
        StateKind::Dead => BrokenOrder::Dead,
    };
    match policy {
        OnBrokenOrder::Skip(_) if is_overdue => Admission::Skip(broken),
        OnBrokenOrder::Hold(_) | OnBrokenOrder::Skip(_) => Admission::Hold(broken),
        OnBrokenOrder::Halt(_) => Admission::Halt(broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(60);
    const POLICIES: [OnBrokenOrder; 3] = [OnBrokenOrder::Hold(T), OnBrokenOrder::Skip(T), OnBrokenOrder::Halt(T)];

    #[test]
    fn a_consumed_predecessor_admits_the_call_and_a_live_one_makes_it_wait_under_every_policy() {
        for policy in POLICIES {
            for waited in [Duration::ZERO, T, Duration::MAX] {
                assert_eq!(admission(StateKind::Consumed, waited, policy), Admission::Run);
                assert_eq!(admission(StateKind::Consuming, waited, policy), Admission::Wait);
                assert_eq!(admission(StateKind::Vacant, waited, policy), Admission::Wait);
            }
        }
    }

    #[test]
    fn a_broken_predecessor_is_handled_by_the_policy() {
        let early = T - Duration::from_nanos(1);
        let [hold, skip, halt] = POLICIES;
        for (state, broken) in [(StateKind::Failed, BrokenOrder::Failed), (StateKind::Dead, BrokenOrder::Dead)] {
            assert_eq!(admission(state, Duration::ZERO, hold), Admission::Hold(broken));
            assert_eq!(admission(state, T, hold), Admission::Hold(broken));
            assert_eq!(admission(state, early, skip), Admission::Hold(broken));
            assert_eq!(admission(state, T, skip), Admission::Skip(broken));
            assert_eq!(admission(state, Duration::ZERO, halt), Admission::Halt(broken));
        }
        for policy in POLICIES {
            assert_eq!(admission(StateKind::Absent, early, policy), Admission::Wait);
        }
        assert_eq!(admission(StateKind::Absent, T, hold), Admission::Hold(BrokenOrder::Missing));
        assert_eq!(admission(StateKind::Absent, T, skip), Admission::Skip(BrokenOrder::Missing));
        assert_eq!(admission(StateKind::Absent, T, halt), Admission::Halt(BrokenOrder::Missing));
    }
}

//! The decision whether a call may run, as a pure function of its predecessor's state.
use std::time::Duration;

use super::{BrokenOrder, OnBrokenOrder};
use crate::StateKind;

/// The decision about a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// Run the call.
    Run,
    /// Defer the call: the predecessor may still be consumed.
    Wait,
    /// Defer the call until an operator intervenes or its time has passed.
    Hold(BrokenOrder),
    /// Run the call although its predecessor was not consumed.
    Skip(BrokenOrder),
    /// Mark the call as dead.
    Halt(BrokenOrder),
}

/// Decides by the state of the predecessor's key and the time for which the call has waited.
pub(crate) fn decide_admission(predecessor: StateKind, waited: Duration, policy: OnBrokenOrder) -> Admission {
    let is_over = waited >= policy.patience();
    let broken = match predecessor {
        StateKind::Consumed => return Admission::Run,
        // The predecessor is running, will be retried, or waits itself.
        StateKind::Consuming | StateKind::Vacant => return Admission::Wait,
        StateKind::Absent if !is_over => return Admission::Wait,
        StateKind::Absent => BrokenOrder::Missing,
        StateKind::Failed => BrokenOrder::Failed,
        StateKind::Dead => BrokenOrder::Dead,
    };
    match policy {
        OnBrokenOrder::Skip(_) if is_over => Admission::Skip(broken),
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
    fn a_consumed_predecessor_admits_and_a_live_one_defers_under_every_policy() {
        for policy in POLICIES {
            for waited in [Duration::ZERO, T, Duration::MAX] {
                assert_eq!(decide_admission(StateKind::Consumed, waited, policy), Admission::Run);
                assert_eq!(decide_admission(StateKind::Consuming, waited, policy), Admission::Wait);
                assert_eq!(decide_admission(StateKind::Vacant, waited, policy), Admission::Wait);
            }
        }
    }

    #[test]
    fn the_policy_decides_after_a_broken_predecessor() {
        let early = T - Duration::from_nanos(1);
        let [hold, skip, halt] = POLICIES;
        for (state, broken) in [(StateKind::Failed, BrokenOrder::Failed), (StateKind::Dead, BrokenOrder::Dead)] {
            assert_eq!(decide_admission(state, Duration::ZERO, hold), Admission::Hold(broken));
            assert_eq!(decide_admission(state, T, hold), Admission::Hold(broken));
            assert_eq!(decide_admission(state, early, skip), Admission::Hold(broken));
            assert_eq!(decide_admission(state, T, skip), Admission::Skip(broken));
            assert_eq!(decide_admission(state, Duration::ZERO, halt), Admission::Halt(broken));
        }
        for policy in POLICIES {
            assert_eq!(decide_admission(StateKind::Absent, early, policy), Admission::Wait);
        }
        assert_eq!(decide_admission(StateKind::Absent, T, hold), Admission::Hold(BrokenOrder::Missing));
        assert_eq!(decide_admission(StateKind::Absent, T, skip), Admission::Skip(BrokenOrder::Missing));
        assert_eq!(decide_admission(StateKind::Absent, T, halt), Admission::Halt(BrokenOrder::Missing));
    }
}

//! The derivation of faults and their times from a seed.
use std::time::Duration;

use idempotent_harness::proxy::Fault;

use crate::dice::Dice;
use crate::plan::Schedule;

/// A fault, in addition to the workers that kill themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Harm {
    /// SIGKILL to the worker in this place.
    Kill(usize),
    /// SIGSTOP, for longer than a lease, then SIGCONT.
    Pause(usize, Duration),
    /// The next COMMIT meets this.
    Commit(Fault),
    /// All connections are cut.
    Cut,
    /// The server is killed, and started again with all that it had committed.
    Crash,
}

/// In the order of time.
pub(super) fn harms(seed: u64, workers: usize, long: Duration) -> Vec<(Duration, Harm)> {
    let mut plan = Schedule::new(seed, long);
    let place = |dice: &Dice| usize::try_from(dice.below(workers as u64)).unwrap_or_default();
    plan.every(201, (300, 900), |dice| Harm::Kill(place(dice)));
    plan.every(202, (2_000, 4_000), |dice| Harm::Pause(place(dice), dice.ms(1_200, 2_500)));
    let faults = [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply, Fault::HalfOpenAfterApply];
    plan.every(203, (50, 200), |dice| Harm::Commit(dice.pick(&faults).unwrap_or(Fault::CutAfterApply)));
    plan.every(204, (1_000, 3_000), |_| Harm::Cut);
    plan.every(205, (4_000, 9_000), |_| Harm::Crash);
    plan.sorted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_some_of_everything_and_the_same_seed_the_same() {
        for seed in 0..20 {
            let minute = harms(seed, 4, Duration::from_secs(60));
            assert_eq!(minute, harms(seed, 4, Duration::from_secs(60)));
            let count = |which: fn(&Harm) -> bool| minute.iter().filter(|(_, harm)| which(harm)).count();
            assert!(count(|harm| matches!(harm, Harm::Crash)) >= 6);
            assert!(count(|harm| matches!(harm, Harm::Commit(_))) >= 200);
            assert!(count(|harm| matches!(harm, Harm::Kill(_))) >= 60);
        }
    }
}

//! The derivation of faults and their times from a seed.
use std::time::Duration;

use crate::dice::Dice;
use crate::plan::Schedule;

/// A fault, in addition to the processes that kill themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Harm {
    /// SIGKILL to the process in this place.
    Kill(usize),
    /// SIGSTOP, for longer than anything is held, then SIGCONT.
    Pause(usize, Duration),
    /// All connections to this server are cut.
    Cut(usize),
    /// This server is killed, and started again.
    Crash(usize),
}

/// The possible targets of faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    pub(super) processes: usize,
    /// The number of servers with a proxy.
    pub(super) servers: usize,
}

/// In the order of time. Servers are killed one after the other, in turn.
pub(super) fn harms(seed: u64, targets: Targets, long: Duration) -> Vec<(Duration, Harm)> {
    let mut plan = Schedule::new(seed, long);
    let below = |dice: &Dice, end: usize| usize::try_from(dice.below(end as u64)).unwrap_or_default();
    plan.every(301, (400, 1_000), |dice| Harm::Kill(below(dice, targets.processes)));
    plan.every(302, (1_500, 3_000), |dice| Harm::Pause(below(dice, targets.processes), dice.ms(1_000, 2_500)));
    // A file has no server.
    if targets.servers == 0 {
        return plan.sorted();
    }
    plan.every(303, (800, 2_000), |dice| Harm::Cut(below(dice, targets.servers)));
    let mut turn = below(&Dice::new(seed, 305), targets.servers);
    plan.every(304, (3_000, 7_000), |_| {
        turn = (turn + 1) % targets.servers;
        Harm::Crash(turn)
    });
    plan.sorted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_some_of_everything_of_everybody_and_the_same_seed_the_same() {
        let targets = Targets { processes: 6, servers: 2 };
        for seed in 0..20 {
            let minute = harms(seed, targets, Duration::from_secs(60));
            assert_eq!(minute, harms(seed, targets, Duration::from_secs(60)));
            for server in 0..2 {
                let count = |which: Harm| minute.iter().filter(|(_, harm)| *harm == which).count();
                assert!(count(Harm::Crash(server)) >= 3 && count(Harm::Cut(server)) >= 5, "{seed}: {minute:?}");
            }
            let file = harms(seed, Targets { processes: 6, servers: 0 }, Duration::from_secs(60));
            assert!(file.iter().all(|(_, harm)| matches!(harm, Harm::Kill(_) | Harm::Pause(..))), "{seed}: {file:?}");
            let killed = |place| minute.iter().any(|(_, harm)| *harm == Harm::Kill(place));
            assert!((0..6).all(killed), "{seed}: {minute:?}");
        }
    }
}

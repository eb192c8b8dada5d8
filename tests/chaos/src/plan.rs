//! The derivation of messages and faults from a seed.
use std::time::Duration;

use crate::dice::Dice;
use crate::wire::{Ends, Message};
use crate::worker::RUNS;

/// Leases are short, so that a run of seconds sees many of them end.
const LEASES_MS: [u64; 3] = [1_000, 1_500, 2_000];

/// The step by which the clock is set forward.
pub(crate) const CLOCK_STEP: Duration = Duration::from_millis(300);

/// The time in which a group of all workers forms.
pub(crate) const JOINING: Duration = Duration::from_secs(6);

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Harm {
    /// SIGKILL to the worker in this place; another incarnation takes the place.
    Kill(usize),
    /// SIGSTOP, for longer than a lease, then SIGCONT.
    Pause(usize, Duration),
    /// All connections to the store are cut.
    Cut,
    /// The servers forget all scripts.
    FlushScripts,
    /// The server is stopped by SIGSTOP.
    StopStore(Duration),
    /// The servers' memory is full.
    FillStore(Duration),
    /// The server's clock is set forward.
    ClockForward(Duration),
    /// The server is killed, and started again with all that it had answered.
    CrashStore,
    /// The primary is killed, and its replica takes over, which had heard nothing for so long.
    Failover(Duration),
    /// The keys of a slot move to another node.
    Migrate,
    /// The cache tier forgets everything.
    FlushCache,
    /// The cache tier does not answer.
    StopCache(Duration),
    /// The cache tier is killed, and started again.
    CrashCache,
    /// All connections to the broker are cut.
    CutBroker,
    /// Nothing passes to the broker or from it, and connections stay; then they are cut.
    SilenceBroker(Duration),
    /// The broker is stopped by SIGSTOP.
    StopBroker(Duration),
    /// The broker is killed, and started again with all that it had confirmed.
    CrashBroker,
}

impl Harm {
    /// Returns whether the fault concerns the broker.
    pub(crate) fn is_of_the_broker(self) -> bool {
        matches!(self, Self::CutBroker | Self::SilenceBroker(_) | Self::StopBroker(_) | Self::CrashBroker)
    }
}

/// The faults that the servers support.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) cuts: bool,
    pub(crate) scripts: bool,
    pub(crate) full: bool,
    pub(crate) clock: bool,
    pub(crate) stops: bool,
    pub(crate) crashes: bool,
    pub(crate) failovers: bool,
    pub(crate) migrations: bool,
    /// There is a cache tier.
    pub(crate) cache: bool,
    /// There is a broker.
    pub(crate) broker: bool,
    /// The broker keeps its messages when it is killed.
    pub(crate) broker_crashes: bool,
    /// The workers are members of a group, which needs seconds after each loss of a member.
    pub(crate) members: bool,
}

/// A message, and how often it is delivered whatever becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) message: Message,
    /// The number of concurrent copies.
    pub(crate) copies: u64,
    /// One of these comes with another payload.
    pub(crate) altered: bool,
    /// Once more, this long after it was acknowledged.
    pub(crate) late: Option<Duration>,
}

/// The faults in order of their times, which depend on the seed only.
pub(crate) struct Schedule<Harm> {
    pub(crate) seed: u64,
    /// The end of the schedule.
    long: Duration,
    harms: Vec<(Duration, Harm)>,
}

impl<Harm> Schedule<Harm> {
    pub(crate) fn new(seed: u64, long: Duration) -> Self {
        Self { seed, long, harms: Vec::new() }
    }

    /// Adds a harm first at this time, and then at distances of this many ms.
    fn repeat(&mut self, dice: &Dice, first: Duration, (from, to): (u64, u64), mut harm: impl FnMut(&Dice) -> Harm) {
        let mut at = first;
        while at < self.long {
            self.harms.push((at, harm(dice)));
            at += dice.ms(from, to);
        }
    }

    /// Adds a harm at distances of this many ms, by dice of this name.
    pub(crate) fn every(&mut self, name: u64, (from, to): (u64, u64), harm: impl FnMut(&Dice) -> Harm) {
        let dice = Dice::new(self.seed, name);
        self.repeat(&dice, dice.ms(from / 2, to / 2), (from, to), harm);
    }

    /// Starts later.
    fn delay(&mut self, time: Duration) {
        self.harms.iter_mut().for_each(|(at, _)| *at += time);
        self.harms.retain(|(at, _)| *at < self.long);
    }

    /// In the order of time.
    pub(crate) fn sorted(mut self) -> Vec<(Duration, Harm)> {
        self.harms.sort_by_key(|(at, _)| *at);
        self.harms
    }
}

/// Returns the faults for this number of workers and this time, in order of their times.
pub(crate) fn harms(seed: u64, workers: usize, long: Duration, faults: Faults) -> Vec<(Duration, Harm)> {
    let mut plan = Schedule::new(seed, long);
    let place = |dice: &Dice| usize::try_from(dice.below(workers as u64)).unwrap_or_default();
    let [short, _, longest] = LEASES_MS;
    // A member that is frozen for more than six seconds is expelled from its group.
    let (kills, pauses, frozen) = match faults.members {
        true => ((6_000, 9_000), (6_000, 10_000), 9_000),
        false => ((1_000, 2_000), (2_000, 4_000), longest * 2),
    };
    plan.every(1, kills, |dice| Harm::Kill(place(dice)));
    plan.every(2, pauses, |dice| Harm::Pause(place(dice), dice.ms(short * 13 / 10, frozen)));
    if faults.cuts {
        plan.every(3, (700, 2_500), |_| Harm::Cut);
    }
    if faults.scripts {
        plan.every(4, (3_000, 7_000), |_| Harm::FlushScripts);
    }
    if faults.stops {
        plan.every(5, (8_000, 15_000), |dice| Harm::StopStore(dice.ms(300, longest * 3 / 2)));
    }
    if faults.full {
        plan.every(9, (5_000, 10_000), |dice| Harm::FillStore(dice.ms(300, 1_500)));
    }
    if faults.clock {
        // Further apart than a lease is long: none sees two of them.
        plan.every(10, (4_000, 8_000), |_| Harm::ClockForward(CLOCK_STEP));
    }
    if faults.crashes {
        plan.every(6, (6_000, 12_000), |_| Harm::CrashStore);
    }
    if faults.failovers {
        let dice = Dice::new(seed, 7);
        plan.harms.push((long * 3 / 10, Harm::Failover(Duration::ZERO)));
        if long > TWO_FAILOVERS {
            plan.harms.push((long * 7 / 10, Harm::Failover(dice.ms(50, 400))));
        }
    }
    if faults.migrations {
        let dice = Dice::new(seed, 8);
        plan.repeat(&dice, dice.ms(1_000, 3_000), (1_000, 3_000), |_| Harm::Migrate);
    }
    if faults.cache {
        plan.every(14, (1_000, 3_000), |_| Harm::FlushCache);
        plan.every(15, (5_000, 9_000), |dice| Harm::StopCache(dice.ms(300, 2_000)));
        plan.every(16, (6_000, 12_000), |_| Harm::CrashCache);
    }
    if faults.broker {
        of_the_broker(&mut plan, faults);
    }
    if faults.members {
        plan.delay(JOINING);
    }
    plan.sorted()
}

/// A broker takes seconds to come back, so a short run has one crash of it, in its middle: much has happened by then.
fn of_the_broker(plan: &mut Schedule<Harm>, faults: Faults) {
    let dice = |name| Dice::new(plan.seed, name);
    let (cuts, stops, crashes) = (dice(11), dice(12), dice(13));
    // A member needs a connection for two seconds to join its group.
    let between = if faults.members { (3_000, 5_000) } else { (1_000, 3_000) };
    plan.repeat(&cuts, cuts.ms(500, 1_500), between, |_| Harm::CutBroker);
    plan.repeat(&stops, stops.ms(8_000, 14_000), (12_000, 20_000), |dice| Harm::StopBroker(dice.ms(300, 3_000)));
    plan.repeat(&cuts, cuts.ms(3_000, 10_000), (8_000, 15_000), |dice| Harm::SilenceBroker(dice.ms(300, 3_000)));
    if faults.broker_crashes {
        let first = (plan.long / 2).min(Duration::from_secs(15));
        plan.repeat(&crashes, first, (15_000, 25_000), |_| Harm::CrashBroker);
    }
}

/// In so much time the old primary is back before the new one is killed.
const TWO_FAILOVERS: Duration = Duration::from_secs(45);

/// The message with this number.
pub(crate) fn sent(key: u64, dice: &Dice) -> Sent {
    let lease_ms = dice.pick(&LEASES_MS).unwrap_or(LEASES_MS[0]);
    let handler_ms = match dice.below(100) {
        0..75 => dice.range(0, 20),
        75..92 => dice.range(50, 400),
        // Needs renewals, or loses its lease to a pause.
        _ => dice.range(lease_ms / 2, lease_ms * 2),
    };
    let before_ms = dice.range(0, handler_ms);
    let ends = match dice.below(100) {
        0..80 => Ends::Well,
        80..90 => Ends::Fails(u32::try_from(dice.range(1, 2)).unwrap_or(1)),
        90..94 => Ends::Panics(1),
        94..97 => Ends::FailsForGood,
        // It is dead then.
        _ => Ends::Fails(RUNS),
    };
    let wait_ms = if dice.percent(10) { dice.range(200, 1_500) } else { 0 };
    let copies = match dice.below(100) {
        // Other copies of the delivery arrive while the handler runs.
        0..60 if handler_ms >= lease_ms / 2 => 2,
        0..60 => 1,
        60..85 => 2,
        _ => 3,
    };
    Sent {
        message: Message {
            key,
            lease_ms,
            wait_ms,
            stubborn: dice.percent(50),
            before_ms,
            after_ms: handler_ms - before_ms,
            ends,
            fenced: dice.percent(50),
        },
        copies,
        altered: dice.percent(4),
        late: dice.percent(25).then(|| dice.ms(300, 5_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Faults = Faults {
        cuts: true,
        scripts: true,
        full: true,
        clock: true,
        stops: true,
        crashes: true,
        failovers: true,
        migrations: true,
        cache: true,
        broker: true,
        broker_crashes: true,
        members: false,
    };

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another_one() {
        let minute = Duration::from_secs(60);
        assert_eq!(harms(7, 4, minute, ALL), harms(7, 4, minute, ALL));
        assert_ne!(harms(7, 4, minute, ALL), harms(8, 4, minute, ALL));
    }

    #[test]
    fn a_minute_has_dozens_of_kills_many_pauses_and_two_failovers() {
        for seed in 0..50 {
            let harms = harms(seed, 4, Duration::from_secs(60), ALL);
            let count = |which: fn(&Harm) -> bool| harms.iter().filter(|(_, harm)| which(harm)).count();
            assert!(count(|harm| matches!(harm, Harm::Kill(_))) >= 30);
            assert!(count(|harm| matches!(harm, Harm::Pause(..))) >= 14);
            assert_eq!(count(|harm| matches!(harm, Harm::Failover(_))), 2);
        }
    }

    #[test]
    fn a_group_has_the_time_to_form_and_loses_fewer_members() {
        let minute = Duration::from_secs(60);
        for seed in 0..50 {
            let of = |members| harms(seed, 4, minute, Faults { members, ..ALL });
            let kills =
                |harms: &[(Duration, Harm)]| harms.iter().filter(|(_, harm)| matches!(harm, Harm::Kill(_))).count();
            let (group, others) = (of(true), of(false));
            assert!(group.iter().all(|(at, _)| *at >= JOINING), "{group:?}");
            assert!((5..kills(&others)).contains(&kills(&group)), "{group:?}");
        }
    }

    #[test]
    fn every_pause_is_longer_than_the_shortest_lease() {
        let pauses = harms(3, 4, Duration::from_secs(600), ALL);
        let shortest = Duration::from_millis(LEASES_MS[0]);
        assert!(pauses.iter().all(|(_, harm)| !matches!(harm, Harm::Pause(_, long) if *long <= shortest)));
    }
}

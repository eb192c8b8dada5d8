//! The scenarios, and the setting of a play that follows from its scenario, form and seed.
use super::bug::Bug;
use super::clock::{DAY, HOUR, MILLISECOND, MINUTE, SECOND};
use super::load::LoadShape;
use crate::dice::{Dice, fork};

/// The form in which the store keeps a consumed key.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Form {
    /// One record for each key, as the stores do today.
    Record,
    /// One member of a set for each key, the deferred form of decision 0078.
    Packed,
}

/// A situation of a fleet.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`Scenario::ALL` describes each one")]
pub enum Scenario {
    Constant,
    Wave,
    Step,
    Burst,
    Small,
    ClockBack,
    ClockAhead,
    Failover,
    MasterLost,
    Resharding,
    HotKey,
    ConsumerSkew,
    RetentionChange,
    RollingUpgrade,
}

impl Form {
    /// Both forms with their names on the command line.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Record, "record"), (Self::Packed, "packed")];
}

impl Scenario {
    /// All scenarios with their names on the command line and a description.
    pub const ALL: [(Self, &'static str, &'static str); 14] = [
        (Self::Constant, "constant", "a constant load"),
        (Self::Wave, "wave", "a daily wave between 0.2 and 1.8"),
        (Self::Step, "step", "ten times the load from some time on"),
        (Self::Burst, "burst", "fifty times the load for ten minutes"),
        (Self::Small, "small", "1,000,000 keys a day"),
        (Self::ClockBack, "clock-back", "the clock of a master is set back"),
        (Self::ClockAhead, "clock-ahead", "the clock of a master is set forward by up to the guard time"),
        (Self::Failover, "failover", "a master dies, and a replica that is 10 ms late serves after 5 s"),
        (Self::MasterLost, "master-lost", "a master dies and returns empty"),
        (Self::Resharding, "resharding", "an eighth of the slots moves under load"),
        (Self::HotKey, "hot-key", "one key has 30 % of the deliveries"),
        (Self::ConsumerSkew, "consumer-skew", "the clocks of the processes differ by hours"),
        (Self::RetentionChange, "retention-change", "retention and number of segments change, process by process"),
        (Self::RollingUpgrade, "rolling-upgrade", "two versions of the workers, then another layout"),
    ];

    /// Returns whether the scenario simulates one slot with its full number of keys instead of a whole cluster.
    #[must_use]
    pub fn is_load(self) -> bool {
        matches!(self, Self::Constant | Self::Wave | Self::Step | Self::Burst | Self::Small)
    }
}

/// The number of slots of a real cluster.
pub(super) const CLUSTER_SLOTS: u32 = 16_384;
/// The slots and masters of a scenario that simulates a whole cluster.
const SLOTS: u32 = 64;
const MASTERS: usize = 8;
/// The duration of a lease. No handler of the model takes longer, so no lease is renewed.
pub(super) const LEASE: u64 = 30 * SECOND;
/// The time for which an exact record follows a packed completion.
pub(super) const EXACT: u64 = 60 * SECOND;
/// The time until a replica, or the empty master, serves.
pub(super) const OUTAGE: u64 = 5 * SECOND;
/// The replication lag of a promoted replica.
pub(super) const LAG: u64 = 10 * MILLISECOND;

/// The retention of consumed keys and the number of segments in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Retention {
    pub(super) retain: u64,
    pub(super) segments: u64,
}

impl Retention {
    /// Returns the length of a segment.
    pub(super) fn length(self) -> u64 {
        self.retain / self.segments
    }

    /// Returns the guard time: the largest error of a clock that no marker notices.
    pub(super) fn guard(self) -> u64 {
        (self.retain / 24).min(HOUR)
    }
}

/// The layout of the namespace that a worker knows. The epoch of the namespace names one of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Layout {
    /// Records in the previous namespace.
    Previous,
    /// The form of the play in the current namespace. Claims search the previous one first.
    Current,
}

/// An event of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// The clock of a master is set by this number of µs.
    SetClock { master: usize, by: i64 },
    /// A master dies. A replica takes over, or the master returns empty.
    MasterDies { master: usize, has_replica: bool },
    /// A slot moves to another master.
    MoveSlot { slot: u32, to: usize, takes: u64 },
    /// A process dies.
    Crash { process: usize },
    /// A process takes no more deliveries, and ends after its last one.
    Drain { process: usize },
    /// A worker of a layout tries to start in the place of a process.
    Start { process: usize, layout: Layout },
    /// The operator raises the epoch of the namespace, after all workers have ended.
    RaiseEpoch,
    /// A process gets another retention.
    Configure { process: usize, retention: Retention },
}

/// All that determines a play.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) scenario: Scenario,
    pub(super) form: Form,
    pub(super) seed: u64,
    pub(super) bug: Option<Bug>,
    pub(super) slots: u32,
    pub(super) masters: usize,
    pub(super) processes: usize,
    /// New keys per second in the simulated slots.
    pub(super) rate: f64,
    pub(super) shape: LoadShape,
    /// The time for which messages are produced.
    pub(super) length: u64,
    /// The multiple of the usual probability of a copy.
    pub(super) copies: u64,
    /// The share of the first key in all deliveries, in percent.
    pub(super) hot_percent: u64,
    pub(super) retention: Retention,
    /// The largest difference between the clocks of two processes.
    pub(super) skew: u64,
    pub(super) faults: Vec<(u64, Fault)>,
    /// The message whose events are logged.
    pub(super) traced: Option<u32>,
}

impl Setting {
    pub(super) fn of(scenario: Scenario, form: Form, seed: u64, bug: Option<Bug>) -> Self {
        let dice = &mut fork(seed, 100 + scenario as u64);
        let hours = |retain: u64| Retention { retain: retain * HOUR, segments: 4 };
        let mut setting = Self {
            scenario,
            form,
            seed,
            bug,
            slots: if scenario.is_load() { 1 } else { SLOTS },
            masters: if scenario.is_load() { 1 } else { MASTERS },
            processes: 4,
            rate: 0.0,
            shape: LoadShape::Constant,
            length: 0,
            copies: 1,
            hot_percent: 0,
            retention: hours(6),
            skew: 0,
            faults: Vec::new(),
            traced: None,
        };
        if scenario.is_load() {
            setting.load(dice);
        } else {
            setting.cluster(dice);
        }
        setting.crashes(dice);
        setting.faults.sort_by_key(|(at, _)| *at);
        setting
    }

    /// Sets the load of one slot. The rates of a slot are those of a cluster with 100,000,000 to 1,000,000,000 keys a
    /// day. The form with records has no condition about memory, so a quarter of the load is enough.
    fn load(&mut self, dice: &mut Dice) {
        let in_millions = match self.scenario {
            Scenario::Constant | Scenario::Wave | Scenario::Burst => dice.range(100, 160),
            Scenario::Step => dice.range(12, 18),
            _ => 1,
        };
        let mut keys_a_day = in_millions as f64 * 1e6 / f64::from(CLUSTER_SLOTS);
        let mut hours = 40;
        self.retention.retain = DAY;
        if self.scenario == Scenario::Constant && dice.percent(40) {
            // As many live keys, at the largest rate.
            (self.retention.retain, hours) = (6 * HOUR, 13);
            keys_a_day *= 4.0 + dice.unit() * 2.25;
        }
        if self.form == Form::Record && self.scenario != Scenario::Small {
            keys_a_day /= 4.0;
        }
        self.length = hours * HOUR;
        self.rate = keys_a_day / (DAY / SECOND) as f64;
        let middle = dice.range(self.length / 10 * 5, self.length / 10 * 7);
        self.shape = match self.scenario {
            Scenario::Wave => LoadShape::DailyWave,
            Scenario::Step => LoadShape::Step(middle),
            Scenario::Burst => LoadShape::Burst(middle),
            _ => LoadShape::Constant,
        };
    }

    /// Sets load and faults of a whole cluster with fewer slots and fewer keys.
    fn cluster(&mut self, dice: &mut Dice) {
        let master = self.master(dice);
        match self.scenario {
            Scenario::ClockBack => {
                self.spread(8 * HOUR, 5_000.0, 1);
                // Half of the steps are shorter than the retention: only these repeat times that segments have.
                let most = if dice.percent(50) { 6 * HOUR } else { 30 * DAY };
                let by = -(dice.range(1, most) as i64);
                self.fault(dice, 1, 6, Fault::SetClock { master, by });
            }
            Scenario::ClockAhead => {
                self.spread(8 * HOUR, 5_000.0, 1);
                let guard = self.retention.guard();
                let by = if dice.percent(50) { guard } else { dice.range(1, guard) } as i64;
                self.fault(dice, 1, 6, Fault::SetClock { master, by });
            }
            Scenario::Failover => {
                self.spread(9 * SECOND, 8_000.0, 10);
                self.fault(dice, 2, 4, Fault::MasterDies { master, has_replica: true });
            }
            Scenario::MasterLost => {
                self.spread(20 * MINUTE, 5_000.0, 10);
                self.fault(dice, 4, 6, Fault::MasterDies { master, has_replica: false });
                self.restart(self.length / 10 * 3, 0);
                let after = self.faults[0].0 + dice.range(SECOND, OUTAGE);
                self.restart(after, 1);
            }
            Scenario::Resharding => {
                self.spread(20 * SECOND, 6_000.0, 10);
                for nth in 0..SLOTS / 8 {
                    self.move_slot(nth * 8 + dice.below(8) as u32, dice);
                }
            }
            Scenario::HotKey => {
                self.spread(20 * SECOND, 6_000.0, 1);
                self.hot_percent = 30;
            }
            Scenario::ConsumerSkew => {
                self.spread(8 * HOUR, 5_000.0, 1);
                self.skew = 3 * HOUR;
            }
            Scenario::RetentionChange => self.changes(dice),
            _ => self.upgrade(dice),
        }
    }

    fn master(&self, dice: &mut Dice) -> usize {
        dice.below(self.masters as u64) as usize
    }

    /// Sets the length, the number of keys in it, and the frequency of copies.
    fn spread(&mut self, length: u64, keys: f64, copies: u64) {
        self.length = length;
        self.rate = keys * SECOND as f64 / length as f64;
        self.copies = copies;
    }

    /// Adds a fault at a random time between two tenths of the length.
    fn fault(&mut self, dice: &mut Dice, from: u64, to: u64, fault: Fault) {
        let at = dice.range(self.length / 10 * from, self.length / 10 * to);
        self.faults.push((at, fault));
    }

    /// Replaces a process by another one, which knows nothing yet.
    fn restart(&mut self, at: u64, process: usize) {
        self.faults.push((at, Fault::Crash { process }));
        self.faults.push((at + SECOND, Fault::Start { process, layout: Layout::Current }));
    }

    /// Moves a slot at a random time. Between local nodes, a slot took 109 ms in packed form and 4 s as records.
    fn move_slot(&mut self, slot: u32, dice: &mut Dice) {
        let from = slot as usize * MASTERS / SLOTS as usize;
        let to = (from + dice.range(1, MASTERS as u64 - 1) as usize) % MASTERS;
        let mean = if self.form == Form::Packed { 109 * MILLISECOND } else { 4 * SECOND };
        let takes = dice.range(mean / 2, mean * 3);
        self.fault(dice, 1, 7, Fault::MoveSlot { slot, to, takes });
    }

    /// Changes retention and number of segments three times, process by process within an hour.
    fn changes(&mut self, dice: &mut Dice) {
        self.spread(60 * HOUR, 6_000.0, 1);
        let mut drawn = || Retention { retain: dice.pick(&[6, 9, 12, 24]) * HOUR, segments: dice.pick(&[2, 4, 8]) };
        self.retention = drawn();
        let changes = [drawn(), drawn(), drawn()];
        for retention in changes {
            let at = dice.range(HOUR, self.length - HOUR);
            for process in 0..self.processes {
                self.faults.push((at + dice.below(HOUR), Fault::Configure { process, retention }));
            }
        }
    }

    /// Replaces all workers one by one by workers of a new version, which still use the old layout. Later drains
    /// all of them, raises the epoch, and starts workers with the new layout. Workers of the wrong layout try to start
    /// before and after that.
    fn upgrade(&mut self, dice: &mut Dice) {
        self.spread(10 * MINUTE, 6_000.0, 10);
        for process in 0..self.processes {
            let at = (process as u64 + 1) * 30 * SECOND + dice.below(20 * SECOND);
            self.faults.push((at, Fault::Drain { process }));
            self.faults.push((at + LEASE, Fault::Start { process, layout: Layout::Previous }));
            self.faults.push((5 * MINUTE + dice.below(MINUTE), Fault::Drain { process }));
        }
        let (early, late) = (dice.range(4 * MINUTE, 5 * MINUTE), dice.range(8 * MINUTE, 9 * MINUTE));
        self.faults.push((early, Fault::Start { process: self.processes, layout: Layout::Current }));
        self.faults.push((6 * MINUTE + 40 * SECOND, Fault::RaiseEpoch));
        for process in 0..self.processes {
            let at = 7 * MINUTE + dice.below(MINUTE);
            self.faults.push((at, Fault::Start { process, layout: Layout::Current }));
        }
        self.faults.push((late, Fault::Start { process: self.processes, layout: Layout::Previous }));
    }

    /// Returns the faults as text, with their times.
    pub(super) fn printed_faults(&self) -> Vec<String> {
        self.faults.iter().map(|(at, fault)| format!("{:>16.6} s  {fault:?}", *at as f64 / SECOND as f64)).collect()
    }

    /// Lets some processes die and start again.
    fn crashes(&mut self, dice: &mut Dice) {
        if matches!(self.scenario, Scenario::HotKey | Scenario::Resharding | Scenario::RollingUpgrade) {
            return;
        }
        for _ in 0..dice.below(4) {
            let at = dice.range(self.length / 10, self.length);
            self.restart(at, dice.below(self.processes as u64) as usize);
        }
    }
}

//! The judge knows what really happened to each key, and compares it with what the scenario allows.
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;

use super::clock::{MILLISECOND, SECOND};
use super::packed::PackedSize;
use super::request::KeyPlace;
use super::scenario::{Form, LAG, Layout, Scenario, Setting};
use super::verdict::{Check, Figures, ScaleViolation};

/// The number of violations that are kept.
const KEPT: usize = 20;
/// The largest difference between the clocks of two masters. A record is valid by the clock of its present master.
const CLOCK_DIFFERENCE: u64 = 200 * MILLISECOND;

/// The facts about a message and its key.
#[derive(Clone, Debug)]
struct KeyFacts {
    place: KeyPlace,
    /// The number of its runs at this moment.
    running: u32,
    /// The start of its last run.
    began: u64,
    /// The time of its last completion, unless an event of the scenario has removed the marker.
    completed: Option<u64>,
    /// The time up to which its marker must be visible.
    promised: u64,
    has_run: bool,
    is_acknowledged: bool,
    /// The scenario allows one more run.
    excused: u32,
    /// A lost write of the key counts as soon as the key is delivered again.
    is_lost: bool,
}

/// The judge of one play.
#[derive(Debug)]
pub(super) struct Judge {
    setting: Setting,
    keys: Vec<KeyFacts>,
    /// The shortest retention that a process has had so far.
    shortest: u64,
    pub(super) figures: Figures,
    pub(super) violations: Vec<ScaleViolation>,
    pub(super) log: Vec<String>,
    /// The slots that lost their data, with the time.
    lost_slots: BTreeMap<u32, u64>,
    reported: HashSet<u32>,
    hot_claims: (u64, u64),
}

impl Judge {
    pub(super) fn new(setting: &Setting) -> Self {
        Self {
            keys: Vec::new(),
            shortest: setting.retention.retain,
            figures: Figures { plays: 1, ..Figures::default() },
            violations: Vec::new(),
            log: Vec::new(),
            lost_slots: BTreeMap::new(),
            reported: HashSet::new(),
            hot_claims: (0, 0),
            setting: setting.clone(),
        }
    }

    pub(super) fn log(&mut self, message: u32, now: u64, text: impl Display) {
        if self.setting.traced == Some(message) {
            self.log.push(format!("{:>16.6} s  {text}", now as f64 / SECOND as f64));
        }
    }

    fn violation(&mut self, check: Check, message: Option<u32>, now: u64, text: impl Display) {
        if self.violations.len() < KEPT {
            let text = format!("at {:.6} s: {text}", now as f64 / SECOND as f64);
            self.violations.push(ScaleViolation { check, message, text });
        }
    }

    pub(super) fn produced(&mut self, place: KeyPlace) {
        self.figures.messages += 1;
        self.keys.push(KeyFacts {
            place,
            running: 0,
            began: 0,
            completed: None,
            promised: 0,
            has_run: false,
            is_acknowledged: false,
            excused: 0,
            is_lost: false,
        });
    }

    pub(super) fn place(&self, message: u32) -> KeyPlace {
        self.keys[message as usize].place
    }

    pub(super) fn delivered(&mut self, message: u32) {
        self.figures.deliveries += 1;
        let facts = &mut self.keys[message as usize];
        if std::mem::take(&mut facts.is_lost) {
            facts.excused += 1;
            self.figures.lost += 1;
        }
    }

    pub(super) fn claimed(&mut self, message: u32, is_held: bool, now: u64) {
        if is_held {
            self.violation(Check::SingleFlight, Some(message), now, "a process claims a key that it already holds");
        }
        if self.setting.hot_percent == 0 || message != 0 {
            return;
        }
        let second = now / SECOND;
        self.hot_claims = if self.hot_claims.0 == second { (second, self.hot_claims.1 + 1) } else { (second, 1) };
        // A window may begin with a claim of each process.
        let most = self.setting.processes as u64 * 11;
        if self.hot_claims.1 == most + 1 {
            let text = format!("more than {most} claims of the hot key within a second");
            self.violation(Check::HotMaster, Some(message), now, text);
        }
    }

    /// Notes that a process begins to run a key.
    pub(super) fn run_began(&mut self, message: u32, is_takeover: bool, now: u64) {
        self.figures.runs += 1;
        self.figures.takeovers += u64::from(is_takeover);
        self.log(message, now, "runs");
        let facts = &mut self.keys[message as usize];
        let is_second = facts.running > 0 || facts.completed.is_some() && now < facts.promised;
        facts.running += 1;
        let (slot, began) = (facts.place.slot, std::mem::replace(&mut facts.began, now));
        if !is_second {
            return;
        }
        self.figures.repeated += 1;
        if facts.excused > 0 || self.lost_slots.get(&slot).is_some_and(|lost| began <= *lost) {
            facts.excused = facts.excused.saturating_sub(1);
            facts.completed = None;
        } else {
            let check = if self.setting.scenario == Scenario::Failover { Check::Losses } else { Check::Once };
            self.violation(check, Some(message), now, "a key runs a second time within its retention");
        }
        if self.lost_slots.contains_key(&slot) && self.is_packed() && !self.reported.contains(&slot) {
            let text = format!("a key of slot {slot} runs again, and no process has reported the loss");
            self.violation(Check::Reported, Some(message), now, text);
        }
    }

    pub(super) fn run_ended(&mut self, message: u32) {
        self.keys[message as usize].running -= 1;
    }

    /// Notes that the store has recorded a completion for a process with this retention.
    pub(super) fn completed(&mut self, message: u32, retain: u64, now: u64) {
        self.log(message, now, "is consumed");
        let promise = self.promise(retain);
        let facts = &mut self.keys[message as usize];
        (facts.completed, facts.promised, facts.has_run) = (Some(now), now + promise, true);
    }

    /// Returns the time for which a marker is visible at least.
    fn promise(&self, retain: u64) -> u64 {
        let retain = retain.min(self.shortest);
        match (self.setting.form, self.setting.scenario) {
            (Form::Packed, _) => retain,
            (_, Scenario::ClockAhead) => retain - self.setting.retention.guard(),
            (_, Scenario::Failover | Scenario::MasterLost | Scenario::Resharding) => retain - CLOCK_DIFFERENCE,
            _ => retain,
        }
    }

    pub(super) fn acknowledged(&mut self, message: u32, now: u64) {
        self.log(message, now, "is acknowledged");
        let facts = &mut self.keys[message as usize];
        facts.is_acknowledged = true;
        if !facts.has_run {
            self.violation(
                Check::Acknowledged,
                Some(message),
                now,
                "a key is acknowledged that has never run to its end",
            );
        }
    }

    /// Returns the time at which the marker is probed: at the end of its retention, or at a random time before.
    pub(super) fn probe_at(&self, message: u32, part: f64) -> Option<u64> {
        let facts = &self.keys[message as usize];
        let completed = facts.completed?;
        let last = facts.promised - MILLISECOND;
        Some(if part < 0.5 { last } else { completed + ((last - completed) as f64 * (part - 0.5) * 2.0) as u64 })
    }

    pub(super) fn probed(&mut self, message: u32, is_visible: bool, now: u64) {
        self.figures.probes += 1;
        let facts = &self.keys[message as usize];
        let is_excused = facts.is_lost || facts.excused > 0 || self.lost_slots.contains_key(&facts.place.slot);
        // A later run has a promise of its own, and a shorter retention since then shortens the promise.
        let is_promised = facts.completed.is_some_and(|at| now < at + self.promise(self.shortest));
        if !is_visible && is_promised && !is_excused {
            self.violation(Check::Visible, Some(message), now, "a marker is invisible within its retention");
        }
    }

    pub(super) fn configured(&mut self, retain: u64) {
        self.shortest = self.shortest.min(retain);
        let shortest = self.shortest;
        for facts in &mut self.keys {
            facts.promised = facts.promised.min(facts.completed.unwrap_or_default() + shortest);
        }
    }

    /// Allows the runs that a clock set forward may repeat: those of keys in flight.
    pub(super) fn clock_set(&mut self, is_of_master: impl Fn(u32) -> bool, by: i64) {
        for facts in self.keys.iter_mut().filter(|facts| by > 0 && facts.running > 0 && is_of_master(facts.place.slot))
        {
            facts.excused += 1;
        }
    }

    /// Allows each key that lost a write another run, once it is delivered again. `lost` contains the times of the
    /// writes, of which only those within the replication lag may be lost.
    pub(super) fn writes_lost(&mut self, lost: &[(u64, u128)], now: u64) {
        let lost: HashSet<_> = lost.iter().filter(|(at, _)| at + LAG >= now).map(|(_, hash)| *hash).collect();
        for facts in self.keys.iter_mut().filter(|facts| lost.contains(&facts.place.hash)) {
            facts.is_lost = true;
        }
    }

    /// Allows the keys of these slots further runs.
    pub(super) fn slots_lost(&mut self, slots: impl Iterator<Item = u32>, now: u64) {
        self.lost_slots.extend(slots.map(|slot| (slot, now)));
        self.figures.lost += self.lost_slots.len() as u64;
    }

    pub(super) fn reported(&mut self, slot: u32) {
        self.figures.reports += 1;
        self.reported.insert(slot);
    }

    pub(super) fn started(&mut self, layout: Layout, epoch: Layout, now: u64) {
        if layout != epoch {
            self.violation(Check::Started, None, now, "a worker starts whose layout is not that of the namespace");
        }
    }

    /// Judges the memory of a slot. `live` is the number of keys that a whole cluster has received within the retention.
    pub(super) fn measured(&mut self, size: PackedSize, live: u64, is_warm: bool, now: u64) {
        let (segments, fullest) = (size.segments as u64, size.fullest as u64);
        self.figures.most_segments = self.figures.most_segments.max(segments);
        self.figures.fullest_bucket = self.figures.fullest_bucket.max(fullest);
        if !self.setting.scenario.is_load() {
            return;
        }
        if segments > 7 {
            self.violation(Check::Segments, None, now, format!("{segments} segments are live, limit 7"));
        }
        if fullest > 512 {
            self.violation(Check::Bucket, None, now, format!("a bucket has {fullest} members, limit 512"));
        }
        if !is_warm || live < 100_000_000 || size.members == 0 {
            return;
        }
        let bytes = size.bytes as f64 / size.members as f64;
        self.figures.most_bytes = self.figures.most_bytes.max(bytes);
        if bytes > 9.5 {
            let text = format!("a marker takes {bytes:.2} bytes with {live} live keys, limit 9.5");
            self.violation(Check::Bytes, None, now, text);
        }
    }

    /// Judges the whole play. `loads` are the requests of each master.
    pub(super) fn ended(&mut self, loads: &[u64], hot: usize, now: u64) {
        self.figures.virtual_us += now;
        if let Some(message) = self.keys.iter().position(|facts| !facts.is_acknowledged) {
            let unsettled = self.keys.iter().filter(|facts| !facts.is_acknowledged).count();
            self.violation(
                Check::Settled,
                Some(message as u32),
                now,
                format!("{unsettled} messages are not acknowledged"),
            );
        }
        let unreported: Vec<_> = self.lost_slots.keys().filter(|slot| !self.reported.contains(slot)).copied().collect();
        if self.is_packed() && !unreported.is_empty() {
            self.violation(Check::Reported, None, now, format!("the loss of the slots {unreported:?} is not reported"));
        }
        let Figures { postponed, deliveries, .. } = self.figures;
        if self.setting.scenario == Scenario::Resharding && postponed * 1_000 > deliveries {
            let text = format!("{postponed} of {deliveries} deliveries are postponed, limit 0.1 %");
            self.violation(Check::Postponed, None, now, text);
        }
        if self.setting.hot_percent > 0 {
            self.judge_hot_master(loads, hot, now);
        }
    }

    fn judge_hot_master(&mut self, loads: &[u64], hot: usize, now: u64) {
        let others: u64 = loads.iter().enumerate().filter(|(at, _)| *at != hot).map(|(_, load)| load).sum();
        let average = others as f64 / (loads.len() - 1) as f64;
        let seconds = self.setting.length as f64 / SECOND as f64;
        // Slots get equal loads up to chance: five standard deviations.
        let most = average + self.setting.processes as f64 * 10.0 * seconds + 5.0 * average.sqrt();
        if loads[hot] as f64 > most {
            let text = format!("the master of the hot key got {} requests, limit {most:.0}", loads[hot]);
            self.violation(Check::HotMaster, Some(0), now, text);
        }
    }

    fn is_packed(&self) -> bool {
        self.setting.form == Form::Packed
    }
}

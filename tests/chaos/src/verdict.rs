//! The verdict on a run.
use std::time::Duration;

use idempotent_testkit::history::History;
use idempotent_testkit::history::check::{Invariant, Judge, Level, Report};
use serde_json::{Value, json};

use crate::args::Args;
use crate::plan::{CLOCK_STEP, Faults, Harm};
use crate::target::Done;
use crate::worker::{MEMORY, RUNS};

/// The applied faults, and the figures that only the harness can count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harms {
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
    pub(crate) flushes: u64,
    pub(crate) stops: u64,
    pub(crate) fills: u64,
    pub(crate) clock_steps: u64,
    pub(crate) crashes: u64,
    pub(crate) failovers: u64,
    pub(crate) migrations: u64,
    pub(crate) cache_flushes: u64,
    pub(crate) cache_stops: u64,
    pub(crate) cache_crashes: u64,
    pub(crate) lost: u64,
    pub(crate) redelivered: u64,
    pub(crate) dead_letters: u64,
    pub(crate) unsettled: u64,
    pub(crate) broker_cuts: u64,
    pub(crate) broker_silences: u64,
    pub(crate) broker_stops: u64,
    pub(crate) broker_crashes: u64,
}

impl Harms {
    pub(crate) fn of_servers(&mut self, done: &Done) {
        self.lost += done.lost.len() as u64;
        match done.harm {
            Harm::Cut => self.cuts += 1,
            Harm::FlushScripts => self.flushes += 1,
            Harm::StopStore(_) => self.stops += 1,
            Harm::FillStore(_) => self.fills += 1,
            Harm::ClockForward(_) => self.clock_steps += 1,
            Harm::CrashStore => self.crashes += 1,
            Harm::Failover(_) => self.failovers += 1,
            Harm::Migrate => self.migrations += 1,
            Harm::FlushCache => self.cache_flushes += 1,
            Harm::StopCache(_) => self.cache_stops += 1,
            Harm::CrashCache => self.cache_crashes += 1,
            Harm::CutBroker => self.broker_cuts += 1,
            Harm::SilenceBroker(_) => self.broker_silences += 1,
            Harm::StopBroker(_) => self.broker_stops += 1,
            Harm::CrashBroker => self.broker_crashes += 1,
            Harm::Kill(_) | Harm::Pause(..) => {}
        }
    }
}

/// The findings of the judge, and whether the run is vacuous.
#[derive(Debug)]
pub struct Verdict {
    name: &'static str,
    seed: u64,
    seconds: f64,
    harms: Harms,
    report: Report,
    /// Findings outside of the history.
    found: Vec<String>,
    /// Further figures.
    told: Vec<(&'static str, u64)>,
    /// Required events that did not happen.
    missing: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(args: &Args, faults: Faults, harms: Harms, history: &History, took: Duration) -> Self {
        // The recorder writes a call before the call is made, and omits locked rows. No operator forgets a key by
        // force.
        let clock = if faults.clock { CLOCK_STEP } else { Duration::ZERO };
        let judge = Judge::new()
            .margin(Duration::from_millis(10) + clock)
            .level(Level::L2)
            .nothing_hidden()
            .never_busy()
            .never_forced()
            .settled(true)
            .retain_failures(MEMORY)
            .max_attempts(RUNS);
        let report = judge.check(history);
        let missing = missing(args.enough(), faults, &harms, &report);
        let (name, seconds, found, told) = (args.name(), took.as_secs_f64(), Vec::new(), Vec::new());
        Self { name, seed: args.seed, seconds, harms, report, found, told, missing }
    }

    /// A run that is judged by the rows it left: how many workers were killed, how many keys taken over, how many calls not
    /// answered, how many keys there were.
    pub(crate) fn of_rows(
        args: &Args,
        harms: Harms,
        (kills, takeovers, unknowns, keys): (u64, u64, u64, u64),
        took: Duration,
    ) -> Self {
        let mut report = Report::default();
        report.counts.kills = kills;
        report.counts.takeovers = takeovers;
        report.counts.unknowns = unknowns;
        report.counts.keys = keys;
        let (name, seconds) = (args.name(), took.as_secs_f64());
        let (found, told, missing) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, seed: args.seed, seconds, harms, report, found, told, missing }
    }

    /// Something is wrong of which the history says nothing.
    pub(crate) fn find(&mut self, what: impl IntoIterator<Item = String>) {
        self.found.extend(what);
    }

    /// Something is worth counting, and the run vacuous with less than `least` of it.
    pub(crate) fn tell(&mut self, what: &'static str, times: u64, least: u64) {
        self.told.push((what, times));
        if times < least {
            self.missing.push(format!("{times} {what}, {least} wanted"));
        }
    }

    /// Held, and not vacuous.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.code() == 0
    }

    /// 0: held; 1: violated; 2: vacuous.
    #[must_use]
    pub fn code(&self) -> u8 {
        match (self.violations(), self.missing.is_empty()) {
            (1.., _) => 1,
            (0, true) => 0,
            (0, false) => 2,
        }
    }

    fn violations(&self) -> usize {
        self.report.findings.len() + self.found.len() + usize::from(self.harms.unsettled > 0)
    }

    /// Prints the verdict for people to stderr.
    pub fn explain(&self) {
        for finding in &self.report.findings {
            eprintln!("{finding}");
        }
        for finding in &self.found {
            eprintln!("{finding}");
        }
        for (invariant, tally) in &self.report.tallies {
            eprintln!("{invariant:>4}: {} judged, {} not judged", tally.judged, tally.not_judged);
        }
        let Harms { pauses, cuts, flushes, stops, fills, clock_steps, crashes, failovers, .. } = self.harms;
        let Harms { migrations, lost, redelivered, dead_letters, unsettled, .. } = self.harms;
        eprintln!(
            "chaos: {pauses} pauses, {cuts} cuts, {flushes} script flushes, {stops} stops, {fills} fillings and {crashes} crashes of the store, \
             its clock set {clock_steps} times, \
             {failovers} failovers that lost {lost} records, {migrations} migrated slots, {redelivered} redeliveries, {dead_letters} dead letters"
        );
        let Harms { broker_cuts, broker_silences, broker_stops, broker_crashes, .. } = self.harms;
        if broker_cuts + broker_stops + broker_crashes > 0 {
            eprintln!(
                "chaos: the broker had {broker_cuts} cuts, {broker_silences} silences, {broker_stops} stops and {broker_crashes} crashes"
            );
        }
        let Harms { cache_flushes, cache_stops, cache_crashes, .. } = self.harms;
        if cache_flushes + cache_stops + cache_crashes > 0 {
            eprintln!("chaos: the cache had {cache_flushes} flushes, {cache_stops} stops and {cache_crashes} crashes");
        }
        let told: Vec<_> = self.told.iter().map(|(what, times)| format!("{times} {what}")).collect();
        if !told.is_empty() {
            eprintln!("chaos: {}", told.join(", "));
        }
        if unsettled > 0 {
            eprintln!("I13: {unsettled} deliveries were never settled");
        }
        if !self.missing.is_empty() {
            eprintln!("chaos: vacuous, a run like this proves nothing: {}", self.missing.join(", "));
        }
    }

    /// The last line of stdout.
    #[must_use]
    pub fn closing(&self) -> Value {
        let counts = &self.report.counts;
        let mut closing = json!({
            "name": self.name,
            "seed": self.seed,
            "seconds": (self.seconds * 1_000.0).round() / 1_000.0,
            "violations": self.violations(),
            "kills": counts.kills,
            "takeovers": counts.takeovers,
            "unknowns": counts.unknowns,
            "pauses": self.harms.pauses,
            "cuts": self.harms.cuts,
            "crashes": self.harms.crashes,
            "cache_flushes": self.harms.cache_flushes,
            "failovers": self.harms.failovers,
            "records_lost": self.harms.lost,
            "keys": counts.keys,
            "grants": counts.grants,
            "repeated_effects": counts.repeated_effects,
        });
        for (what, times) in &self.told {
            closing[what.replace(' ', "_")] = (*times).into();
        }
        closing
    }
}

/// Returns the events that a run of this length must contain and does not.
fn missing(seconds: u64, faults: Faults, harms: &Harms, report: &Report) -> Vec<String> {
    let counts = &report.counts;
    let some = (seconds / 5).max(1);
    let whole = seconds >= 30;
    let half = (some / 2).max(1);
    // A group loses fewer members, so its plan has fewer kills and cuts.
    let planned = if faults.members { half } else { some };
    // An emulator in memory delivers fewer messages at a time.
    let of_workers = if faults.members || faults.broker && !faults.broker_crashes { half } else { some };
    let wanted = [
        ("kills", counts.kills, planned),
        ("takeovers", counts.takeovers, of_workers),
        ("unknowns", counts.unknowns, of_workers),
        ("pauses", harms.pauses, if seconds >= 5 { 1 } else { 0 }),
        ("cuts", harms.cuts, if faults.cuts { some } else { 0 }),
        ("steps of the clock", harms.clock_steps, u64::from(faults.clock && seconds >= 10)),
        ("fillings", harms.fills, u64::from(faults.full && seconds >= 20)),
        ("failovers", harms.failovers, u64::from(faults.failovers && seconds >= 20)),
        ("stops of the store", harms.stops, u64::from(faults.stops && seconds >= 30)),
        ("flushes of the cache", harms.cache_flushes, if faults.cache { some } else { 0 }),
        ("crashes of the cache", harms.cache_crashes, u64::from(faults.cache && seconds >= 20)),
        ("crashes of the store", harms.crashes, u64::from(faults.crashes && seconds >= 20)),
        ("cuts of the broker", harms.broker_cuts, if faults.broker { planned } else { 0 }),
        ("crashes of the broker", harms.broker_crashes, u64::from(faults.broker_crashes)),
        ("silences of the broker", harms.broker_silences, u64::from(faults.broker && seconds >= 30)),
        ("stops of the broker", harms.broker_stops, u64::from(faults.broker && seconds >= 30)),
    ];
    let few = wanted.iter().filter(|(_, times, least)| times < least);
    let mut missing: Vec<_> = few.map(|(what, times, least)| format!("{times} {what}, {least} wanted")).collect();
    let judged = |invariant| report.tallies.get(&invariant).is_some_and(|tally| tally.judged > 0);
    let never = Invariant::ALL.into_iter().filter(|invariant| whole && !judged(*invariant));
    missing.extend(never.map(|invariant| format!("{invariant} was never put to the test")));
    missing
}

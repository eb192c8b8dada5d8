//! A model of a fleet with 100,000,000 to 1,000,000,000 keys a day, in virtual time: masters with slots, clocks and
//! replicas, processes with places, caches and breakers, and a broker that delivers copies.
//!
//! This is a simulation of a model. No server, no client and no executor runs. The decisions about records are those of
//! [`protocol`](idempotent_core::protocol), and retries have the product's delays. Masters, processes, the broker and
//! the packed form of decision 0078, which no store offers, are written for the model. The median of service times is
//! measured, and their tail is an assumption.
//!
//! # Scale
//! | scenarios | simulated part |
//! |---|---|
//! | loads | one slot of 16,384 with all its keys, for 13 or 40 hours: up to 20,000 keys |
//! | all others | 64 slots on 8 masters, 4 processes, 5,000 to 8,000 keys; an eighth of the slots is 8 instead of 2,048 |
mod bug;
mod call;
mod clock;
mod cluster;
mod journal;
mod judge;
mod load;
mod packed;
mod play;
mod process;
mod request;
mod scenario;
mod verdict;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use self::bug::{Bug, BugCase};
use self::play::Play;
use self::scenario::Setting;
pub use self::scenario::{Form, Scenario};
pub use self::verdict::{Check, Figures, ScaleViolation};
use crate::process::lock;

/// The result of one play.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScalePlay {
    /// The figures.
    pub figures: Figures,
    /// The violations, in order. The first 20 are kept.
    pub violations: Vec<ScaleViolation>,
    /// The events of the traced message.
    pub log: Vec<String>,
    /// The faults of the plan, with their times in seconds.
    pub faults: Vec<String>,
}

/// Plays a scenario. `bug` switches a deliberate bug on, and `traced` logs the events of a message. The same arguments
/// give the same result.
#[must_use]
pub fn play(scenario: Scenario, form: Form, seed: u64, bug: Option<Bug>, traced: Option<u32>) -> ScalePlay {
    let setting = Setting { traced, ..Setting::of(scenario, form, seed, bug) };
    let judge = Play::new(&setting).run();
    ScalePlay { figures: judge.figures, violations: judge.violations, log: judge.log, faults: setting.printed_faults() }
}

/// Removes the faults from a play that its first violation does not need, and returns the others with their times. The
/// play must have a violation.
#[must_use]
pub fn needed_faults(scenario: Scenario, form: Form, seed: u64, bug: Option<Bug>) -> Vec<String> {
    let mut setting = Setting::of(scenario, form, seed, bug);
    let fails = |setting: &Setting| Play::new(setting).run().violations.first().map(|first| first.check);
    let check = fails(&setting);
    for nth in (0..setting.faults.len()).rev() {
        let mut tried = setting.clone();
        tried.faults.remove(nth);
        if fails(&tried) == check {
            setting = tried;
        }
    }
    setting.printed_faults()
}

/// A scenario in one form.
pub type ScenarioForm = (Scenario, Form);

/// The result of many seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScaleCampaign {
    /// The sums of the figures for each scenario and form.
    pub figures: BTreeMap<ScenarioForm, Figures>,
    /// The plays with violations.
    pub failed: BTreeMap<(u64, ScenarioForm), Vec<ScaleViolation>>,
}

/// Plays each of the scenarios with each seed, on as many threads as the machine has processors. `bug` switches a
/// deliberate bug on.
#[must_use]
pub fn campaign(seeds: Range<u64>, scenarios: &[ScenarioForm], bug: Option<Bug>) -> ScaleCampaign {
    let plays: Vec<_> = seeds.flat_map(|seed| scenarios.iter().map(move |scenario| (seed, *scenario))).collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(ScaleCampaign::default()));
    let work = || {
        while let Some((seed, of)) = plays.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ScalePlay { figures, violations, .. } = play(of.0, of.1, *seed, bug, None);
            let mut all = lock(&all);
            all.figures.entry(*of).or_default().merge(&figures);
            if !violations.is_empty() {
                all.failed.insert((*seed, *of), violations);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A figure.
type Count = fn(&Figures) -> u64;

impl ScaleCampaign {
    /// Returns the situations that never occurred, although the scenarios exist for them. Meaningful for many seeds.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let sum = |of: ScenarioForm, count: Count| self.figures.get(&of).map(count);
        let mut missing = Vec::new();
        for (form, form_name) in Form::ALL {
            let wanted: [(Scenario, &str, Count); 8] = [
                (Scenario::Constant, "takeovers", |figures| figures.takeovers),
                (Scenario::Constant, "cached duplicates", |figures| figures.cached),
                (Scenario::Constant, "lost answers", |figures| figures.lost_answers),
                (Scenario::ClockBack, "probes", |figures| figures.probes),
                (Scenario::Failover, "lost writes", |figures| figures.lost),
                (Scenario::Failover, "repeated runs", |figures| figures.repeated),
                (Scenario::MasterLost, "repeated runs", |figures| figures.repeated),
                (Scenario::RollingUpgrade, "refused starts", |figures| figures.refused_starts),
            ];
            for (scenario, what, count) in wanted {
                if sum((scenario, form), count) == Some(0) {
                    missing.push(format!("{what} in {scenario:?}, {form_name}"));
                }
            }
        }
        if sum((Scenario::Resharding, Form::Packed), |figures| figures.refused) == Some(0) {
            missing.push("refusals in Resharding, packed".to_owned());
        }
        missing
    }
}

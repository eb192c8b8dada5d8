//! A simulator of a whole fleet in one thread: workers, the executor, a broker that redelivers, a store, and all kinds
//! of faults, on a virtual clock. One seed determines a simulation, and a simulated day takes moments.
//!
//! The executor is the real one, and so is the store, which may be your own. A seed determines a [`Plan`]: the times of
//! messages, the ends of their handlers, the store calls that are refused, lost, delayed or duplicated, the processes
//! that are killed, stopped or drained, and the clocks that are set. The simulator plays the plan, writes a [`History`]
//! and checks it, by [`history::check`](idempotent_testkit::history::check) and by the order in which the store applied its
//! requests, which only a simulator knows. The same plan gives the same bytes.
//!
//! ```
//! use std::sync::Arc;
//! use idempotent_core::MemoryStore;
//! use idempotent_simulator as sim;
//!
//! for seed in 0..20 {
//!     let world = sim::run(seed, |clock| Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()));
//!     assert!(world.violations.is_empty(), "{}", world.explain());
//! }
//! ```
//!
//! A store in place of [`MemoryStore`](idempotent_core::MemoryStore) must take its time from the given clock. For a
//! store with threads of its own, use [`play_on`].
//!
//! | task | use |
//! |---|---|
//! | find a fault | [`campaign`] over many seeds; [`Coverage::missing`] lists the situations that never occurred |
//! | inspect it | [`Simulated::history`], [`Simulated::explain`] |
//! | reduce it | [`shrink`] |
//! | keep it | the plan as JSON: a plan never changes, but the meaning of a seed changes with the simulator |
//! | study a large fleet | [`scale`], a model without executor and store |
//!
//! # Faults
//! | fault | effect | type |
//! |---|---|---|
//! | crash | a process dies, with or without what it has sent | [`Harm::Kill`] |
//! | pause | a process stops for longer than its lease, or all processes stop | [`Harm::Pause`], [`Harm::Freeze`] |
//! | drop | a request or its answer is lost, or never answered; a run is dropped | [`Loss`], [`Harm::Drop`] |
//! | delay | a request arrives after its sender has given up; an answer is late | [`CallFault`] |
//! | duplicate | a request is applied twice; a message is delivered twice | [`CallFault::copy_after_us`], [`Delivery`] |
//! | clock jump | the store's clock is set forward; a worker's clock is set either way, which must not matter | [`Harm::StoreClock`], [`Harm::WorkerClock`] |
//!
//! The store's clock is never set back, since the [`Clock::wall`](idempotent_core::Clock::wall) of a store must not go
//! back. In addition, the store refuses calls for a while, workers drain, a purge runs, and an operator forgets a
//! record that was read some time before. Foreign clients use their claims in ways in which the executor would not.
//! Keys look alike to the store: as text without case, and as name and number without a separator.
mod campaign;
mod chance;
mod coverage;
mod dice;
mod events;
mod exact;
mod handler;
mod ledger;
mod lookalike;
pub mod mutants;
mod network;
mod plan;
mod process;
pub mod scale;
mod script;
mod shrink;
mod tape;
mod world;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::Store;

pub use self::campaign::{Campaign, campaign};
pub use self::coverage::Coverage;
use self::events::Told;
pub use self::plan::{CallFault, Delivery, End, Harm, Loss, Mischief, Plan, Run, Step, Terms};
pub use self::process::{ProcessClock, Wire};
pub use self::shrink::shrink;
use idempotent_testkit::VirtualClock;
use idempotent_testkit::history::History;
use idempotent_testkit::history::check::{Invariant, Judge, Level, Report};

/// The result of a simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// The plan.
    pub plan: Plan,
    /// The recorded history.
    pub history: History,
    /// The report of the history check.
    pub report: Report,
    /// All violations.
    pub violations: Vec<Violation>,
    /// The simulated duration.
    pub simulated: Duration,
    /// The situations that occurred, correct or not.
    pub coverage: Coverage,
    told: Told,
}

/// A violation of an invariant.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// The name: "I4" if the history shows the violation, "I4 as applied" if the order of application shows it. "one
    /// outcome" and "no spinning" are violations by the executor.
    pub name: String,
    /// A description.
    pub text: String,
}

/// Plays the plan of a seed on the store that `store` creates, in a separate runtime.
#[must_use]
pub fn run(seed: u64, store: impl FnOnce(&VirtualClock) -> Arc<dyn Store>) -> Simulated {
    play(&Plan::of(seed), store)
}

/// Plays a plan on the store that `store` creates, in a separate runtime.
///
/// # Panics
/// If the runtime cannot be created.
#[must_use]
#[allow(clippy::expect_used, reason = "as every test's runtime")]
pub fn play(plan: &Plan, store: impl FnOnce(&VirtualClock) -> Arc<dyn Store>) -> Simulated {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without I/O");
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let store = store(&clock);
        simulate(plan, &clock, store, false).await
    })
}

/// Plays a plan on a store that may work on its own threads. The store gets one request at a time, so that the order is
/// known. `clock` is the store's clock. Needs a `current_thread` runtime.
///
/// The simulator does not control the store's threads. The same plan may therefore give different histories, each of
/// which is checked. Only [`play`] repeats a history byte for byte.
///
/// # Cancellation
/// Dropping the future leaves the simulated tasks to their runtime.
pub async fn play_on(plan: &Plan, clock: &VirtualClock, store: Arc<dyn Store>) -> Simulated {
    simulate(plan, clock, store, true).await
}

async fn simulate(plan: &Plan, clock: &VirtualClock, store: Arc<dyn Store>, in_turn: bool) -> Simulated {
    let (told, lines) = world::play(plan.clone(), clock, store, in_turn).await;
    let history = History::new(lines);
    let report = judge(plan).check(&history);
    let mut violations: Vec<_> = report
        .findings
        .iter()
        .map(|finding| Violation { name: finding.invariant.to_string(), text: finding.to_string() })
        .collect();
    violations.extend(exact::violations(&told).into_iter().map(|(name, text)| {
        let name = if name.starts_with('I') { format!("{name} as applied") } else { name.to_owned() };
        Violation { name, text }
    }));
    let coverage = Coverage::of(&told, &report);
    Simulated { plan: plan.clone(), history, report, violations, simulated: clock.elapsed(), coverage, told }
}

/// Creates a checker with the facts about a plan's simulation that its history does not contain.
fn judge(plan: &Plan) -> Judge {
    let shortest = plan.workers.iter().map(|terms| terms.memory_ms).min().unwrap_or_default();
    // Leases end at whole µs, and events of one instant are recorded a ns apart.
    let margin = Duration::from_micros(3) + plan.store_clock_set();
    let mut judge = Judge::new()
        .margin(margin)
        .drift(0)
        .nothing_hidden()
        .never_busy()
        .never_forced()
        .settled(true)
        .retain_failures(Duration::from_millis(shortest))
        .level(if plan.fenced { Level::L2 } else { Level::L1 });
    let most: Option<Vec<_>> = plan.workers.iter().map(|terms| terms.max_retries).collect();
    if let Some(most) = most.and_then(|most| most.into_iter().max()) {
        judge = judge.max_attempts(most + 1);
    }
    if plan.unprotected() {
        // With this policy, a message may be acknowledged without a record.
        judge = [Invariant::I8, Invariant::I13].into_iter().fold(judge, Judge::excuse);
    }
    judge
}

impl Simulated {
    /// Returns whether there is a violation of this name. "I4" differs from "I4 as applied".
    #[must_use]
    pub fn violates(&self, name: &str) -> bool {
        self.violations.iter().any(|violation| violation.name == name)
    }

    /// Returns the plan, the events and the violations as text.
    #[must_use]
    pub fn explain(&self) -> String {
        let plan = serde_json::to_string_pretty(&self.plan).unwrap_or_default();
        let mut text =
            format!("plan: {plan}\n\nas applied by the store:\n{}\nas the workers saw it:\n", self.told.print());
        for (number, line) in (1..).zip(&self.history.lines) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{number:>5} {}", line.to_json());
        }
        for Violation { name, text: why } in &self.violations {
            let _ = write!(text, "\n{name}: {why}");
        }
        text
    }
}

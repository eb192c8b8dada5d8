//! A whole fleet in one thread: workers, the executor, a broker that delivers again, a store, and all that goes wrong,
//! on a virtual clock. One seed says it all, and a day passes in a blink.
//!
//! The executor is the real one, and so is the store: yours, if you like. A seed becomes a [`Plan`]: which messages
//! come when, how their handlers end, which of the store's calls are refused, lost, delayed or doubled, who is killed,
//! stopped or drained when, which clock is set. The world plays it to its end, writes a [`History`] and judges it: by
//! [`history::check`](crate::history::check), and by what only a simulator can know, the order in which the store
//! applied what it was asked. The same plan gives the same bytes.
//!
//! ```
//! use std::sync::Arc;
//! use idempotent_core::MemoryStore;
//! use idempotent_testkit::sim;
//!
//! for seed in 0..20 {
//!     let world = sim::run(seed, |clock| Arc::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()));
//!     assert!(world.violations.is_empty(), "{}", world.explain());
//! }
//! ```
//!
//! Your store in the place of [`MemoryStore`](idempotent_core::MemoryStore) has to take its time from the clock it is
//! given. One that works on threads of its own is awaited by [`play_on`].
//!
//! | | how |
//! |---|---|
//! | find a fault | [`campaign`] over many seeds; [`Coverage::missing`] says what they never saw |
//! | look at it | [`Simulated::history`], [`Simulated::explain`] |
//! | make it small | [`shrink`] |
//! | keep it | the plan as JSON: plans stay what they are, seeds change their meaning with the simulator |
//!
//! # Faults
//! | | is | by |
//! |---|---|---|
//! | crash | a process dies, with or without what it has sent | [`Harm::Kill`] |
//! | pause | a process stands still beyond its lease; everybody does | [`Harm::Pause`], [`Harm::Freeze`] |
//! | drop | a request or its answer is lost, or never answered; a run is dropped | [`Loss`], [`Harm::Drop`] |
//! | delay | a request arrives late, after its sender has given up; an answer does | [`CallFault`] |
//! | duplicate | a request is applied twice; a message is delivered twice | [`CallFault::copy_after_us`], [`Delivery`] |
//! | clock jump | the store's clock is set forward; a worker's either way, which must not matter | [`Harm::StoreClock`], [`Harm::WorkerClock`] |
//!
//! The store's clock is never set back: a [`Clock::wall`](idempotent_core::Clock::wall) that stores count by must not go
//! back. Beside these a store is refused for a while, workers drain, a janitor purges, and an operator forgets what he
//! saw a while ago; and clients of another make do with their claims what no executor of ours would. Keys look alike to the store: as text without case, and as name and number without a boundary.
pub(crate) mod ask;
mod campaign;
mod chance;
mod coverage;
mod events;
mod exact;
mod handler;
mod ledger;
mod lookalike;
mod network;
mod plan;
mod process;
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
use crate::VirtualClock;
use crate::history::History;
use crate::history::check::{Invariant, Judge, Level, Report};

/// A world that has come to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// What was to happen.
    pub plan: Plan,
    /// What was written down.
    pub history: History,
    /// What the judge of histories says.
    pub report: Report,
    /// All that is wrong.
    pub violations: Vec<Violation>,
    /// How long it took, by its own clock.
    pub simulated: Duration,
    /// What happened, whether right or wrong.
    pub coverage: Coverage,
    told: Told,
}

/// Something that must not be.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// "I4" as the history shows it, "I4 as applied" by the order in which the store applied what it was asked; "one
    /// outcome" and "no spinning" are the executor's.
    pub name: String,
    /// In words.
    pub text: String,
}

/// Plays the plan of a seed on the store that `store` makes, in a runtime of its own.
#[must_use]
pub fn run(seed: u64, store: impl FnOnce(&VirtualClock) -> Arc<dyn Store>) -> Simulated {
    play(&Plan::of(seed), store)
}

/// Plays a plan on the store that `store` makes, in a runtime of its own.
///
/// # Panics
/// If the system refuses a runtime.
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

/// Plays a plan on a store that may work on threads of its own: it is asked for one thing at a time, so that the
/// order is known. `clock` is the store's. For a `current_thread` runtime.
///
/// What the world does while the store works is not in its hand: the same plan may give another history, and each is
/// judged. Byte for byte only [`play`] repeats.
///
/// # Cancellation
/// Dropping it leaves the tasks of the world to their runtime.
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

/// What is known of a plan's world beside its history.
fn judge(plan: &Plan) -> Judge {
    let shortest = plan.workers.iter().map(|terms| terms.memory_ms).min().unwrap_or_default();
    // Leases end at whole µs, and what happens in one instant is told a ns apart.
    let margin = Duration::from_micros(3) + plan.store_clock_set();
    let mut judge = Judge::new()
        .margin(margin)
        .drift(0)
        .nothing_hidden()
        .never_busy()
        .never_forced()
        .settled(true)
        .memory(Duration::from_millis(shortest))
        .level(if plan.fenced { Level::L2 } else { Level::L1 });
    let most: Option<Vec<_>> = plan.workers.iter().map(|terms| terms.max_retries).collect();
    if let Some(most) = most.and_then(|most| most.into_iter().max()) {
        judge = judge.max_attempts(most + 1);
    }
    if plan.unprotected() {
        // Acknowledged, and nothing is recorded: what such a policy asks for.
        judge = [Invariant::I8, Invariant::I13].into_iter().fold(judge, Judge::excuse);
    }
    judge
}

impl Simulated {
    /// Whether something of this name is wrong; "I4" is not "I4 as applied".
    #[must_use]
    pub fn violates(&self, name: &str) -> bool {
        self.violations.iter().any(|violation| violation.name == name)
    }

    /// For people: the plan, what happened, what is wrong.
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

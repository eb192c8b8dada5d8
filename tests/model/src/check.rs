//! The interface to the checker, and one run of it.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Property};

use crate::action::{Action, possible};
use crate::invariant::{Invariant, Sight};
use crate::state::{Ghost, State};
use crate::store::Store;
use crate::trace_text::sentences;
use crate::variant::Variant;
use crate::world::World;

/// The model of one variant.
#[derive(Debug)]
struct Check {
    variant: Variant,
    store: Store,
    /// The checker keeps the last trace that it finds, but the first one is the shortest.
    told: Vec<AtomicBool>,
    /// The number of states whose successors were requested.
    expanded: Arc<AtomicUsize>,
}

impl Model for Check {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let ghost = Ghost { due: 1, ..Ghost::default() };
        vec![State { left: self.variant.budget, ghost, ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.expanded.fetch_add(1, Ordering::Relaxed);
        possible(&self.variant, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = World::new(&self.variant, &self.store, last).after(action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            invariant::<0>(),
            invariant::<1>(),
            invariant::<2>(),
            invariant::<3>(),
            invariant::<4>(),
            invariant::<5>(),
            invariant::<6>(),
            invariant::<7>(),
            invariant::<8>(),
            invariant::<9>(),
            invariant::<10>(),
            invariant::<11>(),
            invariant::<12>(),
            invariant::<13>(),
            Property::always(Invariant::I13.name(), |check: &Self, state: &State| {
                check.store.ends(state.record) || check.is_told(Invariant::I13 as usize)
            }),
            invariant::<15>(),
            invariant::<16>(),
            invariant::<17>(),
        ];
        properties.extend([
            sight::<0>(),
            sight::<1>(),
            sight::<2>(),
            sight::<3>(),
            sight::<4>(),
            sight::<5>(),
            sight::<6>(),
            sight::<7>(),
        ]);
        // The checker stops when every property has its trace. This property never has one.
        properties.push(Property::always("the search goes on", |_, _| true));
        properties
    }
}

fn invariant<const BIT: usize>() -> Property<Check> {
    Property::always(Invariant::ALL[BIT].name(), |check, state: &State| {
        !state.step.has_violated(BIT) || check.is_told(BIT)
    })
}

fn sight<const BIT: usize>() -> Property<Check> {
    Property::sometimes(Sight::ALL[BIT].name(), |check, state: &State| {
        state.step.has_shown(BIT) && !check.is_told(Invariant::ALL.len() + BIT)
    })
}

impl Check {
    fn is_told(&self, bit: usize) -> bool {
        self.told[bit].swap(true, Ordering::Relaxed)
    }
}

/// The steps to a state: each with the state before, the action, and the state after.
pub type Trace = Vec<(State, Action, State)>;

/// The result of a run of the checker.
#[derive(Debug)]
pub struct Report {
    /// The checked variant.
    pub variant: Variant,
    /// The number of different states.
    pub unique: usize,
    /// The number of reached states, counted once for each path.
    pub generated: usize,
    /// The length of the longest shortest path to a state.
    pub depth: usize,
    /// The duration.
    pub took: Duration,
    /// The trace of each violated invariant.
    pub violated: BTreeMap<Invariant, Trace>,
    /// The trace of each sight.
    pub seen: BTreeMap<Sight, Trace>,
}

/// Checks a variant exhaustively.
///
/// # Panics
/// If the checker stopped before it had expanded every state.
#[must_use]
pub fn check(variant: Variant) -> Report {
    let expanded = Arc::new(AtomicUsize::new(0));
    let told = (0..Invariant::ALL.len() + Sight::ALL.len()).map(|_| AtomicBool::new(false)).collect();
    let model = Check { variant, store: Store::new(variant), told, expanded: expanded.clone() };
    let start = Instant::now();
    let checker = model.checker().threads(variant.threads).spawn_bfs().join();
    let took = start.elapsed();
    assert!(checker.is_done());
    let (unique, generated) = (checker.unique_state_count(), checker.state_count());
    assert_eq!(expanded.load(Ordering::Relaxed), unique, "every state was looked at, once");
    let depth = checker.max_depth() - 1;
    let mut found: BTreeMap<_, _> =
        checker.discoveries().into_iter().map(|(name, path)| (name, steps(path.into_vec()))).collect();
    let violated = Invariant::ALL.into_iter().filter_map(|i| Some((i, found.remove(i.name())?))).collect();
    let seen = Sight::ALL.into_iter().filter_map(|s| Some((s, found.remove(s.name())?))).collect();
    Report { variant, unique, generated, depth, took, violated, seen }
}

fn steps(path: Vec<(State, Option<Action>)>) -> Trace {
    path.windows(2).filter_map(|pair| Some((pair[0].0, pair[0].1?, pair[1].0))).collect()
}

impl Report {
    /// Describes the violation of an invariant, with a sentence for each step. Empty if the invariant holds.
    #[must_use]
    pub fn tell(&self, invariant: Invariant) -> Vec<String> {
        self.violated.get(&invariant).map(sentences).unwrap_or_default()
    }

    /// Returns the violated invariants without their traces.
    #[must_use]
    pub fn set(&self) -> BTreeSet<Invariant> {
        self.violated.keys().copied().collect()
    }
}

/// Formats one line of the table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, unique, generated, depth, took, violated, .. } = self;
        let seconds = took.as_secs_f32();
        write!(
            f,
            "{:<24} {unique:>9} unique {generated:>10} generated {depth:>3} deep {seconds:>6.1} s ",
            variant.name
        )?;
        if violated.is_empty() {
            return f.write_str(" none violated");
        }
        f.write_str(" violated (steps):")?;
        violated.iter().try_for_each(|(invariant, trace)| write!(f, " {invariant} ({})", trace.len()))
    }
}

//! A matrix of mutants and laws.
#![allow(clippy::print_stdout, reason = "the matrix, for `--nocapture`")]
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;

use idempotent_simulator::mutants::{Bug, Mutant};
use idempotent_testkit::conformance::{Law, laws};

/// The rounds of a law about races. Every second round switches tasks wherever a store waits.
const ROUNDS: u32 = 4;

/// The number of threads that break a law now.
static BROKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns the panic of the law if the mutant breaks it, and prints nothing: thousands of laws are broken here.
pub(crate) fn broken(law: &Law, bug: Option<Bug>) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |panic| {
            let worker = thread::current().name().is_some_and(|name| name.starts_with("tokio-"));
            // Threads of runtimes have no flag. Their panics are not printed while any law is broken on purpose.
            let quiet = QUIET.get() || worker && BROKEN.load(Ordering::SeqCst) > 0;
            if !quiet {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
    BROKEN.fetch_add(1, Ordering::SeqCst);
    let held = catch_unwind(AssertUnwindSafe(|| law.hold(|| Mutant::subject(bug).rounds(ROUNDS))));
    BROKEN.fetch_sub(1, Ordering::SeqCst);
    QUIET.set(false);
    held.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

pub(crate) fn law(name: &str) -> &'static Law {
    laws::all().find(|law| law.name() == name).unwrap_or_else(|| panic!("no law is called {name}"))
}

/// Returns the laws that each mutant breaks. Two threads check the mutants.
fn matrix() -> BTreeMap<String, BTreeSet<&'static str>> {
    let (next, matrix) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::SeqCst)) {
            let broken_by = laws::all().filter(|law| broken(law, Some(*bug)).is_some()).map(Law::name).collect();
            matrix.lock().unwrap().insert(format!("{bug:?}"), broken_by);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    matrix.into_inner().unwrap()
}

/// Mutants that must exist and have expected laws.
const NAMED: [Bug; 8] = [
    Bug::NonAtomicClaim,
    Bug::UnconditionalDelete,
    Bug::UnconditionalFlip,
    Bug::ExpiryIgnored,
    Bug::RenewWithoutOwner,
    Bug::SecondsRounded,
    Bug::PutAfterVanish,
    Bug::KeyJoined,
];

/// Checks each mutant against its expected laws; the extras check it against all of them.
#[test]
fn each_mutant_breaks_the_laws_about_it() {
    assert!(Bug::ALL.len() >= 15);
    assert!(NAMED.iter().all(|bug| Bug::ALL.contains(bug) && !bug.laws().is_empty()));
    let missed: Vec<_> = Bug::ALL
        .iter()
        .flat_map(|bug| bug.laws().iter().map(move |name| (*bug, *name)))
        .filter(|(bug, name)| broken(law(name), Some(*bug)).is_none())
        .collect();
    assert!(missed.is_empty(), "not caught by the law: {missed:?}");
}

mod extras {
    use super::*;

    #[test]
    fn each_mutant_breaks_the_laws_about_it_and_each_law_is_broken_by_a_mutant() {
        let matrix = matrix();
        assert_eq!(matrix.len(), Bug::ALL.len());
        assert!(matrix.len() >= 15);
        let mut missed = Vec::new();
        for bug in Bug::ALL {
            let broken_by = &matrix[&format!("{bug:?}")];
            println!("{bug:?} breaks {} laws", broken_by.len());
            for name in bug.laws() {
                if !broken_by.contains(law(name).name()) {
                    missed.push(format!("{bug:?} is not caught by {name}, but by {broken_by:?}"));
                }
            }
        }
        for law in laws::all() {
            let breakers = matrix.values().filter(|broken_by| broken_by.contains(law.name())).count();
            println!("{} is broken by {breakers} mutants", law.name());
            if breakers == 0 {
                missed.push(format!("no mutant breaks {}: does it say anything?", law.name()));
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }
}

#[test]
fn the_control_breaks_no_law() {
    let broken: Vec<_> = laws::all().filter_map(|law| Some((law.name(), broken(law, None)?))).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

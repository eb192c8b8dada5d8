//! Mutants of scripts: each lacks one guard, and a test has to fail.
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::Instant;

use crate::mutants::lua::{Edit, edits};

/// Scripts by name, and the guards whose removal does not change the result: script, description and reason.
pub(crate) struct Scripts {
    pub(crate) all: &'static [(&'static str, &'static str)],
    pub(crate) equivalent: &'static [(&'static str, &'static str, &'static str)],
}

/// A script without one guard.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) script: &'static str,
    pub(crate) whole: &'static str,
    pub(crate) edit: Edit,
}

impl Mutant {
    fn name(&self) -> String {
        let guard = self.edit.guard.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}: `{guard}` always {}, in `{}`", self.script, self.edit.says, self.edit.line)
    }
}

/// Number of threads that currently break a law.
static BROKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns a panic without printing it, because hundreds of laws fail on purpose.
pub(crate) fn quietly(broken: impl FnOnce()) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |panic| {
            let worker = thread::current().name().is_some_and(|name| name.starts_with("tokio-"));
            // Worker threads have no flag of their own and are quiet while any law fails on purpose.
            let quiet = QUIET.get() || worker && BROKEN.load(Ordering::SeqCst) > 0;
            if !quiet {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
    BROKEN.fetch_add(1, Ordering::SeqCst);
    let held = catch_unwind(AssertUnwindSafe(broken));
    BROKEN.fetch_sub(1, Ordering::SeqCst);
    QUIET.set(false);
    held.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

impl Scripts {
    /// Removes one of every `nth` guards, two at a time, each on servers made by `start`. `notice` returns the name of
    /// a check that fails. Equivalent mutants are skipped, because they would run all laws.
    pub(crate) fn are_noticed<Place>(
        &self,
        nth: usize,
        start: impl Fn() -> Place + Sync,
        notice: impl Fn(&Mutant, &Place) -> Option<&'static str> + Sync,
    ) {
        let of = |&(script, whole)| edits(whole).into_iter().map(move |edit| Mutant { script, whole, edit });
        let all: Vec<Mutant> = self.all.iter().flat_map(of).collect();
        let is = |mutant: &Mutant, (script, guard, _): &(&str, &str, &str)| {
            mutant.script == *script && mutant.name().contains(*guard)
        };
        let changes_nothing = |mutant: &&Mutant| self.equivalent.iter().any(|same| is(mutant, same));
        let (same, mutants): (Vec<_>, Vec<_>) = all.iter().partition(changes_nothing);
        let gone: Vec<_> = self.equivalent.iter().filter(|one| !same.iter().any(|mutant| is(mutant, one))).collect();
        assert!(gone.is_empty(), "explained, and not in the scripts any more: {gone:#?}");
        let explained_away = mutants.len() * 100 < all.len() * 90;
        assert!(!explained_away, "more is explained away than should be");
        let mutants: Vec<_> = mutants.into_iter().step_by(nth).collect();
        let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let place = start();
            while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::SeqCst)) {
                let began = Instant::now();
                match notice(mutant, &place) {
                    Some(law) => println!("{:?} {} is noticed by {law}", began.elapsed(), mutant.name()),
                    None => missed.lock().unwrap().push(mutant.name()),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
        let missed = missed.into_inner().unwrap();
        let noticed = mutants.len() - missed.len();
        println!("{noticed} of {} are noticed; of {} in all {} change nothing", mutants.len(), all.len(), same.len());
        assert!(missed.is_empty(), "neither noticed nor explained: {missed:#?}");
    }
}

//! Each guard of each script of the delay queue is there for a reason: without it a case fails.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use idempotent_testkit::servers::RedisServer;

use crate::delay::cases::{CASES, play};
use crate::delay::world::Place;
use crate::lua::{Edit, edits};

macro_rules! scripts {
    ($($name:literal)+) => {
        const SCRIPTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../src/delay/scripts/", $name, ".lua")))),+];
    };
}
scripts!("common" "send" "take" "done" "back" "keep" "bury" "cancel" "count" "letters" "redrive" "purge");

/// A script with one guard less.
#[derive(Clone)]
struct Mutant {
    script: &'static str,
    whole: &'static str,
    edit: Edit,
}

impl Mutant {
    fn all() -> Vec<Self> {
        let of = |(script, whole): &(&'static str, &'static str)| {
            let (script, whole) = (*script, *whole);
            edits(whole).into_iter().map(move |edit| Self { script, whole, edit })
        };
        SCRIPTS.iter().flat_map(of).collect()
    }

    fn name(&self) -> String {
        let guard = self.edit.guard.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}: `{guard}` always {}, in `{}`", self.script, self.edit.says, self.edit.line)
    }

    /// The script that it is of, or all of them where it is what they have in common.
    fn edits(&self) -> impl Fn(&str) -> String + Send + Sync + 'static + use<> {
        let (whole, edited) = (self.whole, self.edit.text.clone());
        move |text: &str| text.replacen(whole, &edited, 1)
    }
}

/// Guards without which a script answers the same: the script, what they are called, and why.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("common", "`redis.replicate_commands` always", "for Redis 6.2; newer ones have it and do nothing"),
    ("common", "`names[nth] ~= ''` always true", "no message goes by no name; it saves a command"),
    ("send", "`name ~= ''` always true", "likewise"),
    ("common", "`call('EXISTS', state) == 1` always true", "no state is found then; it saves looking for each"),
    ("common", "`states[nth]` always true, in `if states[nth] then first", "it only saves asking for scores"),
    ("common", "`there ~= members` always true", "all are its own then; it saves looking at each"),
    ("common", "`not first` always true, in `if not first then`", "there is nothing to remove"),
    (
        "take",
        "`#ready > 0` always true, in `if #ready > 0 then call('ZREMRANGEBYRANK', rank",
        "none are left there then",
    ),
    ("take", "`all ~= ARGV[2]` always true, in `if all ~= ARGV[2] and", "it is that already; it saves a command"),
    ("take", "`states ~= ''` always true", "none has a state then; it saves looking at each"),
    ("take", "`string.find(row, 'm', 1, true)` always true", "none is merged then; it saves looking at each"),
    ("take", "`string.find(table.concat(ready, ' '), 'p', 1, true)` always true", "none ranks then; likewise"),
];

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The first case that it fails.
fn noticed(mutant: &Mutant, place: &Arc<Place>) -> Option<&'static str> {
    QUIET.set(true);
    let fails = |case| catch_unwind(AssertUnwindSafe(|| play(case, place, mutant.edits()))).is_err();
    let found = CASES.iter().find(|(_, case)| fails(*case));
    QUIET.set(false);
    found.map(|(name, _)| *name)
}

#[test]
fn every_eighth_guard_taken_out_of_a_script_is_noticed() {
    are_noticed(8);
}

mod extras {
    #[test]
    fn each_guard_taken_out_of_a_script_is_noticed() {
        super::are_noticed(1);
    }
}

/// Takes out one guard of every `nth`, two at a time. Those that change nothing are left out: they would be held against
/// every law there is.
fn are_noticed(nth: usize) {
    let loud = take_hook();
    set_hook(Box::new(move |panic| {
        if !QUIET.get() {
            loud(panic);
        }
    }));
    let all = Mutant::all();
    let is = |mutant: &Mutant, (script, guard, _): &(&str, &str, &str)| {
        mutant.script == *script && mutant.name().contains(*guard)
    };
    let (same, mutants): (Vec<_>, Vec<_>) =
        all.iter().partition(|mutant| EQUIVALENT.iter().any(|same| is(mutant, same)));
    let gone: Vec<_> = EQUIVALENT.iter().filter(|one| !same.iter().any(|mutant| is(mutant, one))).collect();
    assert!(gone.is_empty(), "explained, and not in the scripts any more: {gone:#?}");
    let explained_away = mutants.len() * 100 < all.len() * 90;
    assert!(!explained_away, "more is explained away than should be");
    let mutants: Vec<_> = mutants.into_iter().step_by(nth).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let place = Arc::new(Place::Single(RedisServer::start()));
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::SeqCst)) {
            let began = std::time::Instant::now();
            match noticed(mutant, &place) {
                Some(case) => println!("{:?} {} is noticed by {case}", began.elapsed(), mutant.name()),
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

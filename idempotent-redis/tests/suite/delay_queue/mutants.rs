//! Mutants of the delay queue's scripts: without a guard, a case fails.
use std::sync::Arc;

use idempotent_harness::servers::RedisServer;

use crate::delay_queue::cases::{CASES, play};
use crate::delay_queue::world::Place;
use crate::mutants::guards::{Mutant, Scripts, quietly};

macro_rules! scripts {
    ($($name:literal)+) => {
        const SCRIPTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../src/delay_queue/scripts/", $name, ".lua")))),+];
    };
}
scripts!("common" "send" "take" "done" "back" "keep" "bury" "cancel" "count" "letters" "redrive" "purge" "discard");

/// Guards whose removal does not change the result: script, description and reason.
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

/// Edits the mutated script, or all scripts if the mutant is in their common part.
fn edits(mutant: &Mutant) -> impl Fn(&str) -> String + Send + Sync + 'static + use<> {
    let (whole, edited) = (mutant.whole, mutant.edit.text.clone());
    move |text: &str| text.replacen(whole, &edited, 1)
}

/// Returns the first case that fails with the mutant.
fn noticed(mutant: &Mutant, place: &Arc<Place>) -> Option<&'static str> {
    let case = CASES.iter().find(|(_, case)| quietly(|| play(*case, place, edits(mutant))).is_some());
    case.map(|(name, _)| *name)
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

fn are_noticed(nth: usize) {
    let start = || Arc::new(Place::Single(RedisServer::start()));
    Scripts { all: SCRIPTS, equivalent: EQUIVALENT }.are_noticed(nth, start, noticed);
}

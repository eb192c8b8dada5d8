//! Mutants of the scripts: without a guard, a law or a case fails.
pub(crate) mod guards;
mod lua;
mod order_tables;
pub(crate) mod planted_records;
mod side_effects;
mod steps;
mod whole_records;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_testkit::Subject;
use idempotent_testkit::conformance::{Law, Need, laws};

use crate::conformance::damaged_values::Values;
use crate::conformance::virtual_clock;
use crate::mutants::guards::{Mutant, Scripts, quietly};

const SCRIPTS: &[(&str, &str)] = &[
    ("claim", include_str!("../../src/scripts/claim.lua")),
    ("complete", include_str!("../../src/scripts/complete.lua")),
    ("replace", include_str!("../../src/scripts/replace.lua")),
    ("renew", include_str!("../../src/scripts/renew.lua")),
    ("release", include_str!("../../src/scripts/release.lua")),
    ("forget", include_str!("../../src/scripts/forget.lua")),
    ("purge", include_str!("../../src/scripts/purge.lua")),
    ("note", include_str!("../../src/scripts/note.lua")),
    ("steps", include_str!("../../src/scripts/steps.lua")),
    ("compare_and_swap", include_str!("../../src/scripts/compare_and_swap.lua")),
];

/// Replaces the script of a mutant, after the same preparation as in the store. One text serves two scripts with
/// different flags.
fn edits(mutant: &Mutant) -> impl Fn(&str) -> String + Clone + Send + Sync + 'static + use<> {
    let (whole, edited) = (prepared(mutant.whole), prepared(&mutant.edit.text));
    move |script: &str| script.replacen(&whole, &edited, 1)
}

fn prepared(text: &str) -> String {
    text.replace("@settled", "idempotent:settled").replace("@forgotten", "idempotent:forgotten")
}

/// Guards whose removal does not change the result: script, description and reason.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("claim", "`timed` always true", "the time to live is read for nothing where nobody keeps it"),
    ("claim", r"`string.match(cur, '^[\129%d]')` always true", "the client refuses what is no record all the same"),
    (
        "claim",
        "`state == 'P'` always true, in `if state == 'P' and sub(",
        "a vacant record has no owner, and no owner is zero",
    ),
    ("complete", "`number > now` always true", "the larger of the two is taken, which is the same, and takes longer"),
    ("replace", "`retain ~= '0'` always true", "a number ahead of the clock is kept forever by the other script, too"),
    ("renew", "`fence > now` always true", "likewise: the larger of the two is taken"),
    ("renew", "`ms ~= last` always true", "the same text is made again"),
    ("release", "`not r` always true", "where the write is refused waiters are woken for nothing, and ask"),
    ("forget", "`not r` always true", "likewise, and others forget what they may still have kept"),
    ("forget", "`fence >= 9007199254740992` always false", "guarded a second time below"),
    ("forget", "`fence < 9007199254740992` always true", "guarded a first time above"),
    ("forget", "`fence` always true", "no number is not the expected one"),
];

/// Returns the laws, fast ones first, because most mutants fail an early law.
fn by_cost() -> Vec<&'static Law> {
    let offered = |law: &&Law| !law.needs().iter().any(|need| matches!(need, Need::Clients | Need::Losing));
    let mut all: Vec<_> = laws::all().filter(offered).collect();
    all.sort_by_key(|law| is_slow(law));
    all
}

fn is_slow(law: &Law) -> bool {
    matches!(law.group(), "races" | "connections" | "equality")
}

/// Checks a law on a server without keys. Laws with damaged values use the system clock, all others the virtual clock.
fn holds(law: &Law, server: &Arc<RedisServer>, edit: impl virtual_clock::Edit) -> Option<String> {
    let swept = || {
        server.command(&["FLUSHALL"]);
        (server.clone(), edit.clone())
    };
    if !law.needs().iter().any(|need| matches!(need, Need::Planting | Need::Foreign)) {
        return quietly(|| {
            law.hold(|| {
                let (server, edit) = swept();
                async { virtual_clock::subject(server, false, edit).await.rounds(4) }
            });
        });
    }
    quietly(|| {
        law.hold(|| {
            let (server, edit) = swept();
            async move {
                let open = async || {
                    RedisStore::builder(server.url()).cache(None).edit_scripts(edit.clone()).connect().await.unwrap()
                };
                let (store, second) = (open().await, open().await);
                Subject::new(store).second(second).planting(Values(server.clone())).rounds(4).guarded_by(server)
            }
        });
    })
}

macro_rules! cases {
    ($($place:ident::$case:ident)+) => {
        /// The cases of the submodules, by name.
        const CASES: &[(&str, Case)] = &[$((stringify!($case), |world| Box::pin($place::$case(world)))),+];

        mod cases {
            use super::*;
            $(#[test]
            fn $case() {
                let server = Arc::new(RedisServer::start());
                play(|world| Box::pin($place::$case(world)), &server, str::to_owned);
            })+
        }
    };
}

type Case = for<'w> fn(&'w planted_records::World) -> Pin<Box<dyn Future<Output = ()> + 'w>>;

cases! {
    planted_records::invalid_numbers_are_rejected_at_any_time
    planted_records::a_result_that_ends_like_a_record_is_a_result
    planted_records::an_expired_record_that_still_exists_counts_as_absent
    planted_records::a_purge_keeps_a_record_with_a_number_in_the_future
    planted_records::a_purge_keeps_unreadable_values
    planted_records::every_attempt_number_is_preserved
    planted_records::a_completion_without_a_value_keeps_its_payload_and_its_owner
    planted_records::a_delay_of_months_ends
    steps::steps_belong_to_a_held_record
    steps::values_in_the_place_of_steps_are_reported_and_left_unchanged
    steps::steps_of_an_earlier_record_are_ignored_and_removed_by_the_first_note
    steps::each_batched_step_call_has_its_own_reply
    order_tables::an_order_table_expires_unless_it_is_kept_forever
    order_tables::values_in_the_place_of_an_order_table_are_reported_and_left_unchanged
    side_effects::refused_writes_are_reported_and_not_applied
    side_effects::a_record_is_as_short_as_it_can_be
    side_effects::long_retentions_are_spread_and_short_ones_are_not
    side_effects::each_batched_call_has_its_own_reply
    side_effects::a_value_that_resembles_a_consumed_record_is_not_forgotten
    side_effects::a_refunded_takeover_stays_recorded_without_attempts
    side_effects::a_number_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it
    side_effects::a_caching_store_asks_once
    side_effects::notifications_are_sent_only_for_watched_keys
    whole_records::a_record_as_granted_is_completed_by_one_call
    whole_records::a_completion_by_the_whole_record_is_retained_as_asked
    whole_records::a_grant_ahead_of_the_clock_is_retained_until_the_clock_has_passed_it
    whole_records::a_grant_whose_time_is_over_is_lost
    whole_records::each_differing_record_of_a_batch_is_decided_by_its_owner
    whole_records::a_foreign_value_is_not_replaced
}

fn play(case: Case, server: &Arc<RedisServer>, edit: impl virtual_clock::Edit) {
    server.command(&["FLUSHALL"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::builder(server.url()).cache(None).edit_scripts(edit.clone()).connect().await.unwrap();
        case(&planted_records::World { server: server.clone(), store, edit: Arc::new(edit) }).await;
    });
}

/// Returns the first law or case that fails with the mutant.
fn found(mutant: &Mutant, server: &Arc<RedisServer>) -> Option<&'static str> {
    let (quick, slow): (Vec<_>, Vec<_>) = by_cost().into_iter().partition(|law| !is_slow(law));
    let law = |laws: Vec<&'static Law>| {
        laws.into_iter().find(|law| holds(law, server, edits(mutant)).is_some()).map(Law::name)
    };
    let case = || CASES.iter().find(|(_, case)| quietly(|| play(*case, server, edits(mutant))).is_some());
    case().map(|(name, _)| *name).or_else(|| law(quick)).or_else(|| law(slow))
}

#[test]
fn every_eighth_guard_taken_out_of_a_script_is_noticed() {
    are_noticed(8);
}

mod extras {
    use super::*;

    #[test]
    fn the_unchanged_scripts_break_no_law() {
        let server = Arc::new(RedisServer::start());
        let broken: Vec<_> =
            by_cost().into_iter().filter_map(|law| Some((law.name(), holds(law, &server, str::to_owned)?))).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }

    #[test]
    fn each_guard_taken_out_of_a_script_is_noticed() {
        are_noticed(1);
    }
}

fn are_noticed(nth: usize) {
    let start = || {
        let server = Arc::new(RedisServer::start());
        // A case that fails with all guards in place would detect nothing.
        CASES.iter().for_each(|(_, case)| play(*case, &server, str::to_owned));
        server
    };
    Scripts { all: SCRIPTS, equivalent: EQUIVALENT }.are_noticed(nth, start, found);
}

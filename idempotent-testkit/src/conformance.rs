//! The laws every store has to keep, as named tests made by one line.
mod cas;
pub mod laws;
mod model;
mod operations;
mod subject;
mod together;

use std::future::{Future, IntoFuture};

pub use self::cas::{CasSource, CasSubject, hold_cas};
pub use self::subject::Subject;

/// The threads a law needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Threads {
    /// One: everything that is ready runs before time moves.
    One,
    /// Several: for races.
    Many,
}

/// Holds one law against a freshly built subject, on a runtime of its own. [`conformance!`](crate::conformance!)
/// does this for all of them.
///
/// `build` is called inside the runtime. What it gives may be a [`Subject`] or a future of one.
///
/// # Panics
/// If the law is broken.
pub fn hold<B>(threads: Threads, build: impl FnOnce() -> B, law: impl AsyncFnOnce(&Subject))
where
    B: IntoFuture<Output = Subject>,
{
    run(threads, async {
        let subject = build().await;
        law(&subject).await;
    });
}

#[allow(clippy::expect_used, reason = "this is the body of a test")]
fn run(threads: Threads, law: impl Future<Output = ()>) {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Many => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().expect("a tokio runtime for the law");
    runtime.block_on(law);
}

/// One line makes a module of named tests, one for each law, over a store of yours.
///
/// The expression is evaluated anew for each test, inside a tokio runtime, and gives a [`Subject`] or a future of
/// one. With a [`VirtualClock`](crate::VirtualClock) that the store reads, laws about time are exact and take no
/// time; without one they wait for real, and times are compared with some slack. tokio's macros are not needed.
///
/// These laws see the store from outside. One made of a [`CasBackend`](idempotent_core::CasBackend) needs
/// [`cas_conformance!`](crate::cas_conformance!) beside them.
///
/// ```
/// use std::sync::Arc;
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{Subject, VirtualClock, conformance};
///
/// fn memory() -> Subject {
///     let clock = VirtualClock::new();
///     let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
///     Subject::new(store).on_clock(clock)
/// }
///
/// conformance!(memory_keeps_the_laws, memory());
/// // or: conformance!(server_keeps_the_laws, async { Subject::new(connect().await).guarded_by(server) });
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $builder:expr $(,)?) => {
        $crate::conformance! { @laws $name, $builder;
            One claims:
                an_absent_key_is_acquired
                a_held_key_is_in_flight_for_everybody_else
                the_same_owner_claiming_again_gets_the_same_grant
                the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over
                a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on
                an_expired_lease_is_parked_if_asked
                a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace
                a_vacant_key_is_delayed_until_its_time_and_then_acquired
                a_consumed_key_answers_with_its_value
                a_failed_key_answers_with_its_error
                a_dead_key_answers_with_its_attempts_and_error;
            One fencing:
                fencing_rises_over_every_kind_of_release
                fencing_rises_over_takeover
                fencing_rises_when_a_record_was_past_its_time
                fencing_rises_within_one_instant
                fencing_rises_over_purge_within_one_instant
                fencing_rises_over_expiry_when_it_ran_ahead_of_the_clock
                fencing_rises_over_forgetting
                fencing_is_a_number_every_script_language_can_hold;
            One attempts:
                attempts_are_counted_over_vacancy_and_takeover
                a_refunded_attempt_is_not_counted
                a_vacant_key_out_of_attempts_is_buried
                an_expired_lease_out_of_attempts_is_buried
                a_live_lease_on_its_last_attempt_is_in_flight
                without_a_limit_nothing_is_buried
                a_buried_run_is_not_granted_again;
            One payloads:
                another_payload_is_a_mismatch_while_the_key_is_held_or_settled
                an_equal_or_unknown_fingerprint_is_no_mismatch
                a_vacant_key_takes_the_new_fingerprint
                an_expired_lease_takes_the_new_fingerprint
                a_dead_key_is_dead_for_every_payload
                a_delayed_key_is_delayed_for_every_payload;
            One owners:
                nobody_but_the_owner_changes_a_held_key
                nobody_changes_a_settled_key
                a_superseded_owner_is_told_what_is_there_and_changes_nothing
                a_superseded_grant_stays_superseded_though_its_claim_comes_again
                a_late_owner_may_settle_while_nobody_took_over
                a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands
                a_consumed_key_is_not_undone_by_its_owner
                a_release_repeated_by_its_owner_is_lost
                a_renewal_counts_from_now
                a_renewal_never_shortens;
            One time:
                a_consumed_key_is_remembered_for_its_retention_and_no_longer
                a_retention_for_ever_does_not_end
                a_failed_key_is_remembered_for_its_memory_and_no_longer
                a_dead_key_is_remembered_for_its_memory_and_no_longer
                a_vacant_key_is_remembered_for_its_memory_after_its_delay
                an_orphaned_key_counts_as_absent_past_lease_and_memory
                a_renewed_key_keeps_its_memory;
            Many races:
                of_racing_claims_one_is_acquired
                of_racing_takeovers_one_is_acquired
                of_a_late_completion_and_a_takeover_one_wins
                holders_in_turn_never_overlap_and_their_numbers_rise
                racing_copies_of_one_completion_are_all_done;
            One keys:
                keys_that_look_alike_are_kept_apart
                keys_that_differ_in_one_place_are_kept_apart
                stored_keys_that_differ_only_by_case_are_kept_apart
                tenants_scenes_and_scopes_are_kept_apart
                hostile_texts_and_values_come_back_as_they_were
                a_large_value_comes_back_whole;
            One abilities:
                abilities_that_are_reported_work
                a_purge_is_bounded_and_harmless
                a_settled_key_can_be_forgotten_by_its_number_only
                a_held_key_is_forgotten_by_force_only
                watchers_are_woken_by_completion_and_release
                browsing_lists_each_live_key_once
                a_batch_answers_as_if_each_request_had_come_alone;
            One equality:
                random_operations_are_answered_as_the_protocol_answers_them;
        }
    };
    (@laws $name:ident, $builder:expr; $($threads:ident $group:ident: $($law:ident)+;)+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance! { @tests $builder; $($($threads $group $law)+)+ }
        }
    };
    (@tests $builder:expr; $($threads:ident $group:ident $law:ident)+) => {
        $(
            #[test]
            fn $law() {
                $crate::conformance::hold(
                    $crate::conformance::Threads::$threads,
                    || $builder,
                    $crate::conformance::laws::$group::$law,
                );
            }
        )+
    };
}

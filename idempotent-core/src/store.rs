//! The [`Store`] trait, its optional capabilities and the built-in stores.
mod capability;
mod cas;
mod memory;
mod orphans;
mod tiered;
mod transact;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::capability::{
    Admin, Batch, Browse, Inspect, InspectedRecord, OrderStore, Purge, RecordEntry, RecordPage, Renewal, StepStore,
    StoreCapabilities, StoredOrderTable, Watch, Watching,
};
pub use self::cas::{Cas, CasBackend, Version, VersionedRecord};
pub use self::memory::{MemoryStore, MemoryStoreBuilder};
pub use self::orphans::orphans;
pub use self::tiered::{CacheTier, CachedOutcome, MemoryTier, TierCounts, TieredStore, TieredStoreBuilder};
pub use self::transact::{ClaimMode, Transactional};
use crate::{Claim, ClaimHandle, ClaimRequest, Completion, Key, Record, Release, Settled, StoreError};

/// A store of idempotency records, which lets one owner at a time claim a key.
///
/// All six methods are required, because a default implementation could silently weaken a promise. The short way to a
/// custom store is [`CasBackend`], which has two methods. Run the test kit's `conformance!` on an implementation before
/// you use it. Each list of laws below contains the names of its tests.
///
/// Each method is one atomic step, judged by the store's own clock. The wall clocks of clients have no influence.
/// [`protocol`](crate::protocol) contains the same behaviour as pure functions.
///
/// # Errors
/// Every method returns a [`StoreError`] whose kind states what is known: `NotApplied` only if the step was certainly
/// not applied, `Ambiguous` if it may have been applied. A store never overwrites or deletes a record that it cannot
/// read.
///
/// # Cancellation
/// The step of a dropped future may or may not be applied, as after a lost reply. The executor handles both cases.
///
/// # Laws
/// The laws of all methods. Each method has further ones below. The test kit's `conformance!` runs a test for each law.
///
/// `random_operations_are_answered_as_the_protocol_answers_them`,
/// `a_key_held_over_one_connection_is_guarded_over_the_other`, `a_call_dropped_half_way_is_settled_by_asking_again`,
/// `a_lost_reply_is_ambiguous_and_a_refused_call_is_not`, `a_damaged_record_is_corrupt_to_every_step`,
/// `a_record_of_a_newer_version_is_refused_by_every_step`, `a_foreign_value_is_refused_by_every_step`,
/// `what_cannot_be_read_is_never_overwritten_or_deleted`, `what_cannot_be_read_is_no_mismatch`,
/// `the_store_lives_by_the_clock_it_was_given`.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Claims the key, or returns the reason why it cannot be claimed, as [`protocol::claim`](crate::protocol::claim)
    /// does.
    ///
    /// # Behaviour
    /// - Of several claims of an absent, vacant or expired key, exactly one is granted.
    /// - A repeated claim by the same owner gets the same grant and does not count another attempt.
    /// - A lease may be taken over from its end on, but not earlier.
    /// - The fencing number of a grant is higher than of any earlier grant, even after release, expiry and deletion.
    /// - A key that has reached `max_attempts` becomes dead instead of being granted.
    ///
    /// # Laws
    /// `an_absent_key_is_acquired`, `a_held_key_is_in_flight_for_everybody_else`,
    /// `the_same_owner_claiming_again_gets_the_same_grant`,
    /// `the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over`,
    /// `a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on`, `an_expired_lease_is_parked_if_asked`,
    /// `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`,
    /// `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_consumed_key_answers_with_its_value`,
    /// `a_failed_key_answers_with_its_error`, `a_dead_key_answers_with_its_attempts_and_error`,
    /// `attempts_are_counted_over_vacancy_and_takeover`, `a_refunded_attempt_is_not_counted`,
    /// `a_vacant_key_out_of_attempts_is_buried`, `an_expired_lease_out_of_attempts_is_buried`,
    /// `a_live_lease_on_its_last_attempt_is_in_flight`, `without_a_limit_nothing_is_buried`,
    /// `a_buried_run_is_not_granted_again`, `another_payload_is_a_mismatch_while_the_key_is_held_or_settled`,
    /// `an_equal_or_unknown_fingerprint_is_no_mismatch`, `a_vacant_key_takes_the_new_fingerprint`,
    /// `an_expired_lease_takes_the_new_fingerprint`, `a_dead_key_is_dead_for_every_payload`,
    /// `a_delayed_key_is_delayed_for_every_payload`, `fencing_rises_over_every_kind_of_release`,
    /// `fencing_rises_over_takeover`, `fencing_rises_when_a_record_was_past_its_time`,
    /// `fencing_rises_within_one_instant`, `fencing_rises_over_expiry_when_it_ran_ahead_of_the_clock`,
    /// `fencing_is_a_number_every_script_language_can_hold`, `fencing_rises_whatever_the_clients_clocks_say`,
    /// `a_lease_ends_to_the_ms`, `no_run_is_granted_without_a_cause`, `of_racing_claims_one_is_acquired`,
    /// `of_racing_takeovers_one_is_acquired`, `of_claims_racing_over_two_connections_one_is_acquired`,
    /// `holders_in_turn_never_overlap_and_their_numbers_rise`,
    /// `a_client_with_a_wrong_clock_takes_over_neither_early_nor_late`,
    /// `a_client_with_a_wrong_clock_gives_spans_of_the_same_length`,
    /// `a_claim_whose_reply_was_lost_is_granted_the_same_again`,
    /// `a_claim_that_never_arrived_is_granted_at_the_next_try`, `keys_that_look_alike_are_kept_apart`,
    /// `keys_that_differ_in_one_place_are_kept_apart`, `keys_whose_name_and_hash_run_together_are_kept_apart`,
    /// `stored_keys_that_differ_only_by_case_are_kept_apart`, `tenants_scenes_and_scopes_are_kept_apart`,
    /// `hostile_texts_and_values_come_back_as_they_were`, `a_large_value_comes_back_whole`.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Extends the lease to at least `lease` from now, as [`protocol::renew`](crate::protocol::renew) does.
    ///
    /// # Behaviour
    /// - Only the owner may renew, while the key is consuming, even after the lease's end if no other owner took over.
    /// - A renewal never shortens the lease.
    ///
    /// # Laws
    /// `a_renewal_counts_from_now`, `a_renewal_never_shortens`, `a_renewed_lease_ends_to_the_ms`,
    /// `a_renewed_key_keeps_its_memory`, `an_owner_has_its_lease_to_the_last_ms`,
    /// `a_renewal_whose_reply_was_lost_may_be_repeated`, `nobody_but_the_owner_changes_a_held_key`,
    /// `of_a_late_renewal_or_release_and_a_takeover_one_wins`.
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError>;

    /// Turns a consuming record into a consumed one, as [`protocol::complete`](crate::protocol::complete) does.
    ///
    /// # Behaviour
    /// - Only the owner may complete. A completion that its owner repeats is still `Done`, and the first result is
    ///   kept.
    /// - An owner may complete after the end of its lease if no other owner took over.
    ///
    /// # Laws
    /// `a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands`,
    /// `a_late_owner_may_settle_while_nobody_took_over`,
    /// `a_superseded_owner_is_told_what_is_there_and_changes_nothing`,
    /// `a_superseded_grant_stays_superseded_though_its_claim_comes_again`, `a_key_that_has_gone_is_not_brought_back`,
    /// `a_consumed_key_is_remembered_for_its_retention_and_no_longer`, `a_retention_for_ever_does_not_end`,
    /// `a_retention_ends_to_the_ms`, `of_a_late_completion_and_a_takeover_one_wins`,
    /// `racing_copies_of_one_completion_are_all_done`, `a_completion_whose_reply_was_lost_is_done_when_asked_again`,
    /// `a_completion_that_never_arrived_is_done_at_the_next_try`, `a_large_value_comes_back_whole`.
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError>;

    /// Ends an attempt that did not succeed, as [`protocol::release`](crate::protocol::release) does.
    ///
    /// # Behaviour
    /// - Only the owner may release, while the key is consuming. A consumed record is never undone.
    /// - A deleted key may be claimed at once, a vacant one after its delay.
    /// - A refund does not count the attempt and keeps the takeover for the next run. A refund with nothing to remember
    ///   deletes the record.
    ///
    /// # Laws
    /// `nobody_but_the_owner_changes_a_held_key`, `nobody_changes_a_settled_key`,
    /// `a_consumed_key_is_not_undone_by_its_owner`, `a_release_repeated_by_its_owner_is_lost`,
    /// `a_refunded_attempt_is_not_counted`, `a_refund_with_nothing_to_remember_leaves_no_trace`,
    /// `a_refunded_takeover_is_told_to_the_next_run`, `a_delay_ends_to_the_ms`, `a_memory_ends_to_the_ms`,
    /// `a_failed_key_is_remembered_for_its_memory_and_no_longer`,
    /// `a_dead_key_is_remembered_for_its_memory_and_no_longer`,
    /// `a_vacant_key_is_remembered_for_its_memory_after_its_delay`, `a_release_whose_reply_was_lost_is_applied_once`,
    /// `a_late_copy_of_a_call_changes_nothing_of_another_run`.
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError>;

    /// Returns the current record without claiming it, or `None` if it has expired. For tooling and tests.
    ///
    /// # Laws
    /// `an_orphaned_key_counts_as_absent_past_lease_and_memory`, `what_one_connection_wrote_the_other_sees`,
    /// `a_client_with_a_wrong_clock_sees_no_end_early_or_late`, `hostile_texts_and_values_come_back_as_they_were`.
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// Returns the optional capabilities of this store. A wrapper must forward or drop each capability explicitly.
    ///
    /// # Laws
    /// `reported_capabilities_work`.
    fn capabilities(&self) -> StoreCapabilities<'_>;
}

macro_rules! forward {
    ($($pointer:ident)*) => {$(
        #[async_trait]
        impl<S: Store + ?Sized> Store for $pointer<S> {
            async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
                (**self).claim(request).await
            }
            async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
                (**self).renew(held, lease).await
            }
            async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
                (**self).complete(held, completion).await
            }
            async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
                (**self).release(held, release).await
            }
            async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
                (**self).peek(key).await
            }
            fn capabilities(&self) -> StoreCapabilities<'_> {
                (**self).capabilities()
            }
        }
    )*};
}
forward!(Arc Box);

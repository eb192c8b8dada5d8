//! The [`Store`] trait, its optional capabilities and the built-in stores.
mod capability;
mod cas;
mod health;
mod memory;
mod node;
mod nodes;
mod orphans;
mod search;
mod tiered;
mod transact;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::capability::{
    Admin, Batch, BrowseOrder, Inspect, InspectedRecord, OrderStore, OrderTablePage, Purge, Renewal, StepStore,
    StoreCapabilities, StoredOrderTable, Watch, Watching,
};
pub use self::cas::{Cas, CasBackend, Version, VersionedRecord};
pub use self::health::{Health, HealthFinding, HealthReport, Severity};
pub use self::memory::{MemoryStore, MemoryStoreBuilder};
pub use self::node::StoreNode;
pub use self::nodes::StoreNodes;
pub use self::orphans::orphans;
pub use self::search::{
    KeyFilter, NamePattern, PageLimits, PatternError, RecordEntry, RecordPage, Search, UnreadableRecord,
};
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
/// `random_operations_are_answered_by_the_protocol`,
/// `a_key_held_over_one_connection_is_guarded_over_the_other`, `a_dropped_call_is_settled_by_its_repetition`,
/// `a_lost_response_is_ambiguous_and_a_refused_call_is_not`, `a_damaged_record_is_corrupt_for_each_operation`,
/// `a_record_of_a_newer_version_is_refused_by_each_operation`, `a_foreign_value_is_refused_by_each_operation`,
/// `an_unreadable_record_is_never_overwritten_or_deleted`, `an_unreadable_record_is_not_a_mismatch`,
/// `the_store_uses_its_configured_clock`.
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
    /// `an_absent_key_is_acquired`, `a_held_key_is_in_flight_for_other_callers`,
    /// `the_same_owner_claiming_again_gets_the_same_grant`,
    /// `the_same_owner_may_claim_again_after_its_lease_before_a_takeover`,
    /// `a_lease_may_be_taken_over_from_its_end`, `an_expired_lease_is_parked_if_asked`,
    /// `a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace`,
    /// `a_vacant_key_is_delayed_until_its_time_and_then_acquired`, `a_consumed_key_answers_with_its_value`,
    /// `a_failed_key_answers_with_its_error`, `a_dead_key_answers_with_its_attempts_and_error`,
    /// `attempts_are_counted_over_vacancy_and_takeover`, `a_refunded_attempt_is_not_counted`,
    /// `a_vacant_key_without_attempts_left_is_dead`, `an_expired_lease_without_attempts_left_is_dead`,
    /// `a_live_lease_on_its_last_attempt_is_in_flight`, `without_a_limit_no_key_becomes_dead`,
    /// `a_dead_lettered_run_is_not_granted_again`, `another_payload_is_a_mismatch_while_the_key_is_held_or_settled`,
    /// `an_equal_or_unknown_fingerprint_is_no_mismatch`, `a_vacant_key_takes_the_new_fingerprint`,
    /// `an_expired_lease_takes_the_new_fingerprint`, `a_dead_key_is_dead_for_every_payload`,
    /// `a_delayed_key_is_delayed_for_every_payload`, `fencing_rises_over_every_kind_of_release`,
    /// `fencing_rises_over_takeover`, `fencing_rises_after_an_expired_record`,
    /// `fencing_rises_within_one_instant`, `fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock`,
    /// `fencing_tokens_fit_the_numbers_of_every_script_language`, `fencing_rises_with_any_client_clock`,
    /// `a_lease_ends_to_the_ms`, `each_grant_has_a_cause`, `one_of_several_racing_claims_is_acquired`,
    /// `one_of_several_racing_takeovers_is_acquired`, `one_of_several_claims_over_two_connections_is_acquired`,
    /// `successive_holders_never_overlap_and_their_tokens_rise`,
    /// `a_client_with_a_wrong_clock_takes_over_neither_early_nor_late`,
    /// `a_client_with_a_wrong_clock_sets_durations_of_the_same_length`,
    /// `a_claim_with_a_lost_response_receives_the_same_grant_on_retry`,
    /// `a_claim_with_a_lost_request_is_granted_on_retry`, `keys_that_look_alike_are_separate`,
    /// `keys_that_differ_in_one_byte_are_separate`, `keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate`,
    /// `stored_keys_that_differ_only_by_case_are_separate`, `tenants_scenes_and_scopes_are_separate`,
    /// `hostile_texts_and_values_are_read_back_unchanged`, `a_large_value_is_read_back_whole`.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Extends the lease to at least `lease` from now, as [`protocol::renew`](crate::protocol::renew) does.
    ///
    /// # Behaviour
    /// - Only the owner may renew, while the key is consuming, even after the lease's end if no other owner took over.
    /// - A renewal never shortens the lease.
    ///
    /// # Laws
    /// `a_renewal_counts_from_now`, `a_renewal_never_shortens`, `a_renewed_lease_ends_to_the_ms`,
    /// `a_renewed_key_keeps_its_retention`, `an_owner_has_its_lease_to_the_last_ms`,
    /// `a_renewal_with_a_lost_response_may_be_repeated`, `only_the_owner_changes_a_held_key`,
    /// `either_a_late_renewal_or_release_or_a_takeover_wins`.
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError>;

    /// Turns a consuming record into a consumed one, as [`protocol::complete`](crate::protocol::complete) does.
    ///
    /// # Behaviour
    /// - Only the owner may complete. A completion that its owner repeats is still `Done`, and the first result is
    ///   kept.
    /// - An owner may complete after the end of its lease if no other owner took over.
    ///
    /// # Laws
    /// `a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result`,
    /// `a_late_owner_may_settle_before_a_takeover`,
    /// `a_superseded_owner_receives_the_current_state_and_changes_nothing`,
    /// `a_superseded_grant_stays_superseded_after_a_repeated_claim`, `a_deleted_key_is_not_restored`,
    /// `a_consumed_key_is_kept_for_its_retention_and_no_longer`, `an_unlimited_retention_does_not_end`,
    /// `a_retention_ends_to_the_ms`, `either_a_late_completion_or_a_takeover_wins`,
    /// `racing_copies_of_one_completion_are_all_done`, `a_completion_with_a_lost_response_is_done_on_retry`,
    /// `a_completion_with_a_lost_request_is_done_on_retry`, `a_large_value_is_read_back_whole`.
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
    /// `only_the_owner_changes_a_held_key`, `a_settled_key_is_not_changed`,
    /// `a_consumed_key_is_not_undone_by_its_owner`, `a_release_repeated_by_its_owner_is_lost`,
    /// `a_refunded_attempt_is_not_counted`, `a_refund_of_the_first_attempt_leaves_no_record`,
    /// `a_refunded_takeover_is_visible_to_the_next_run`, `a_delay_ends_to_the_ms`, `a_failure_retention_ends_to_the_ms`,
    /// `a_failed_key_is_kept_for_its_retention_and_no_longer`,
    /// `a_dead_key_is_kept_for_its_retention_and_no_longer`,
    /// `a_vacant_key_is_kept_for_its_retention_after_its_delay`, `a_release_with_a_lost_response_is_applied_once`,
    /// `a_late_copy_of_a_call_changes_nothing_of_another_run`.
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError>;

    /// Returns the current record without claiming it, or `None` if it has expired. For tooling and tests.
    ///
    /// # Laws
    /// `an_orphaned_key_is_absent_after_lease_and_retention`, `a_connection_sees_the_writes_of_another_one`,
    /// `a_client_with_a_wrong_clock_sees_each_expiry_in_time`, `hostile_texts_and_values_are_read_back_unchanged`.
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

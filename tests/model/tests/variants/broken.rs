//! The check of each invariant can fail: a broken worker or store violates each invariant that no variant of the table
//! violates.
use std::collections::BTreeSet;

use idempotent_model::check::check;
use idempotent_model::invariant::Invariant::{self, I0, I1, I4b, I5, I8, I9, I10, I11, I12, I13, I14, Limit, Told};
use idempotent_model::invariant::Sight;
use idempotent_model::table::{
    ACKS_UNKNOWN, ATTEMPTS_LOST, CONSUMES_AT_CLAIM, DELETES_UNHEARD, ENDED, LIMIT, NEVER_EXPIRES, PAYLOAD_IGNORED,
    PAYLOADS, RENEWS, RUNS_UNGRANTED, SKIPS_EFFECT, V1, V7,
};

use crate::{met, violates};

#[test]
fn a_worker_that_acks_without_an_answer_loses_the_message() {
    violates(ACKS_UNKNOWN, [I0, I8]);
}

#[test]
fn a_worker_that_completes_without_its_effect_is_found_out() {
    violates(SKIPS_EFFECT, [I0, I9]);
}

#[test]
fn a_claim_that_marks_the_record_consumed_loses_the_message_of_a_handler_that_ends_its_transaction() {
    violates(CONSUMES_AT_CLAIM, [I9]);
}

#[test]
fn a_handler_that_ends_its_transaction_breaks_nothing_if_the_record_is_consumed_last() {
    violates(ENDED, []);
}

#[test]
fn a_worker_that_runs_without_a_grant_is_found_out() {
    violates(RUNS_UNGRANTED, [I0, I11]);
}

#[test]
fn a_store_that_ignores_payloads_answers_a_changed_one_as_a_duplicate() {
    violates(PAYLOAD_IGNORED, [I12]);
}

#[test]
fn a_store_that_ignores_expiry_leaves_a_key_in_flight_forever() {
    let report = met(NEVER_EXPIRES, &[Sight::Acked, Sight::Duplicate]);
    assert_eq!(report.set(), BTreeSet::from([I0, I13]));
}

#[test]
fn limit_a_lost_record_grants_more_than_the_limit() {
    violates(ATTEMPTS_LOST, [I0, I1, I4b, I5, I10, I14, Limit, Told]);
}

/// The executor does so without a retry limit: the copy of the reverted claim may have taken over.
#[test]
fn a_worker_that_deletes_a_record_without_knowing_its_owner_hides_a_takeover() {
    let report = violates(DELETES_UNHEARD, [Told]);
    let told = report.tell(Told);
    assert_eq!(told.last().map(String::as_str), Some("7. worker 2 takes delivery 3 and claims: grant 3 [breaks told]"));
}

#[test]
fn every_invariant_is_broken_by_something_and_every_sight_is_met() {
    let broken = [V1, V7, ACKS_UNKNOWN, SKIPS_EFFECT, RUNS_UNGRANTED, PAYLOAD_IGNORED, NEVER_EXPIRES, ATTEMPTS_LOST];
    let broken: BTreeSet<_> = broken.into_iter().flat_map(|variant| check(variant).set()).collect();
    assert_eq!(broken, BTreeSet::from(Invariant::ALL));
    let seen: BTreeSet<_> =
        [LIMIT, RENEWS, PAYLOADS].into_iter().flat_map(|variant| check(variant).seen.into_keys()).collect();
    assert_eq!(seen, BTreeSet::from(Sight::ALL));
}

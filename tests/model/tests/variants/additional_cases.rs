//! Cases beyond the project's table: attempts, renewals, operators, parking, payloads, and the fencing token in
//! addition to the owner token.
use idempotent_model::invariant::Invariant::{I0, I1, I2, I3, I4b, I5, I7, I10, I14, Told};
use idempotent_model::invariant::Sight;
use idempotent_model::table::{
    FORCED, LIMIT, LIMIT_TRANSACTIONAL, OPERATORS, OPERATORS_TRANSACTIONAL, PARKED, PAYLOADS, RENEWS,
    RENEWS_TRANSACTIONAL, TOKEN_ALONE, TOKEN_ALONE_LOST, TOKEN_ALONE_TRANSACTIONAL,
};
use idempotent_model::variant::Variant;

use crate::{met, violates};

fn comes_to<const N: usize>(variant: Variant, expected: [idempotent_model::invariant::Invariant; N], sights: &[Sight]) {
    let report = violates(variant, expected);
    for sight in sights {
        assert!(report.seen.contains_key(sight), "{} never came to: {}", variant.name, sight.name());
    }
}

#[test]
fn a_retry_limit_holds_and_buries_and_breaks_nothing_but_effect_at_most_once() {
    comes_to(LIMIT, [I0], &[Sight::Buried, Sight::Failed, Sight::Revived, Sight::LateGrant]);
}

#[test]
fn a_retry_limit_in_a_transaction_breaks_nothing() {
    comes_to(LIMIT_TRANSACTIONAL, [], &[Sight::Buried, Sight::Failed, Sight::Revived, Sight::LateGrant]);
}

#[test]
fn a_late_owner_may_renew_without_a_retry_limit_too() {
    comes_to(RENEWS, [I0], &[Sight::Failed, Sight::Revived, Sight::LateGrant]);
}

#[test]
fn a_late_owner_may_renew_in_a_transaction() {
    comes_to(RENEWS_TRANSACTIONAL, [], &[Sight::Failed, Sight::Revived, Sight::LateGrant]);
}

/// I0 counts effects for each time that an operator, or the end of the retention, made the key new.
#[test]
fn numbers_rise_over_the_end_of_retention_over_purges_and_over_what_operators_forget() {
    comes_to(OPERATORS, [I0], &[Sight::Failed, Sight::Revived]);
}

#[test]
fn operators_and_janitors_break_no_transaction() {
    comes_to(OPERATORS_TRANSACTIONAL, [], &[Sight::Buried]);
}

/// An operator who forces a key away from its owner creates two owners. The record and a transaction withstand this.
#[test]
fn force_makes_two_holders_and_refuses_the_first() {
    comes_to(FORCED, [I1, I14], &[]);
}

/// A worker that parks instead of taking over, and does not mistake silence for a failure, repeats no run, with or
/// without fencing. An operator must inspect each crash.
#[test]
fn parking_gives_effect_at_most_once_without_a_transaction() {
    let report = met(PARKED, &[Sight::Acked, Sight::Duplicate, Sight::Buried, Sight::Revived]);
    assert!(report.violated.is_empty(), "{report}");
    assert!(!report.seen.contains_key(&Sight::Takeover), "parked keys are not taken over");
}

#[test]
fn a_changed_payload_is_never_answered_as_a_duplicate() {
    comes_to(PAYLOADS, [], &[Sight::Mismatch]);
}

/// The reason why [`ClaimHandle`](idempotent_core::ClaimHandle) contains the fencing token: `traces.rs` shows the
/// trace.
#[test]
fn an_overtaken_run_settles_the_late_copy_of_its_own_claim_with_the_token_alone() {
    comes_to(TOKEN_ALONE, [I0, I2, I3, I10, Told], &[Sight::LateGrant]);
}

#[test]
fn a_transaction_does_not_stop_an_overtaken_run_with_the_token_alone() {
    comes_to(TOKEN_ALONE_TRANSACTIONAL, [I2, I3, I10, Told], &[Sight::LateGrant]);
}

/// V13 of the table, with the cases that its model could not distinguish: I2 and I3.
#[test]
fn v13_by_the_token_alone_has_an_effect_after_a_later_one() {
    comes_to(TOKEN_ALONE_LOST, [I0, I1, I2, I3, I4b, I5, I7, I10, I14, Told], &[Sight::LateGrant]);
}

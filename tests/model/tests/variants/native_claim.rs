//! Claims with an estimated fencing number, and the same without one rule each.
use idempotent_model::native_claim::{Fault, Outcome, check};

#[test]
fn numbers_of_estimated_and_scripted_claims_rise() {
    let Outcome { is_violated, unseen, states } = check(Fault::None);
    assert!(!is_violated && unseen.is_empty(), "{unseen:?}");
    assert!(states > 10_000, "{states} states");
}

#[test]
fn without_any_of_its_rules_a_claim_is_granted_a_number_that_is_too_low() {
    let faults = [
        Fault::GrantsLate,
        Fault::ReadsClockFirst,
        Fault::KeepsLateNumber,
        Fault::RaisesByOne,
        Fault::ForgetsUnanswered,
        Fault::DeletesAhead,
    ];
    for fault in faults {
        assert!(check(fault).is_violated, "{fault:?}");
    }
}

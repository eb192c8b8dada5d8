//! Clients with clocks of their own, and the same without one rule each.
use idempotent_model::skewed_clocks::{Fault, Outcome, check};

#[test]
fn a_declared_difference_of_the_clocks_breaks_nothing() {
    let Outcome { violated, unseen, states } = check(Fault::None);
    assert!(violated.is_empty() && unseen.is_empty(), "{violated:?} {unseen:?}");
    assert!(states > 10_000, "{states} states");
}

#[test]
fn without_any_of_its_rules_a_property_is_violated() {
    for (fault, expected) in [
        (Fault::Undeclared, "no two owners at the same time"),
        (Fault::LeaseNotExtended, "no two owners at the same time"),
        (Fault::RenewalNotExtended, "no two owners at the same time"),
        (Fault::RetentionNotExtended, "no grant during the retention"),
        (Fault::OwnerExtends, "no two owners at the same time"),
        (Fault::RemovesAtTheEnd, "fencing tokens rise"),
    ] {
        let violated = check(fault).violated;
        assert!(violated.contains(&expected), "{fault:?}: {violated:?}");
    }
}

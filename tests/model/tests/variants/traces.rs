//! The description of a violation for the search of its cause.
use idempotent_model::check::check;
use idempotent_model::invariant::Invariant;
use idempotent_model::table::{TOKEN_ALONE, V4, V6};
use idempotent_model::variant::Variant;

fn story(variant: Variant, invariant: Invariant) -> Vec<String> {
    check(variant).tell(invariant)
}

#[test]
fn a_trace_is_described_in_sentences() {
    assert_eq!(
        story(V6, Invariant::I0),
        [
            "1. worker 1 takes delivery 1 and claims: grant 1",
            "2. worker 1 has its effect",
            "3. the lease runs out",
            "4. worker 2 takes delivery 2 and claims: grant 2, taken over",
            "5. worker 2 has its effect [breaks I0]"
        ]
    );
}

#[test]
fn v4_takes_silence_for_failure_and_deletes_what_it_completed() {
    assert_eq!(
        story(V4, Invariant::I4),
        [
            "1. worker 1 takes delivery 1 and claims: grant 1",
            "2. worker 1 has its effect",
            "3. worker 1 completes: no answer, the request is on the wire",
            "4. worker 1 takes silence for failure",
            "5. the completion of delivery 1 arrives late: consumed",
            "6. worker 1 releases: absent [breaks I4]"
        ]
    );
}

#[test]
fn an_overtaken_run_completes_a_late_copy_of_a_claim_with_the_token_alone() {
    assert_eq!(
        story(TOKEN_ALONE, Invariant::I3),
        [
            "1. worker 1 takes delivery 1 and claims: no answer, the request is on the wire",
            "2. worker 1 claims again: grant 1",
            "3. worker 1 has its effect",
            "4. the lease runs out",
            "5. worker 2 takes delivery 2 and claims: grant 2, taken over",
            "6. the lease runs out",
            "7. the claim of delivery 1 arrives late: grant 3, taken over",
            "8. worker 1 completes: consumed [breaks I3]"
        ]
    );
}

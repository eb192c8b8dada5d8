//! Nothing is reported that some order of the calls explains.
use idempotent_testkit::history::Line;
use idempotent_testkit::history::check::{Invariant, Judge};

use super::{completes, fine, gets, judged, knowing, says, works};

#[test]
fn a_claim_that_overlaps_the_lease_s_end_may_have_come_after_it() {
    fine(&Judge::new(), [gets(0, 1), says(9_000, 11_000, "claim_won", 2, 2)]);
    // Nor within the clock's margin: 10 ms, and a thousandth of the lease.
    fine(&Judge::new(), [gets(0, 1), says(9_982, 9_983, "claim_won", 2, 2)]);
}

#[test]
fn an_earlier_copy_of_a_claim_may_be_the_one_that_was_granted() {
    let lines = [says(0, 3_000, "claim_unknown", 1, 0), says(4_000, 4_001, "claim_won", 1, 1), gets(10_500, 2)];
    fine(&Judge::new(), lines);
}

#[test]
fn an_unanswered_release_may_come_much_later() {
    fine(&Judge::new(), [gets(0, 1), says(2, 3, "release_unknown", 1, 1), gets(5_000, 2)]);
    fine(&Judge::new(), [gets(0, 1), says(2, 3, "release_unknown", 1, 1), says(6, 7, "renew_lost", 1, 1)]);
}

#[test]
fn an_unanswered_completion_explains_the_answers_to_duplicates() {
    let unknown = Line { result: Some("r".to_owned()), ..says(2, 3, "complete_unknown", 1, 1) };
    let told = Line { result: Some("r".to_owned()), ..says(9_000, 9_001, "claim_consumed", 2, 0) };
    fine(&knowing(), [gets(0, 1), works(1, 1), unknown, told]);
}

#[test]
fn a_late_owner_may_complete_and_renew_if_no_other_worker_took_over() {
    fine(&knowing(), [gets(0, 1), works(1, 1), says(20_000, 20_001, "renew_ok", 1, 1), completes(40_000, 1, "r")]);
    // The other grant may be later, so there is no certain owner.
    fine(
        &knowing(),
        [gets(0, 1), works(1, 1), says(11_000, 11_009, "renew_ok", 1, 1), says(11_000, 21_100, "claim_won", 2, 2)],
    );
}

#[test]
fn a_token_may_be_granted_twice_when_its_claim_comes_again() {
    let lines = [
        gets(0, 1),
        says(1, 1, "claim_unknown", 1, 0),
        gets(11_000, 2),
        says(11_002, 11_003, "released", 2, 2),
        // By its number a later grant of the same token.
        says(12_000, 12_001, "claim_won", 1, 3),
        works(12_002, 1),
        says(12_003, 12_004, "renew_ok", 1, 3),
    ];
    let lines = lines.map(|line| if line.event.name() == "effect" { Line { fence: Some(3), ..line } } else { line });
    fine(&knowing(), lines);
    // Without a fencing token, the grant is ambiguous.
    let vague =
        [gets(0, 1), says(1, 1, "claim_unknown", 1, 0), gets(11_000, 2), says(11_002, 11_003, "renew_ok", 1, 0)];
    fine(&knowing(), vague);
}

#[test]
fn a_key_that_an_operator_or_a_data_loss_removed_may_be_granted_again() {
    for taken in ["forget", "record_lost"] {
        let lines = [gets(0, 1), works(1, 1), completes(2, 1, "r"), says(10, 11, taken, 0, 0), gets(20, 2)];
        fine(&Judge::new(), lines);
        fine(&Judge::new(), [gets(0, 1), says(10, 11, taken, 0, 0), gets(20, 2)]);
    }
    fine(&Judge::new(), [gets(0, 2), says(10, 11, "record_lost", 0, 0), gets(20, 1)]);
}

#[test]
fn an_owner_may_be_back_when_the_takeover_was_lost() {
    let lost = says(11_500, 11_501, "record_lost", 0, 0);
    let after = [says(12_000, 12_001, "renew_ok", 1, 1), says(13_000, 13_001, "claim_inflight", 3, 0)];
    let lines = |lost: Option<Line>| [gets(0, 1), gets(11_000, 2)].into_iter().chain(lost).chain(after.clone());
    fine(&Judge::new(), lines(Some(lost)));
    assert!(!judged(&Judge::new(), lines(None)).held());
    // A loss before the takeover says nothing about it.
    let before = says(5_000, 5_001, "record_lost", 0, 0);
    let lines = [gets(0, 1), before, gets(11_000, 2)].into_iter().chain(after);
    assert!(!judged(&Judge::new(), lines).held());
}

#[test]
fn a_crashed_worker_may_have_had_a_call_on_the_wire() {
    let crash = || says(3, 3, "crash", 1, 0);
    let lines = || [gets(0, 1), crash(), gets(5_000, 2)];
    fine(&Judge::new(), lines());
    assert!(!judged(&knowing(), lines()).held(), "unless the history lists what was on the wire");
    let told = Line { result: Some("r".to_owned()), ..says(9, 10, "claim_consumed", 2, 0) };
    fine(&Judge::new(), [gets(0, 1), works(1, 1), crash(), told]);
    fine(&Judge::new(), [gets(0, 1), crash(), says(20_000, 20_001, "claim_inflight", 2, 0)]);
}

#[test]
fn concurrent_callers_may_lock_a_row() {
    fine(&Judge::new(), [says(0, 9, "claim_inflight", 1, 0), says(0, 9, "claim_inflight", 2, 0)]);
    // Also within the retention.
    let lines = [gets(0, 1), works(1, 1), completes(2, 1, "r"), says(4, 5, "claim_inflight", 2, 0)];
    let report = judged(&Judge::new(), lines);
    assert!(!report.violated().any(|invariant| invariant == Invariant::I4), "{report:?}");
}

#[test]
fn a_clock_that_was_set_is_a_margin() {
    let lines = || [gets(0, 1), gets(5_000, 2)];
    assert!(!judged(&Judge::new(), lines()).held());
    fine(&Judge::new().margin(std::time::Duration::from_secs(6)), lines());
}

#[test]
fn parts_that_the_history_does_not_record_are_not_judged_and_are_counted() {
    let silent = |line: Line| Line { lease_ms: None, retain_ms: None, ..line };
    let lines = [gets(0, 1), works(1, 1), completes(2, 1, "r"), gets(5, 2)].map(silent);
    let report = judged(&Judge::new(), lines);
    assert!(report.held(), "{:#?}", report.findings);
    for invariant in [Invariant::I1, Invariant::I4, Invariant::I4b, Invariant::I10] {
        assert!(report.tallies[&invariant].not_judged > 0, "{invariant}");
    }
}

#[test]
fn a_worker_s_own_word_is_not_what_the_resource_holds() {
    let truth = Line { tokens: Some(vec![]), ..says(9, 9, "effect_truth", 0, 0) };
    let report = judged(&Judge::new(), [gets(0, 1), works(1, 1), truth]);
    assert!(report.held() && report.counts.repeated_effects == 0);
}

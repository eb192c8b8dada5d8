//! No check is empty: for each invariant a short history that it alone refuses.
use idempotent_testkit::history::Line;
use idempotent_testkit::history::check::{Invariant, Judge, Level};

use super::{completes, fine, gets, judged, knowing, names, only, says, works};

#[test]
fn a_good_history_is_not_refused() {
    fine(
        &knowing().settled(true).level(Level::L2),
        [
            says(0, 0, "produced", 0, 0),
            gets(0, 1),
            works(1, 1),
            says(2, 3, "renew_ok", 1, 1),
            says(11, 12, "claim_inflight", 2, 0),
            gets(10_020, 3),
            works(10_022, 3),
            says(10_030, 10_031, "complete_lost", 1, 1),
            completes(10_040, 3, "r"),
            says(10_050, 10_050, "ack", 3, 0),
            Line { result: Some("r".to_owned()), ..says(10_060, 10_061, "claim_consumed", 4, 0) },
            says(10_070, 10_070, "ack", 4, 0),
            Line {
                tokens: Some(vec![idempotent_testkit::history::Token(1)]),
                ..says(20_000, 20_000, "effect_truth", 0, 0)
            },
        ],
    );
}

#[test]
fn is_counted_always_and_asserted_at_l3() {
    let lines = || [gets(0, 1), works(2, 1), gets(10_020, 2), works(10_022, 2)];
    let report = judged(&knowing(), lines());
    assert!(report.held() && report.counts.repeated_effects == 1, "{report:?}");
    only("I0", &knowing().level(Level::L3), lines());
}

#[test]
fn two_holders() {
    only("I1", &Judge::new(), [gets(0, 1), gets(5, 2)]);
    // Side by side: whichever came first, the other came inside its lease.
    only("I1", &Judge::new(), [says(0, 9, "claim_won", 1, 1), says(0, 9, "claim_won", 2, 2)]);
    // Renewed at 5 s, the lease lasts until 15 s.
    only("I1", &Judge::new(), [gets(0, 1), says(5_000, 5_001, "renew_ok", 1, 1), gets(14_000, 2)]);
}

#[test]
fn a_foreign_release() {
    only("I2", &Judge::new(), [gets(0, 1), says(1, 2, "released", 2, 0)]);
    only("I2", &Judge::new(), [gets(0, 1), gets(11_000, 2), says(11_002, 11_003, "failed", 1, 1)]);
    only("I2", &knowing(), [gets(0, 1), says(5, 6, "forget", 0, 1)]);
}

#[test]
fn a_completion_or_renewal_by_another_owner() {
    let superseded = |event| [gets(0, 1), works(1, 1), gets(11_000, 2), says(11_002, 11_003, event, 1, 1)];
    only("I3", &Judge::new(), superseded("complete_ok"));
    only("I3", &Judge::new(), superseded("renew_ok"));
    only("I3", &Judge::new(), [gets(0, 1), works(1, 1), says(2, 3, "released", 1, 1), completes(4, 1, "r")]);
}

/// Granted at 0, consumed at 2.
fn done(then: impl IntoIterator<Item = Line>) -> Vec<Line> {
    [gets(0, 1), works(1, 1), completes(2, 1, "r")].into_iter().chain(then).collect()
}

#[test]
fn consumed_undone() {
    only("I4", &Judge::new(), done([says(4, 5, "released", 1, 1)]));
    only("I4", &Judge::new(), done([says(4, 5, "claim_delayed", 2, 0)]));
    // An operator who looked at the grant before.
    let later = [gets(0, 1), says(2, 3, "released", 1, 1), gets(4, 2), says(9, 9, "forget", 0, 1)];
    only("I4", &Judge::new(), later);
}

#[test]
fn a_grant_of_a_consumed_key_is_refused() {
    only("I4b", &Judge::new(), done([gets(5_000, 2)]));
    // Granted during the completion: either of the two must not have been.
    let late = [gets(0, 1), works(1, 1), says(11_000, 11_009, "complete_ok", 1, 1), gets(11_004, 2)];
    only("I4b", &Judge::new(), late);
}

#[test]
fn another_result() {
    let told = |result: &str| Line { result: Some(result.to_owned()), ..says(5, 6, "claim_consumed", 2, 0) };
    only("I5", &Judge::new(), done([told("s")]));
    // The owner completes again with another result. The first result remains.
    only("I5", &Judge::new(), done([completes(4, 1, "s"), told("s")]));
    fine(&Judge::new(), done([completes(4, 1, "s"), told("r")]));
    only("I5", &Judge::new(), [gets(0, 1), works(1, 1), told("r")]);
}

#[test]
fn a_number_that_does_not_rise() {
    only("I6", &Judge::new(), [gets(0, 2), gets(11_000, 1)]);
    only("I6", &Judge::new(), [gets(0, 1), says(2, 3, "released", 1, 1), says(4, 5, "claim_won", 2, 1)]);
    only("I6", &Judge::new(), [says(0, 1, "claim_won", 1, 1 << 53)]);
    // A claim said twice was granted twice.
    only("I6", &Judge::new(), [gets(0, 1), says(2, 3, "claim_won", 1, 2)]);
}

#[test]
fn a_late_effect_on_a_fenced_resource() {
    let lines = || [gets(0, 1), gets(11_000, 2), works(11_002, 2), works(11_003, 1)];
    only("I7", &Judge::new().level(Level::L2), lines());
    fine(&Judge::new(), lines());
}

#[test]
fn acknowledged_without_knowing() {
    let unknown = Line { result: None, ..says(2, 3, "complete_unknown", 1, 1) };
    only("I8", &Judge::new(), [gets(0, 1), works(1, 1), unknown, says(4, 4, "ack", 1, 0)]);
    // Another worker knew the result, but not this one.
    only("I8", &Judge::new(), done([says(1, 2, "claim_inflight", 2, 0), says(6, 6, "ack", 2, 0)]));
}

#[test]
fn consumed_and_nothing_done() {
    let elsewhere = Line { key: Some("other".to_owned()), ..works(1, 1) };
    let report = judged(&Judge::new(), [gets(0, 1), completes(2, 1, "r"), elsewhere]);
    assert_eq!(names(&report), ["I9", "I11"], "the effect is another key's: {:#?}", report.findings);
    let truth = Line { tokens: Some(vec![]), ..says(9, 9, "effect_truth", 0, 0) };
    only("I9", &Judge::new(), done([truth]));
}

#[test]
fn a_run_without_a_cause() {
    only("I10", &knowing(), [gets(0, 1), says(2, 3, "failed", 1, 1), gets(5_000, 2)]);
    only("I10", &knowing(), [gets(0, 1), says(2, 3, "dead", 1, 1), gets(20_000, 2)]);
    // Two runs are allowed, and nothing gave one back.
    let three = || [gets(0, 1), gets(11_000, 2), gets(22_000, 3)];
    only("I10", &knowing().max_attempts(2), three());
    fine(&knowing().max_attempts(3), three());
}

#[test]
fn an_effect_without_a_grant() {
    only("I11", &Judge::new(), [gets(0, 1), works(2, 2)]);
    only("I11", &Judge::new(), [gets(0, 1), works(2, 1), works(3, 1)]);
}

#[test]
fn another_payload() {
    let with = |line: Line, print: &str| Line { fp: Some(print.to_owned()), ..line };
    let done = || [with(gets(0, 1), "a"), works(1, 1), completes(2, 1, "r")];
    let told = |event| says(4, 5, event, 2, 0);
    let replayed = Line { result: Some("r".to_owned()), ..with(told("claim_consumed"), "b") };
    only("I12", &knowing(), done().into_iter().chain([replayed]));
    only("I12", &knowing(), done().into_iter().chain([with(told("mismatch"), "a")]));
    fine(&knowing(), done().into_iter().chain([with(told("mismatch"), "b")]));
}

#[test]
fn waiting_for_a_lease_that_is_over() {
    only("I13", &knowing(), [gets(0, 1), says(12_000, 12_001, "claim_inflight", 2, 0)]);
    only("I13", &knowing().settled(true), [says(0, 0, "produced", 0, 0), gets(1, 1)]);
}

#[test]
fn an_owner_in_its_lease_refused() {
    only("I14", &Judge::new(), [gets(0, 1), says(5, 6, "renew_lost", 1, 1)]);
    only("I14", &Judge::new(), [gets(0, 1), says(5, 6, "complete_lost", 1, 1)]);
    // The first copy may have been applied. The answer to the second copy is still "done".
    let again = [gets(0, 1), says(2, 3, "complete_unknown", 1, 1), says(5, 6, "complete_lost", 1, 1)];
    only("I14", &Judge::new(), again);
    only("I14", &knowing(), [says(0, 1, "claim_unknown", 1, 0), says(2, 3, "claim_inflight", 1, 0)]);
}

#[test]
fn an_excused_assertion_is_not_made() {
    fine(&Judge::new().excuse(Invariant::I1), [gets(0, 1), gets(5, 2)]);
}

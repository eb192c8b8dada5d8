//! Variants that take too long for CI: `cargo xtask soak model`.
use idempotent_model::table::{ALL, V12};

use crate::violates;

#[test]
#[ignore = "26 million steps: cargo xtask soak model"]
fn v12_in_full_size_breaks_nothing() {
    violates(V12, []);
}

#[test]
#[ignore = "48 million steps: cargo xtask soak model"]
fn v12_with_a_limit_renewals_refunds_and_failures_for_good_breaks_nothing() {
    violates(ALL, []);
}

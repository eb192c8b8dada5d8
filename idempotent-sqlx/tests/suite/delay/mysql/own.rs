//! What is particular to it.
pub(super) use crate::tables::mysql::{ANALYZE, BEGIN, Db, HEX, ID, Lines, NUMBERS, explain, other_transaction, place};

/// What a plan must say, one of these, and must not.
pub(super) const BY_INDEX: (&[&str], &[&str]) =
    (&["delay by by_due (range)"], &["delay by  (ALL)", "delay by by_due (index)"]);

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(delayed_work_keeps_the_laws, $table);
    };
}
pub(super) use hold;

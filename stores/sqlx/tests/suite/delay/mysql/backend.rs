//! The parts of the delay tests that differ on MariaDB.
pub(super) use crate::tables::mysql::{
    ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, Lines, NUMBERS, explain, fixture, other_transaction,
};

/// Words of which a plan has at least one, and words that a plan never has.
pub(super) const BY_INDEX: (&[&str], &[&str]) =
    (&["delay by by_due (range)"], &["delay by  (ALL)", "delay by by_due (index)"]);

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(delayed_work_keeps_the_laws, $table);
    };
}
pub(super) use hold;

//! The parts of the delay tests that differ on PostgreSQL.
pub(super) use crate::tables::postgres::{
    ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, Lines, NUMBERS, explain, fixture, other_transaction,
};

/// Words of which a plan has at least one, and words that a plan never has.
pub(super) const BY_INDEX: (&[&str], &[&str]) = (&["Index Cond: (due_at <="], &["Seq Scan on delay"]);

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(delayed_work_keeps_the_laws, $table);
    };
}
pub(super) use hold;

pub(super) use crate::delay::{TOO_LARGE, largest_body};

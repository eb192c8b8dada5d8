//! The parts of the delay tests that differ on PostgreSQL.
pub(super) use crate::tables::postgres::{
    ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, Lines, NUMBERS, explain, fixture, other_transaction,
};

/// Words of which a plan has at least one, and words that a plan never has.
pub(super) const BY_INDEX: (&[&str], &[&str]) = (&["Index Cond: (due_at <="], &["Seq Scan on delay"]);

macro_rules! hold {
    ($table:expr) => {
        // Producers send by the table only.
        idempotent_testkit::broker_conformance!(
            delayed_work_keeps_the_laws,
            $table,
            without: [what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message]
        );
    };
}
pub(super) use hold;

pub(super) use crate::delay::{TOO_LARGE, largest_body};

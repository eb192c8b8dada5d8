//! The parts of the delay tests that differ on SQLite.
pub(super) use crate::tables::sqlite::{
    ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, Lines, NUMBERS, explain, fixture, other_transaction,
};

/// Words of which a plan has at least one, and words that a plan never has.
pub(super) const BY_INDEX: (&[&str], &[&str]) = (&["_due (due_at<?)"], &["SCAN delay"]);

macro_rules! hold {
    ($table:expr) => {
        idempotent_testkit::broker_conformance!(
            delayed_work_keeps_the_laws,
            $table,
            // There is no connection to a file that could be cut.
            without: [
                a_consumer_continues_after_its_connections_were_cut,
                a_drain_during_an_outage_ends_and_each_message_runs_once,
                a_run_that_ends_during_an_outage_is_not_repeated,
                deliveries_of_a_cut_connection_are_redelivered,
                // Producers send by the table only.
                what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message,
            ]
        );
    };
}
pub(super) use hold;

pub(super) use crate::delay::{TOO_LARGE, largest_body};

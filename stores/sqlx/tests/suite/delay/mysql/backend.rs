//! The parts of the delay tests that differ on MariaDB.
pub(super) use crate::tables::mysql::{
    ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, Lines, NUMBERS, explain, fixture, other_transaction,
};

/// Words of which a plan has at least one, and words that a plan never has.
pub(super) const BY_INDEX: (&[&str], &[&str]) =
    (&["delay by by_due (range)"], &["delay by  (ALL)", "delay by by_due (index)"]);

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

/// A word of the error of a task that is too large.
pub(super) const TOO_LARGE: &str = "max_allowed_packet";

/// Returns the size of the largest body whose statement fits into a packet of the server.
pub(super) async fn largest_body(pool: &sqlx::Pool<Db>, fits: impl AsyncFn(usize) -> bool) -> usize {
    let packet = sqlx::query_scalar::<_, i64>("SELECT CAST(@@max_allowed_packet AS SIGNED)").fetch_one(pool).await;
    let mut too_large = usize::try_from(packet.unwrap()).unwrap();
    let mut fitting = too_large - 512;
    while too_large - fitting > 1 {
        let middle = fitting.midpoint(too_large);
        *(if fits(middle).await { &mut fitting } else { &mut too_large }) = middle;
    }
    fitting
}

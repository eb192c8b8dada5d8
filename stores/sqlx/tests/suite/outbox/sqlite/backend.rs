//! The parts of the outbox tests that differ on SQLite.
pub(super) use crate::tables::sqlite::{ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, NUMBERS, explain, fixture};

/// True if one statement can settle many messages.
pub(super) const SETTLES_MANY: bool = true;

/// Returns the tables that a plan reads completely.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    // But the values of the statement itself, and its bounded subqueries.
    let own = ["SCAN v", "SCAN w", "SCAN d", "SCAN CONSTANT ROW"];
    plan.lines().filter(|line| line.starts_with("SCAN") && !own.contains(line)).collect()
}

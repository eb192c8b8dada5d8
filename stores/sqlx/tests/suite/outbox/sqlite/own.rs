//! The parts of the outbox tests that differ on SQLite.
pub(super) use crate::tables::sqlite::{ANALYZE, BEGIN, Db, HEX, ID, NUMBERS, explain, place};

/// Whether one statement can settle many.
pub(super) const SETTLES_MANY: bool = true;

/// What it reads from one end to the other.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    // But the values of the statement itself.
    plan.lines().filter(|line| line.starts_with("SCAN") && *line != "SCAN v" && *line != "SCAN CONSTANT ROW").collect()
}

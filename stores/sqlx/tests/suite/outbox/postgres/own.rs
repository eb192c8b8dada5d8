//! The parts of the outbox tests that differ on PostgreSQL.
pub(super) use crate::tables::postgres::{ANALYZE, BEGIN, Db, HEX, ID, NUMBERS, Server, explain, place};

/// Whether one statement can settle many.
pub(super) const SETTLES_MANY: bool = true;

/// What it reads from one end to the other.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    plan.lines().filter(|line| line.contains("Seq Scan on outbox")).collect()
}

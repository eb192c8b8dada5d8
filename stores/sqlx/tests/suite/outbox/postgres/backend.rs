//! The parts of the outbox tests that differ on PostgreSQL.
pub(super) use crate::tables::postgres::{ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, NUMBERS, Server, explain, fixture};

/// True if one statement can settle many messages.
pub(super) const SETTLES_MANY: bool = true;

/// Returns the tables that a plan reads completely.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    plan.lines().filter(|line| line.contains("Seq Scan on outbox")).collect()
}

//! The parts of the outbox tests that differ on MariaDB.
pub(super) use crate::tables::mysql::{ANALYZE, BEGIN, Db, ELSEWHERE, HEX, ID, NUMBERS, Server, explain, fixture};

/// True if one statement can settle many messages.
pub(super) const SETTLES_MANY: bool = false;

/// Returns the tables that a plan reads completely.
pub(super) fn read_through(plan: &str) -> Vec<&str> {
    let whole = |line: &&str| line.ends_with("(ALL)") || line.ends_with("(index)");
    // But the values of the statement itself, which are a table made of it, or none.
    plan.lines().filter(|line| whole(line) && !line.starts_with('<') && !line.starts_with(' ')).collect()
}

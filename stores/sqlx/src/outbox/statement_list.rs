//! A list of all repeated statements, for tests.
use super::statements::OutboxStatements;

impl OutboxStatements {
    /// Returns each repeated statement with its name, built for a few rows.
    pub(super) fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("enqueue", self.enqueue(2)),
            ("digests", self.digests(2)),
            ("plan", self.plan()),
            ("take", self.take(2)),
            ("free", self.free(2)),
            ("known", self.known(2)),
            ("seen", self.seen(2, 2)),
            ("consumed", self.consumed(2)),
            ("record", self.record(2)),
            ("log", self.log(2)),
            ("settle", self.settle(true, 2)),
            ("forget", self.forget(2)),
            ("forget_own", self.forget_own()),
            ("forget_old", self.forget_old()),
            ("list", self.list()),
            ("counts", self.counts()),
            ("backlog", self.backlog()),
            ("inspect", self.inspect()),
            ("resend", self.resend()),
            ("void", self.void()),
            ("note", self.note()),
            ("notes", self.notes()),
            ("purge", self.purge()),
        ];
        if !self.take_answers() {
            all.push(("taken", self.taken(2)));
        }
        all
    }
}

#[cfg(all(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[allow(clippy::unwrap_used)]
#[path = "statement_tests.rs"]
mod tests;

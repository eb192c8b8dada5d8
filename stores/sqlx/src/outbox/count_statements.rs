//! The SQL statements that count messages.
use super::statements::OutboxStatements;

impl OutboxStatements {
    /// Counts the unsent, unconfirmed and dead messages, and selects the earliest time of an unsent message, and the time.
    /// Arguments: time.
    pub(super) fn counts(&self) -> String {
        let (table, now, unsent) = (&self.table, self.now(), "status=0 AND sent_at IS NULL");
        self.finished("counts", format!(
            "SELECT count(CASE WHEN {unsent} THEN 1 END),count(CASE WHEN status=0 AND sent_at IS NOT NULL THEN 1 END),\
             count(CASE WHEN status=3 THEN 1 END),min(CASE WHEN {unsent} THEN created_at END),{now} \
             FROM {table} WHERE status IN (0,3)"
        ))
    }

    /// Counts the messages that are not settled, the longest due first, and selects the earliest time of an unsent one, the
    /// time, and the number of dead ones. Arguments: time, limit of dead ones, two times, limit.
    pub(super) fn backlog(&self) -> String {
        let (table, now) = (&self.table, self.now());
        let flag = |name: &str, condition: &str| format!("CASE WHEN {condition} THEN 1 ELSE 0 END AS {name}");
        let flags = [
            flag("unsent", "t.sent_at IS NULL"),
            flag("leased", &format!("t.lease_until>{now}")),
            flag("due", &format!("t.due_at<={now}")),
            flag("held", &format!("EXISTS (SELECT 1 FROM {table} p WHERE p.holds=t.holds AND p.seq<t.seq)")),
        ];
        let count = |condition: &str| format!("count(CASE WHEN {condition} THEN 1 END)");
        let counts = [
            "count(*)".to_owned(),
            count("w.unsent=1"),
            count("w.leased=1"),
            count("w.leased=0 AND w.due=1 AND w.held=0"),
            count("w.leased=0 AND w.held=1"),
        ];
        self.finished(
            "backlog",
            format!(
                "SELECT {},min(CASE WHEN w.unsent=1 THEN w.created_at END),{now},\
             (SELECT count(*) FROM (SELECT 1 AS one FROM {table} WHERE status=3 LIMIT ?) d) \
             FROM (SELECT t.created_at,{} FROM {table} t WHERE t.due_at IS NOT NULL ORDER BY t.due_at,t.seq LIMIT ?) w",
                counts.join(","),
                flags.join(","),
            ),
        )
    }
}

//! The SQL statements of an outbox, for each database.
use std::fmt;
use std::sync::Arc;

use super::database::SqlDialect;
use super::record::{CONTENT_COLUMNS, RECORD_COLUMNS};
use crate::table::{LATEST, Table};

/// Builds the statements of one outbox. `?` is a placeholder; for PostgreSQL, the placeholders are numbered last.
pub(super) struct OutboxStatements {
    kind: SqlDialect,
    pub(super) table: String,
    log: String,
    audit: String,
    edit: Option<StatementEdit>,
}

/// Edits the statement with this name, so that a test can check whether the change is noticed.
pub(super) type StatementEdit = Arc<dyn Fn(&'static str, String) -> String + Send + Sync>;

/// The kinds of rows of the message log: the highest offset of a queue, a message that a consumer is processing, and
/// a message that a consumer has consumed.
pub(super) const OF_QUEUE: i64 = 0;
pub(super) const OF_MESSAGE: i64 = 1;
/// The row of a message that a consumer has consumed. Its id is a digest.
pub(super) const OF_CONSUMER: i64 = 2;

impl OutboxStatements {
    pub(super) fn new(kind: SqlDialect, table: &Table, edit: Option<StatementEdit>) -> Self {
        Self { kind, table: table.quoted(), log: table.quoted_beside("log"), audit: table.quoted_beside("audit"), edit }
    }

    /// Returns the current time in µs, constant within a statement. The argument overrides the database's clock.
    pub(super) fn now(&self) -> &'static str {
        self.kind.now()
    }

    pub(super) fn finished(&self, name: &'static str, text: String) -> String {
        let text = match &self.edit {
            Some(edit) => edit(name, text),
            None => text,
        };
        self.kind.numbered(text)
    }

    /// Inserts messages. Arguments of each: id, topic, key, aggregate, headers, body, digest, nonce, time, aggregate,
    /// time.
    pub(super) fn enqueue(&self, messages: usize) -> String {
        let (table, now) = (&self.table, self.now());
        let row = format!("(?,?,?,?,?,?,?,?,{now},?,{now})");
        let rows = vec![row; messages].join(",");
        // Only an existing id can violate a constraint; rows that were not written are compared in any case.
        let (latest, verb, end) = match self.kind {
            SqlDialect::MySql => (LATEST, "INSERT IGNORE", ""),
            _ => ("", "INSERT", " ON CONFLICT (id) DO NOTHING"),
        };
        self.finished(
            "enqueue",
            format!(
                "{latest}{verb} INTO {table} (id,topic,business_key,aggregate,headers,body,digest,nonce,due_at,holds,created_at) \
             VALUES {rows}{end}"
            ),
        )
    }

    /// Selects the committed digests, even if the transaction's snapshot is older. Arguments: ids.
    pub(super) fn digests(&self, messages: usize) -> String {
        let is_mysql = self.kind == SqlDialect::MySql;
        let (latest, share) = if is_mysql { (LATEST, " LOCK IN SHARE MODE") } else { ("", "") };
        self.finished(
            "digests",
            format!("{latest}SELECT id,digest FROM {} WHERE id IN ({}){share}", self.table, places(messages)),
        )
    }

    /// Selects due messages without a lease, the longest due first, each with its unsent predecessor in the
    /// aggregate. Arguments: time, time, time, limit.
    ///
    /// A message waits for a predecessor in its aggregate that is due later. Otherwise, such successors could fill
    /// every batch forever, while the predecessor never becomes part of one.
    pub(super) fn plan(&self) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished("plan", format!(
            "SELECT t.seq,(SELECT max(p.seq) FROM {table} p WHERE p.holds=t.holds AND p.seq<t.seq) AS behind FROM {table} t \
             WHERE t.due_at<={now} AND t.lease_until<={now} AND NOT EXISTS (SELECT 1 FROM {table} p WHERE p.holds=t.holds \
             AND p.seq<t.seq AND (p.due_at IS NULL OR p.due_at>t.due_at OR p.lease_until>{now})) \
             ORDER BY t.due_at,t.seq LIMIT ?"
        ))
    }

    /// Leases the messages that are still due and without a lease. Arguments: time, lease, owner, numbers, time,
    /// time, and another time if the statement returns rows.
    pub(super) fn take(&self, rows: usize) -> String {
        let (table, now, seqs) = (&self.table, self.now(), places(rows));
        let set = format!("lease_until={now}+?,lease_by=?");
        let free = format!("seq IN ({seqs}) AND due_at<={now} AND lease_until<={now}");
        let returning = format!("RETURNING {RECORD_COLUMNS},{CONTENT_COLUMNS},{now}");
        self.finished("take", match self.kind {
            // The array makes PostgreSQL run the subquery once.
            SqlDialect::Postgres => format!(
                "UPDATE {table} t SET {set} WHERE seq = ANY(ARRAY(SELECT seq FROM {table} WHERE {free} ORDER BY seq \
                 FOR UPDATE SKIP LOCKED)) {returning}"
            ),
            SqlDialect::Sqlite => format!("UPDATE {table} AS t SET {set} WHERE {free} {}", returning.replace("t.", "")),
            // Any other index would also lock the gaps between rows, and block inserts.
            SqlDialect::MySql => format!("UPDATE {table} FORCE INDEX (PRIMARY) SET {set} WHERE {free}"),
        })
    }

    /// Selects the leased messages, if [`take`](Self::take) returns no rows. Arguments: time, numbers, owner.
    pub(super) fn taken(&self, rows: usize) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished(
            "taken",
            format!(
                "SELECT {RECORD_COLUMNS},{CONTENT_COLUMNS},{now} FROM {table} t WHERE t.seq IN ({}) AND t.lease_by=?",
                places(rows)
            ),
        )
    }

    /// Ends leases. Arguments: numbers, owner.
    pub(super) fn free(&self, rows: usize) -> String {
        let table = &self.table;
        self.finished(
            "free",
            format!("UPDATE {table} SET lease_until=0,lease_by=NULL WHERE seq IN ({}) AND lease_by=?", places(rows)),
        )
    }

    /// Selects the messages that the outbox contains. Arguments: ids.
    pub(super) fn known(&self, ids: usize) -> String {
        self.finished("known", format!("SELECT id,nonce,status FROM {} WHERE id IN ({})", self.table, places(ids)))
    }

    /// Selects the log rows of messages and queues. Arguments: ids, queues.
    pub(super) fn seen(&self, ids: usize, queues: usize) -> String {
        let (log, of) = (&self.log, |kind, rows| format!("kind={kind} AND id IN ({})", places(rows)));
        let part = |of: String| format!("SELECT kind,id,place,logged_at FROM {log} WHERE {of}");
        let parts =
            [(OF_MESSAGE, ids), (OF_QUEUE, queues)].map(|(kind, rows)| (rows > 0).then(|| part(of(kind, rows))));
        self.finished("seen", parts.into_iter().flatten().collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// Selects the rows of the message log that exist. Arguments: kind, ids.
    pub(super) fn consumed(&self, ids: usize) -> String {
        self.finished("consumed", format!("SELECT id FROM {} WHERE kind=? AND id IN ({})", self.log, places(ids)))
    }

    /// Writes the results of leased messages. Arguments of each: number, accepted (1, 0), sends, failures, status,
    /// queue, offset, µs to the next check, error. Three times precede or [follow](Self::rows_before_times) these;
    /// the owner is the last one.
    pub(super) fn record(&self, rows: usize) -> String {
        let (table, now) = (&self.table, self.now());
        let names = "SELECT ? AS seq,? AS accepted,? AS sends,? AS failures,? AS status,? AS queue,? AS place,? AS rest,? AS error";
        let more = " UNION ALL SELECT ?,?,?,?,?,?,?,?,?".repeat(rows.saturating_sub(1));
        let of = |column: &str| match self.kind {
            // MySQL alone allows the table's name here, and needs it for a join of tables.
            SqlDialect::MySql => format!("t.{column}"),
            _ => column.to_owned(),
        };
        let if_accepted = |column: &str, then: &str, or: &str| {
            format!("{}=CASE WHEN v.accepted=1 THEN {then} ELSE {or} END", of(column))
        };
        let set = [
            format!("{}=t.sends+v.sends", of("sends")),
            format!("{}=v.failures", of("failures")),
            if_accepted("queue", "v.queue", "t.queue"),
            if_accepted("place", "v.place", "t.place"),
            if_accepted("sent_at", now, "t.sent_at"),
            if_accepted("last_error", "NULL", "coalesce(v.error,t.last_error)"),
            if_accepted("holds", "NULL", "t.holds"),
            // A consumer may have confirmed the message in the meantime, or an operator may have voided it.
            format!("{}=CASE WHEN v.status=0 AND t.status=0 THEN {now}+v.rest END", of("due_at")),
            format!(
                "{}=CASE WHEN v.status<>0 THEN coalesce(t.settled_at,{now}) ELSE t.settled_at END",
                of("settled_at")
            ),
            format!("{}=CASE WHEN t.status=0 THEN v.status ELSE t.status END", of("status")),
            format!("{}=0", of("lease_until")),
            format!("{}=NULL", of("lease_by")),
        ];
        let set = set.join(",");
        self.finished(
            "record",
            match self.kind {
                SqlDialect::MySql => {
                    format!("UPDATE {table} t JOIN ({names}{more}) v ON t.seq=v.seq SET {set} WHERE t.lease_by=?")
                }
                // PostgreSQL would plan and start one subquery per row.
                SqlDialect::Postgres => {
                    let rows = vec!["(?,?,?,?,?,?,?,?,?)"; rows].join(",");
                    let names = "v(seq,accepted,sends,failures,status,queue,place,rest,error)";
                    format!(
                        "UPDATE {table} AS t SET {set} FROM (VALUES {rows}) {names} WHERE t.seq=v.seq AND t.lease_by=?"
                    )
                }
                SqlDialect::Sqlite => {
                    format!("UPDATE {table} AS t SET {set} FROM ({names}{more}) v WHERE t.seq=v.seq AND t.lease_by=?")
                }
            },
        )
    }

    /// Adds log rows of messages and queues. An existing message keeps its run, and a queue its highest offset.
    /// Arguments of each: kind, id, run, offset, time.
    pub(super) fn log(&self, rows: usize) -> String {
        let (log, now) = (&self.log, self.now());
        let rows = vec![format!("(?,?,?,?,{now})"); rows].join(",");
        let (clause, new) = match self.kind {
            SqlDialect::MySql => ("ON DUPLICATE KEY UPDATE", ["VALUES(place)", "VALUES(logged_at)"]),
            _ => ("ON CONFLICT (kind,id) DO UPDATE SET", ["excluded.place", "excluded.logged_at"]),
        };
        let [place, at] = new;
        let old = if self.kind == SqlDialect::MySql { "" } else { "l." };
        self.finished(
            "log",
            format!(
                "INSERT INTO {log}{} (kind,id,run,place,logged_at) VALUES {rows} {clause} \
             place=CASE WHEN {old}place>{place} THEN {old}place ELSE coalesce({place},{old}place) END,logged_at={at}",
                if self.kind == SqlDialect::MySql { "" } else { " AS l" }
            ),
        )
    }

    /// Settles messages for their consumers. A dead message can still be confirmed; a void one stays void. Returns
    /// the ids if there are several. Arguments: status, time, ids, nonces.
    ///
    /// A statement for several messages skips locked rows: a relay that writes its results locks the same rows in
    /// another order.
    pub(super) fn settle(&self, confirmed: bool, ids: usize) -> String {
        let (table, now) = (&self.table, self.now());
        let (places, open) = (places(ids), if confirmed { "0,3" } else { "0" });
        let of = format!("id IN ({places}) AND nonce IN ({places}) AND status IN ({open})");
        let set = format!("status=?,settled_at={now},due_at=NULL,holds=NULL");
        self.finished("settle", match (self.kind, ids) {
            (SqlDialect::MySql, _) | (_, 1) => format!("UPDATE {table} SET {set} WHERE {of}"),
            (SqlDialect::Postgres, _) => format!(
                "UPDATE {table} SET {set} WHERE seq = ANY(ARRAY(SELECT seq FROM {table} WHERE {of} FOR UPDATE SKIP LOCKED)) \
                 RETURNING id"
            ),
            (SqlDialect::Sqlite, _) => format!("UPDATE {table} SET {set} WHERE {of} RETURNING id"),
        })
    }

    /// Returns whether [`settle`](Self::settle) accepts several messages. MySQL cannot skip locked rows in this
    /// statement.
    pub(super) fn settles_many(&self) -> bool {
        self.kind != SqlDialect::MySql
    }

    /// Removes the log rows of all runs. Arguments: kind, ids.
    pub(super) fn forget(&self, ids: usize) -> String {
        self.finished("forget", format!("DELETE FROM {} WHERE kind=? AND id IN ({})", self.log, places(ids)))
    }

    /// Removes the log row of one run. Arguments: kind, id, run.
    pub(super) fn forget_own(&self) -> String {
        self.finished("forget_own", format!("DELETE FROM {} WHERE kind=? AND id=? AND run=?", self.log))
    }

    /// Removes old log rows, except those that show the relay that a message was lost. Arguments: kind, time, age.
    pub(super) fn forget_old(&self) -> String {
        let (table, log, now) = (&self.table, &self.log, self.now());
        self.finished(
            "forget_old",
            format!(
                "DELETE FROM {log} WHERE kind=? AND logged_at<={now}-? AND NOT EXISTS \
             (SELECT 1 FROM {table} t WHERE t.id={log}.id AND t.status=0)"
            ),
        )
    }

    /// Selects a page of the messages with one status, with ids and topics. Arguments: status, number, limit.
    pub(super) fn list(&self) -> String {
        let columns = format!("{RECORD_COLUMNS},t.id,t.topic");
        self.finished(
            "list",
            format!("SELECT {columns} FROM {} t WHERE t.status=? AND t.seq>? ORDER BY t.seq LIMIT ?", self.table),
        )
    }

    /// Selects one message with its content. Arguments: id.
    pub(super) fn inspect(&self) -> String {
        self.finished(
            "inspect",
            format!("SELECT {RECORD_COLUMNS},{CONTENT_COLUMNS} FROM {} t WHERE t.id=?", self.table),
        )
    }

    /// Makes a message due now, even if it is leased: the relay that holds the lease cannot write its result.
    /// Arguments: time, id.
    pub(super) fn resend(&self) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished(
            "resend",
            format!(
                "UPDATE {table} SET status=0,sends=0,failures=0,queue=NULL,place=NULL,settled_at=NULL,due_at={now},\
             lease_until=0,lease_by=NULL WHERE id=? AND status IN (0,3)"
            ),
        )
    }

    /// Voids a message. Arguments: time, id.
    pub(super) fn void(&self) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished(
            "void",
            format!(
                "UPDATE {table} SET status=2,due_at=NULL,holds=NULL,settled_at={now} WHERE id=? AND status IN (0,3)"
            ),
        )
    }

    /// Adds an audit entry. Arguments: id, operator, action, reason, time.
    pub(super) fn note(&self) -> String {
        let (audit, now) = (&self.audit, self.now());
        self.finished("note", format!("INSERT INTO {audit} (id,done_by,action,reason,done_at) VALUES (?,?,?,?,{now})"))
    }

    /// Selects the audit entries of a message. Arguments: id.
    pub(super) fn notes(&self) -> String {
        self.finished(
            "notes",
            format!("SELECT done_by,action,reason,done_at FROM {} WHERE id=? ORDER BY seq", self.audit),
        )
    }

    /// Removes settled messages, the oldest first, by the index of statuses. Arguments: status, time, age, limit.
    pub(super) fn purge(&self) -> String {
        let (table, now) = (&self.table, self.now());
        let old = format!("status=? AND settled_at<={now}-?");
        self.finished(
            "purge",
            match self.kind {
                SqlDialect::MySql => format!("DELETE FROM {table} WHERE {old} ORDER BY seq LIMIT ?"),
                _ => format!(
                    "DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE {old} ORDER BY seq LIMIT ?)"
                ),
            },
        )
    }

    /// Returns whether the rows of [`record`](Self::record) precede its times.
    pub(super) fn rows_before_times(&self) -> bool {
        self.kind == SqlDialect::MySql
    }

    /// Returns whether [`take`](Self::take) returns the rows.
    pub(super) fn take_answers(&self) -> bool {
        self.kind != SqlDialect::MySql
    }
}

/// Returns `count` placeholders, separated by commas.
fn places(count: usize) -> String {
    vec!["?"; count].join(",")
}

/// Omits the edit.
impl fmt::Debug for OutboxStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxStatements").field("kind", &self.kind).field("table", &self.table).finish_non_exhaustive()
    }
}

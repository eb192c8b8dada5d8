//! The SQL statements of a delay table, for each database.
use std::time::Duration;

use crate::sql_database::{SqlDialect, micros};
use crate::table::{LATEST, Table};

/// Builds the statements of one table. `?` is a placeholder; for PostgreSQL, the placeholders are numbered last.
#[derive(Debug)]
pub(super) struct DelayStatements {
    kind: SqlDialect,
    table: String,
    visibility: i64,
    max_lost: u32,
}

/// The columns of a delivery, and their types. A row that becomes a dead letter by a take has no holder.
const TAKEN_COLUMNS: &str = "seq,scheduled_at,id,headers,body,taken,attempt,first_at,deaths,holder";
pub(super) const TAKEN_SHAPE: &str = "iibbbiiiib";
/// The additional columns of a dead letter.
const LETTER_COLUMNS: &str = "dead_at,letter,reason";
pub(super) const LETTER_SHAPE: &str = "iibbbiiiibibb";

/// The reason of a dead letter that was never settled.
const LOST_REASON: &str = "too many deliveries in a row were settled by nobody: does it kill its consumers?";

impl DelayStatements {
    pub(super) fn new(kind: SqlDialect, table: &Table, visibility: Duration, max_lost: u32) -> Self {
        Self { kind, table: table.quoted(), visibility: micros(visibility), max_lost }
    }

    /// Returns the current time in µs, constant within a statement and never ahead of the clock. The argument
    /// overrides the database's clock.
    fn now(&self) -> &'static str {
        self.kind.now()
    }

    /// Returns the resolution of [`now`](Self::now), by which a delay from that time is extended.
    pub(super) fn tick(&self) -> Duration {
        match self.kind {
            SqlDialect::Sqlite => Duration::from_millis(1),
            _ => Duration::ZERO,
        }
    }

    fn finished(&self, text: String) -> String {
        self.kind.numbered(text)
    }

    /// Returns bytes as a literal.
    fn bytes(&self, text: &str) -> String {
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        match self.kind {
            SqlDialect::Postgres => format!("decode('{digits}','hex')"),
            _ => format!("x'{digits}'"),
        }
    }

    /// Inserts a task. Arguments: key, key, headers, body, then twice the due time, or twice the time and the delay.
    pub(super) fn schedule(&self, after: bool) -> String {
        let (table, now) = (&self.table, self.now());
        let due = if after { format!("{now}+?") } else { "?".to_owned() };
        // Only an existing key can violate a constraint; a row that was not written is looked up in any case.
        let (latest, verb, end) = match self.kind {
            SqlDialect::MySql => (LATEST, "INSERT IGNORE", ""),
            _ => ("", "INSERT", " ON CONFLICT (live) DO NOTHING"),
        };
        self.finished(format!(
            "{latest}{verb} INTO {table} (id,live,headers,body,scheduled_at,due_at) VALUES (?,?,?,?,{due},{due}){end}"
        ))
    }

    /// Selects the time of the committed task with this key, even if the transaction's snapshot is older. Arguments:
    /// key.
    pub(super) fn scheduled(&self) -> String {
        let is_mysql = self.kind == SqlDialect::MySql;
        let (latest, share) = if is_mysql { (LATEST, " LOCK IN SHARE MODE") } else { ("", "") };
        self.finished(format!("{latest}SELECT scheduled_at FROM {} WHERE live=?{share}", self.table))
    }

    /// Returns whether [`cancel`](Self::cancel) returns the holder.
    pub(super) fn cancel_answers(&self) -> bool {
        self.kind != SqlDialect::MySql
    }

    /// Deletes a task. If the database returns no holder, `free` restricts the statement to tasks without one.
    /// Arguments: key.
    pub(super) fn cancel(&self, free: bool) -> String {
        let gone = format!("DELETE FROM {} WHERE live=?", self.table);
        self.finished(match (self.cancel_answers(), free) {
            (true, _) => format!("{gone} RETURNING CAST(CASE WHEN holder IS NULL THEN 0 ELSE 1 END AS bigint)"),
            (false, true) => format!("{gone} AND holder IS NULL"),
            (false, false) => gone,
        })
    }

    /// Selects the time and the next due times; the time alone if there are none. Arguments: time, time, window,
    /// limit.
    pub(super) fn ahead(&self) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished(format!(
            "SELECT n.t,d.due_at FROM (SELECT {now} AS t) n LEFT JOIN (SELECT due_at FROM {table} \
             WHERE due_at<={now}+? ORDER BY due_at LIMIT ?) d ON 1=1"
        ))
    }

    fn due(&self) -> String {
        format!("SELECT seq FROM {} WHERE due_at<={} ORDER BY due_at,seq LIMIT ?", self.table, self.now())
    }

    /// Returns [`due`](Self::due) as a separate statement. Arguments: time, limit.
    pub(super) fn __due(&self) -> String {
        self.finished(self.due())
    }

    /// Returns the assignments that give a row a new holder for the visibility timeout, or make it a dead letter.
    /// MySQL evaluates assignments in order, so the columns that others read come last. Arguments: time, time, time,
    /// holder.
    fn taking(&self) -> String {
        let (now, visibility) = (self.now(), self.visibility);
        let dies = format!("holder IS NOT NULL AND lost>={}", self.max_lost);
        let if_dies =
            |column: &str, then: &str, or: &str| format!("{column}=CASE WHEN {dies} THEN {then} ELSE {or} END");
        let holder = match self.kind {
            // MySQL has already changed `lost` and `dead_at` at this point.
            SqlDialect::MySql => "holder=CASE WHEN dead_at IS NULL THEN ? END".to_owned(),
            _ => if_dies("holder", "NULL", "?"),
        };
        [
            if_dies("dead_at", now, "NULL"),
            if_dies("reason", &self.bytes(LOST_REASON), "reason"),
            if_dies("letter", "NULL", "letter"),
            if_dies("attempt", "attempt+lost", "attempt"),
            if_dies("deaths", "deaths+1", "deaths"),
            if_dies("taken", "taken", "taken+1"),
            if_dies("live", "NULL", "live"),
            if_dies("due_at", "NULL", &format!("{now}+{visibility}")),
            format!("first_at=coalesce(first_at,{now})"),
            if_dies("lost", "0", "CASE WHEN holder IS NULL THEN lost ELSE lost+1 END"),
            holder,
        ]
        .join(",")
    }

    /// Takes due tasks, the longest due first, if one statement suffices. Arguments: three times, holder, time,
    /// limit.
    pub(super) fn take(&self) -> String {
        let (table, set, due) = (&self.table, self.taking(), self.due());
        self.finished(match self.kind {
            // The array makes PostgreSQL run the subquery once.
            SqlDialect::Postgres => format!(
                "UPDATE {table} SET {set} WHERE seq=ANY(ARRAY({due} FOR UPDATE SKIP LOCKED)) RETURNING {TAKEN_COLUMNS}"
            ),
            _ => format!("UPDATE {table} SET {set} WHERE seq IN ({due}) RETURNING {TAKEN_COLUMNS}"),
        })
    }

    /// Returns whether [`take`](Self::take) is supported.
    pub(super) fn takes_at_once(&self) -> bool {
        self.kind != SqlDialect::MySql
    }

    /// Locks those of these rows that are due and not locked, in a transaction. Arguments: numbers, time.
    pub(super) fn lock(&self, rows: usize) -> String {
        // Any other index would also lock the gaps between rows, and block inserts.
        let (table, now, seqs) = (&self.table, self.now(), places(rows));
        self.finished(format!(
            "SELECT seq FROM {table} FORCE INDEX (PRIMARY) WHERE seq IN ({seqs}) AND due_at<={now} FOR UPDATE SKIP LOCKED"
        ))
    }

    /// Takes locked rows. Arguments: three times, holder, numbers.
    pub(super) fn take_locked(&self, rows: usize) -> String {
        let (table, set, seqs) = (&self.table, self.taking(), places(rows));
        self.finished(format!("UPDATE {table} SET {set} WHERE seq IN ({seqs})"))
    }

    /// Selects the rows that were taken. Arguments: numbers.
    pub(super) fn taken(&self, rows: usize) -> String {
        self.finished(format!("SELECT {TAKEN_COLUMNS} FROM {} WHERE seq IN ({})", self.table, places(rows)))
    }

    fn held(&self, set: &str) -> String {
        self.finished(format!("UPDATE {} SET {set},holder=NULL WHERE seq=? AND holder=?", self.table))
    }

    /// Removes a settled task. Arguments: number, holder.
    pub(super) fn done(&self) -> String {
        self.finished(format!("DELETE FROM {} WHERE seq=? AND holder=?", self.table))
    }

    /// Schedules a retry. Arguments: time, delay, attempt, first delivery, reason, number, holder.
    pub(super) fn put_off(&self) -> String {
        self.held(&format!("due_at={}+?,attempt=?,first_at=?,reason=?,lost=0", self.now()))
    }

    /// Makes a task due now without a holder. Arguments: time, number, holder.
    pub(super) fn give_back(&self) -> String {
        self.held(&format!("due_at={}", self.now()))
    }

    /// Makes a task a dead letter. Arguments: time of death, attempts, first delivery, deaths, id of the letter,
    /// reason, number, holder.
    pub(super) fn dead_letter(&self) -> String {
        self.held("due_at=NULL,live=NULL,lost=0,dead_at=?,attempt=?,first_at=?,deaths=?,letter=?,reason=?")
    }

    /// Extends the visibility timeouts. Arguments: time, numbers, holders.
    pub(super) fn keep(&self, rows: usize) -> String {
        let (table, now, visibility, of) = (&self.table, self.now(), self.visibility, places(rows));
        self.finished(format!("UPDATE {table} SET due_at={now}+{visibility} WHERE seq IN ({of}) AND holder IN ({of})"))
    }

    /// Counts the ready, waiting, held and dead tasks, and selects the earliest due time and the time. Arguments:
    /// five times.
    pub(super) fn counts(&self) -> String {
        let (table, now) = (&self.table, self.now());
        self.finished(format!(
            "SELECT count(CASE WHEN due_at<={now} THEN 1 END),\
             count(CASE WHEN due_at>{now} AND holder IS NULL THEN 1 END),\
             count(CASE WHEN due_at>{now} AND holder IS NOT NULL THEN 1 END),count(dead_at),\
             min(CASE WHEN due_at<={now} THEN due_at END),{now} FROM {table}"
        ))
    }

    /// Counts the ready, waiting, held and dead tasks up to a limit, and selects the earliest due time and the time.
    /// Arguments: time, limit, limit, three times, limit.
    pub(super) fn backlog(&self) -> String {
        let (table, now) = (&self.table, self.now());
        let count = |condition: &str| {
            format!("(SELECT count(*) FROM (SELECT 1 AS one FROM {table} WHERE {condition} LIMIT ?) c)")
        };
        // With the order, PostgreSQL reads the index.
        let (ready, dead) = (count(&format!("due_at<={now}")), count("dead_at IS NOT NULL ORDER BY dead_at"));
        self.finished(format!(
            "SELECT {ready},count(CASE WHEN w.held=0 THEN 1 END),count(CASE WHEN w.held=1 THEN 1 END),{dead},\
             (SELECT min(due_at) FROM {table} WHERE due_at<={now}),{now} \
             FROM (SELECT CASE WHEN holder IS NULL THEN 0 ELSE 1 END AS held FROM {table} WHERE due_at>{now} \
             ORDER BY due_at,seq LIMIT ?) w"
        ))
    }

    pub(super) fn count_dead(&self) -> String {
        self.finished(format!("SELECT count(*) FROM {} WHERE dead_at IS NOT NULL", self.table))
    }

    /// Selects the dead letter after another one. Arguments: time of death, time of death, number.
    pub(super) fn letter(&self) -> String {
        self.finished(format!(
            "SELECT {TAKEN_COLUMNS},{LETTER_COLUMNS} FROM {} WHERE dead_at>? OR (dead_at=? AND seq>?) ORDER BY dead_at,seq LIMIT 1",
            self.table
        ))
    }

    /// Puts a dead letter back as a first attempt. Arguments: time, number.
    pub(super) fn revive(&self, with_key: bool) -> String {
        let (table, now, live) = (&self.table, self.now(), if with_key { "id" } else { "NULL" });
        self.finished(format!(
            "UPDATE {table} SET live={live},due_at={now},dead_at=NULL,letter=NULL,reason=NULL,attempt=1,taken=0,lost=0 \
             WHERE seq=? AND dead_at IS NOT NULL"
        ))
    }

    /// Removes one dead letter. Arguments: number, time of death.
    pub(super) fn discard(&self) -> String {
        self.finished(format!("DELETE FROM {} WHERE seq=? AND dead_at=?", self.table))
    }

    /// Removes the oldest dead letters. Arguments: limit.
    pub(super) fn purge_dead(&self) -> String {
        let table = &self.table;
        let oldest = "WHERE dead_at IS NOT NULL ORDER BY dead_at,seq LIMIT ?";
        self.finished(match self.kind {
            SqlDialect::MySql => format!("DELETE FROM {table} {oldest}"),
            _ => format!("DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} {oldest})"),
        })
    }
}

/// Returns `count` placeholders, separated by commas.
fn places(count: usize) -> String {
    vec!["?"; count].join(",")
}

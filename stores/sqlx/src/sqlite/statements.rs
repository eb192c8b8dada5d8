//! The statements, made once for a store: the table's name and the clock are put in.
//!
//! They mirror [`protocol`](idempotent_core::protocol); `tests/suite/protocol.rs` holds them against it. Times and
//! spans are µs. `NOW` is read by SQLite under the write lock, so that the fencing number rises in the order of
//! the grants, also over a deletion; it does not change within a statement.
use std::sync::Arc;

use idempotent_core::Record;
use idempotent_core::protocol::{CRASHED, PARKED};

use super::claim_row::ClaimRow;
use crate::order::{self, OrderSql};
use crate::row::{COLUMNS, FENCING_END, VERSION};
use crate::search::{SearchDialect, SearchSql};
use crate::steps::{StepsDialect, StepsSql};
use crate::table::Table;

/// SQLite's clock has a resolution of one millisecond.
const NOW: &str = "(CAST(round(unixepoch('now','subsec')*1000) AS INTEGER)*1000)";
/// The time for which an expired record is kept: two ticks of `NOW`. A record that is deleted within the tick of its
/// own grant would lose its fencing number, and the next grant could get the same number.
const TICKS: i64 = 2_000;

/// The texts. Each parameter's meaning is its place: `?1` is always the key's hash, `?2` the owner.
#[derive(Clone, Debug)]
pub(super) struct SqliteStatements {
    pub(super) claim: Arc<str>,
    pub(super) claim_new: Arc<str>,
    pub(super) claim_known: Arc<str>,
    pub(super) look: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) complete: Arc<str>,
    pub(super) store_value: Arc<str>,
    pub(super) delete: Arc<str>,
    pub(super) vacate: Arc<str>,
    pub(super) end: Arc<str>,
    pub(super) forget: Arc<str>,
    pub(super) examine: Arc<str>,
    pub(super) read: Arc<str>,
    pub(super) scan: Arc<str>,
    pub(super) purge: Arc<str>,
    /// Marks a record as one that was claimed in a transaction of the caller, until its completion.
    pub(super) mark_claim: Arc<str>,
    pub(super) is_marked: Arc<str>,
    maker: StatementBuilder,
}

/// The statements on order tables.
#[derive(Debug)]
pub(super) struct OrderStatements {
    pub(super) read: Arc<str>,
    pub(super) add: Arc<str>,
    pub(super) compare_and_swap: Arc<str>,
    pub(super) scan: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) browse: Arc<str>,
}

impl From<OrderSql> for OrderStatements {
    fn from(sql: OrderSql) -> Self {
        let all = [sql.read, sql.add, sql.compare_and_swap, sql.scan, sql.purge, sql.browse];
        let [read, add, compare_and_swap, scan, purge, browse] = all.map(Arc::from);
        Self { read, add, compare_and_swap, scan, purge, browse }
    }
}

impl SqliteStatements {
    /// Creates the statements. With `bound_clock`, each statement takes the time as its last parameter, and a claim as
    /// its third.
    pub(super) fn new(table: &Table, bound_clock: bool) -> Self {
        let maker = StatementBuilder { table: table.quoted(), bound_clock };
        let search = maker.search_sql();
        Self {
            claim: maker.claim(true).into(),
            claim_new: maker.claim(false).into(),
            claim_known: maker.claim_look(&format!("coalesce(?3,{NOW})")).into(),
            look: maker.look().into(),
            renew: maker.renew().into(),
            complete: maker.complete().into(),
            store_value: maker.store_value().into(),
            delete: maker.delete().into(),
            vacate: maker.vacate().into(),
            end: maker.end().into(),
            forget: maker.forget().into(),
            examine: search.examine.into(),
            read: search.read.into(),
            scan: maker.scan().into(),
            purge: maker.purge().into(),
            mark_claim: format!("UPDATE {} SET value=x'00' WHERE id=?1", maker.table).into(),
            is_marked: format!("SELECT 1 FROM {} WHERE id=?1 AND state=1 AND value IS NOT NULL", maker.table).into(),
            maker,
        }
    }

    /// Creates the statements for the steps of runs.
    pub(super) fn steps_sql(table: &Table, bound_clock: bool) -> StepsSql {
        let maker = StatementBuilder { table: table.quoted(), bound_clock };
        let now = |place| maker.now(place);
        // SQLite lets one write at a time.
        StepsSql::new(table, &StepsDialect { mark: '?', sound: sound(), now: &now, lock: "", try_lock: None })
    }

    /// Creates the statements for the order tables of streams.
    pub(super) fn order_sql(table: &Table, bound_clock: bool) -> OrderSql {
        let maker = StatementBuilder { table: table.quoted(), bound_clock };
        let now = |place| maker.now(place);
        OrderSql::new(table, &order::OrderDialect { mark: '?', now: &now, plus: &plus, add: ("INSERT OR IGNORE", "") })
    }

    /// Returns [`StatementBuilder::look_all`]. With `begin`, the statement begins a transaction that will write.
    pub(super) fn look_all(&self, count: usize, begin: bool) -> Arc<str> {
        let look = self.maker.look_all(count);
        if begin { format!("BEGIN IMMEDIATE; {look}").into() } else { look.into() }
    }

    /// Returns [`StatementBuilder::put_all`]. With `commit`, the statement ends the transaction. An error before the
    /// commit leaves the transaction open.
    pub(super) fn put_all(&self, count: usize, commit: bool) -> Arc<str> {
        match (count, commit) {
            (0, _) => "COMMIT".into(),
            (count, true) => format!("{}; COMMIT", self.maker.put_all(count)).into(),
            (count, false) => self.maker.put_all(count).into(),
        }
    }
}

/// The columns of a key without an owner.
const NOBODY: &str = "owner=NULL, taken_over=NULL";

/// Puts the statements together.
#[derive(Clone, Debug)]
struct StatementBuilder {
    /// Quoted.
    table: String,
    bound_clock: bool,
}

impl StatementBuilder {
    fn now(&self, place: usize) -> String {
        if self.bound_clock { format!("?{place}") } else { NOW.into() }
    }

    /// Returns three statements for one round trip to the connection's thread, which the first row ends:
    ///
    /// 1. a read, which answers a duplicate without the write lock;
    /// 2. the upsert, which grants the key, takes it over or marks it dead. The upsert returns no row: a statement
    ///    that is abandoned after its first row commits while it is reset, and sqlx does not report an error of that
    ///    commit;
    /// 3. a read of the resulting row. In WAL mode a reader never waits, so an error of this round trip is almost
    ///    certainly an error of an earlier statement.
    ///
    /// The rows are short, because each value of a row costs as much as the search of the statement; the first row is
    /// a [`ClaimRow`]. Another round trip reads the whole record if the row is not sufficient.
    ///
    /// Without `look_first`, the first statement is omitted, for a key that is expected to be new. This saves a tenth
    /// of a fresh claim. A duplicate then takes the write lock, is up to three times as slow, and may have to wait for
    /// another process.
    ///
    /// ?3 is the time of a custom clock and is always bound. Each statement names the numbers from 1 on: sqlx counts
    /// an omitted number as a place of its own, and may then leave the last one empty.
    ///
    /// ?4 lease, ?5 fingerprint, ?6 maximum of attempts, ?7 park, ?8 retention, ?9 name, ?10 display
    fn claim(&self, look_first: bool) -> String {
        let (table, now) = (&self.table, format!("coalesce(?3,{NOW})"));
        let (sound, look) = (sound(), self.claim_look(&now));
        let (granted, wrote, other) = (ClaimRow::GRANTED, ClaimRow::WROTE, ClaimRow::OTHER);
        let result = format!(
            "SELECT CASE WHEN state=1 AND owner=?2 AND {sound} THEN {granted} \
             WHEN changes()>0 THEN {wrote} ELSE {other} END, fencing, attempt, taken_over FROM {table} \
             WHERE id=?1"
        );
        let write = self.upsert(&now);
        if look_first { format!("{look}; {write}; {result}") } else { format!("{write}; {result}") }
    }

    /// Returns the first statement, for a key that is expected to be a duplicate; also used alone. The result has no
    /// row if the key may be claimed.
    fn claim_look(&self, now: &str) -> String {
        let (table, sound, free) = (&self.table, sound(), claimable(now));
        let (consumed, other) = (ClaimRow::CONSUMED, ClaimRow::OTHER);
        format!(
            "SELECT CASE WHEN state=2 AND display IS NULL AND {sound} THEN {consumed} ELSE {other} END, \
             fencing, fingerprint, value FROM {table} \
             WHERE id=?1 AND CASE WHEN {free} THEN NOT coalesce({sound}, 0) ELSE 1 END"
        )
    }

    fn upsert(&self, now: &str) -> String {
        let (table, columns) = (&self.table, columns());
        let (sound, free) = (sound(), claimable("excluded.updated_at"));
        let gone = "expires_at<=excluded.updated_at";
        let spent = "(?6>0 AND attempt>=?6)";
        let bury = format!("({gone})=0 AND (state IN (0,1) AND {spent} OR state=1 AND ?7)");
        let until = plus("n", "?4");
        let (expires, buried_until) = (plus("u", "?8"), plus("excluded.updated_at", "?8"));
        let (crashed, parked) = (quote(CRASHED), quote(PARKED));
        format!(
            "INSERT INTO {table} ({columns}) \
             SELECT ?1,{VERSION},?9,1,?2,n,1,u,NULL,?5,{expires},n,n,NULL,NULL,?10 \
             FROM (SELECT n,{until} AS u FROM (SELECT {now} AS n)) WHERE true \
             ON CONFLICT(id) DO UPDATE SET \
             state=CASE WHEN {bury} THEN 4 ELSE 1 END, \
             owner=CASE WHEN {bury} THEN NULL ELSE excluded.owner END, \
             fencing=CASE WHEN {bury} THEN fencing ELSE max(fencing+1,excluded.fencing) END, \
             attempt=CASE WHEN {gone} THEN 1 WHEN {bury} THEN attempt ELSE min(attempt+1,{max}) END, \
             until_at=CASE WHEN {bury} THEN until_at ELSE excluded.until_at END, \
             taken_over=CASE WHEN {gone} OR {bury} THEN NULL WHEN state=1 THEN fencing ELSE taken_over END, \
             fingerprint=CASE WHEN {bury} THEN fingerprint ELSE excluded.fingerprint END, \
             expires_at=CASE WHEN {bury} THEN {buried_until} ELSE excluded.expires_at END, \
             first_seen=CASE WHEN {gone} THEN excluded.first_seen ELSE first_seen END, \
             updated_at=excluded.updated_at, value=NULL, \
             error=CASE WHEN {bury} THEN CASE WHEN state=0 THEN error WHEN ?7 THEN {parked} ELSE {crashed} END END, \
             display=CASE WHEN {bury} THEN display ELSE excluded.display END \
             WHERE ({sound}) AND {free}",
            max = u32::MAX,
        )
    }

    fn look(&self) -> String {
        format!("SELECT {}, {} FROM {} WHERE id=?1", columns(), self.now(2), self.table)
    }

    /// Returns a write by the owner of a live lease, or of an expired lease without a takeover. ?3 the number of the
    /// grant, or NULL
    fn update(&self, set: &str, now: &str) -> String {
        self.write(&format!("{set}, updated_at={now}"), now)
    }

    fn write(&self, set: &str, now: &str) -> String {
        let (table, sound) = (&self.table, sound());
        format!(
            "UPDATE {table} SET {set} \
             WHERE id=?1 AND owner=?2 AND fencing=coalesce(?3,fencing) AND state=1 AND expires_at>{now} AND {sound}"
        )
    }

    /// Returns the renewal. ?4 lease. The time between the end of the lease and the expiry of the record stays the
    /// same.
    fn renew(&self) -> String {
        let now = self.now(5);
        let later = format!("max(until_at,{})", plus(&now, "?4"));
        let expires = plus(&later, "max(expires_at-until_at,0)");
        // The end is kept where the clock goes back, and so is the last write: no lease is longer than it may be.
        let set = format!("until_at={later}, expires_at={expires}, updated_at=max(updated_at,{now})");
        self.write(&set, &now)
    }

    /// Returns the completion. ?4 value, ?5 retention
    fn complete(&self) -> String {
        let now = self.now(6);
        let expires = plus(&now, "?5");
        self.update(&format!("state=2, value=?4, expires_at={expires}, taken_over=NULL, display=NULL"), &now)
    }

    /// Returns the statement that adds the value to a record that was completed without it. ?4 value
    fn store_value(&self) -> String {
        let (table, sound) = (&self.table, sound());
        format!(
            "UPDATE {table} SET value=?4 \
             WHERE id=?1 AND owner=?2 AND fencing=coalesce(?3,fencing) AND state=2 AND value IS NULL AND {sound}"
        )
    }

    /// Returns the deletion. ?4 error. An expired tombstone keeps the fencing number until the purge.
    fn delete(&self) -> String {
        let now = self.now(5);
        let set = format!("state=0, {NOBODY}, until_at={now}, expires_at={now}, error=?4, display=NULL");
        self.update(&set, &now)
    }

    /// Returns the release. ?4 delay, ?5 memory, ?6 error, ?7 attempts to subtract. A record without remaining data is
    /// deleted.
    fn vacate(&self) -> String {
        let now = self.now(8);
        let due = plus(&now, "?4");
        let forgotten = "?7>0 AND attempt<=1 AND taken_over IS NULL AND ?4=0";
        let expires = format!("CASE WHEN {forgotten} THEN {now} ELSE {} END", plus(&due, "?5"));
        let set = format!(
            "state=0, owner=NULL, taken_over=CASE WHEN ?7>0 THEN taken_over END, attempt=max(attempt-?7,0), \
             until_at={due}, expires_at={expires}, error=?6, display=NULL"
        );
        self.update(&set, &now)
    }

    /// Returns the write of a failed or dead record. ?4 state, ?5 memory, ?6 error
    fn end(&self) -> String {
        let now = self.now(7);
        let expires = plus(&now, "?5");
        self.update(&format!("state=?4, {NOBODY}, expires_at={expires}, error=?6"), &now)
    }

    /// Returns the removal by an operator. ?2 fencing number, ?3 force, ?4 memory
    fn forget(&self) -> String {
        let (table, now, sound) = (&self.table, self.now(5), sound());
        let expires = plus(&now, "?4");
        format!(
            "UPDATE {table} SET state=0, {NOBODY}, attempt=0, fingerprint=NULL, until_at={now}, expires_at={expires}, \
             value=NULL, error='made claimable by an operator', display=NULL, first_seen={now}, updated_at={now} \
             WHERE id=?1 AND fencing=?2 AND (state>=2 OR state=1 AND ?3) AND expires_at>{now} AND {sound}"
        )
    }

    fn search_sql(&self) -> SearchSql {
        let dialect = SearchDialect {
            mark: '?',
            now: &|place| self.now(place),
            sound: format!("({})", sound()),
            name: "CAST(name AS BLOB)",
            last: "max(id)",
            greater: "max",
            number: ("", ""),
        };
        SearchSql::new(&self.table, &dialect)
    }

    /// Returns one page of the purge, ordered by id: the last id that was examined, the number examined, and the
    /// number of expired records. ?1 after this id, ?2 maximum
    fn scan(&self) -> String {
        let (table, old) = (&self.table, old(&self.now(3)));
        format!(
            "SELECT max(id), count(*), coalesce(sum(old),0) \
             FROM (SELECT id, {old} AS old FROM {table} WHERE id>?1 ORDER BY id LIMIT ?2)"
        )
    }

    /// Deletes expired records. ?1 after this id, ?2 up to this id, ?3 maximum
    fn purge(&self) -> String {
        let (table, old) = (&self.table, old(&self.now(4)));
        format!("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE id>?1 AND id<=?2 AND {old} LIMIT ?3)")
    }

    /// Returns the records of `count` keys and the time; a row without id contains the time if no record exists. The
    /// time is the first parameter.
    ///
    /// Parameters have no numbers here and in [`put_all`](Self::put_all): SQLite searches all parameters for a
    /// numbered one, which took longer than the write.
    fn look_all(&self, count: usize) -> String {
        let now = if self.bound_clock { "?" } else { NOW };
        let places = vec!["?"; count].join(",");
        format!("SELECT {}, n FROM (SELECT {now} AS n) LEFT JOIN {} ON id IN ({places})", columns(), self.table)
    }

    /// Writes `count` whole records.
    fn put_all(&self, count: usize) -> String {
        let row = format!("({})", vec!["?"; COLUMNS.len()].join(","));
        let rows = vec![row; count];
        let set: Vec<_> = COLUMNS[1..].iter().map(|column| format!("{column}=excluded.{column}")).collect();
        format!(
            "INSERT INTO {} ({}) VALUES {} ON CONFLICT(id) DO UPDATE SET {}",
            self.table,
            columns(),
            rows.join(","),
            set.join(",")
        )
    }
}

fn columns() -> String {
    COLUMNS.join(",")
}

/// Returns the sum of a time and a duration, neither negative. The sum saturates where SQLite would convert it to a
/// float.
fn plus(time: &str, span: &str) -> String {
    format!("(min({time},{max}-{span})+{span})", max = i64::MAX)
}

/// Returns the condition of the purge: the record has expired [`TICKS`] ago, and the clock has passed its number.
fn old(now: &str) -> String {
    let sound = sound();
    format!("expires_at<={now}-{TICKS} AND fencing<{now} AND {sound}")
}

/// Returns the condition of a claim: the record has expired, the key is vacant and due, or the lease has ended.
fn claimable(now: &str) -> String {
    format!("(expires_at<={now} OR state=0 AND until_at<={now} OR state=1 AND owner<>?2 AND until_at<={now})")
}

/// Returns the condition of records that [`row::record`](crate::row::record) can read, except for texts that are not
/// UTF-8. Only such records are written or removed, in any state.
fn sound() -> String {
    format!(
        "v={VERSION} AND state BETWEEN 0 AND 4 AND fencing>=0 AND fencing<{FENCING_END} \
         AND attempt BETWEEN 0 AND {} AND until_at>=0 AND expires_at>=0 AND first_seen>=0 AND updated_at>=0 \
         AND coalesce(taken_over,0)>=0 AND coalesce(length(fingerprint),17)=17 \
         AND (state<>1 OR until_at<=updated_at+{}) \
         AND CASE WHEN state IN (1,2) THEN coalesce(length(owner),0)=16 ELSE owner IS NULL AND error IS NOT NULL END",
        u32::MAX,
        Record::LONGEST_LEASE.as_micros(),
    )
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

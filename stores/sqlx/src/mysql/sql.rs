//! The statements of a store, with the name of the table and the clock.
//!
//! The statements mirror [`protocol`](idempotent_core::protocol) only where one round trip requires it: in the grant
//! of an absent key, and in the operations of its owner. The protocol decides all other cases on a row that was read.
//! Such a decision is written only if the row has not changed. `tests/suite/mysql` compares both with the protocol.
//!
//! The clock is read when a statement begins, and no lock orders these reads. Only the purge removes rows, a
//! [minute](GRACE) after their expiry. Fencing numbers therefore rise even if another claim, deletion and claim
//! overtake a statement that has begun.
//!
//! Assignments execute in order, and each sees the results of the earlier ones.
use crate::order::{self, OrderSql};
use crate::row::{COLUMNS, VERSION};
use crate::search::{SearchDialect, SearchSql};
use crate::server::{Statement, Statements, completed, ended, guard, plus, renewed, sound, vacated, value_stored};
use crate::table::Table;

/// The same in all of a statement, whatever the session's time zone.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
/// The time for which an expired record is kept, in µs. No statement of this crate takes longer.
const GRACE: i64 = 60_000_000;

/// The shared lock of a read that does not wait. MySQL and MariaDB have different forms, and each skips the comment of the other.
const SHARED: &str = "/*!80000 FOR SHARE NOWAIT */ /*M!100000 LOCK IN SHARE MODE NOWAIT */";

/// The settings of one statement on MariaDB: it does not wait for a lock. It also reads and writes a record that was committed after
/// the snapshot of the caller's transaction, which is error 1020 by default since 11.6.2.
const OWN_SETTINGS: &str = "SET STATEMENT innodb_lock_wait_timeout=0 /*M!110602 ,innodb_snapshot_isolation=OFF */ FOR ";

#[derive(Clone, Debug)]
pub(super) struct StatementBuilder {
    /// Quoted.
    pub(super) table: String,
    bound_clock: bool,
    /// A statement can tell the row that it inserted.
    returning: bool,
    /// True if the pool belongs to the application: each statement then declares that it does not wait.
    no_wait: bool,
    /// The value of a record that a claim writes.
    claimed: &'static str,
    /// True for statements on connections that wait for locks.
    waits: bool,
}

impl StatementBuilder {
    /// Creates a builder. `own`: the store sets up the connections of the pool.
    pub(super) fn new(table: String, bound_clock: bool, returning: bool, own: bool) -> Self {
        Self { table, bound_clock, returning, no_wait: returning && !own, claimed: "NULL", waits: false }
    }

    /// Returns a builder for statements on connections that wait for locks, as handlers use them. Their claims are marked.
    pub(super) fn in_a_transaction(&self) -> Self {
        Self { no_wait: self.returning, claimed: "x'00'", waits: true, ..self.clone() }
    }

    pub(super) fn returning(&self) -> bool {
        self.returning
    }

    pub(super) fn texts(&self) -> Statements {
        let search = self.search_sql();
        let update = |clock: usize, set: &dyn Fn(&str) -> String| Statement::marks(&self.update(clock, set));
        Statements {
            claim: self.claim_all(1),
            look: self.look_all(1),
            put: Statement::marks(&self.put()),
            renew: update(5, &|now| renewed(now, "$4")),
            complete: update(6, &|now| completed(now, "$4", "$5")),
            store_value: Statement::marks(&self.writing(&value_stored(&self.table))),
            delete: update(4, &|now| {
                format!(
                    "state=0, owner=NULL, taken_over=NULL, until_at={now}, expires_at={now}, error='', display=NULL, \
                     updated_at={now}"
                )
            }),
            vacate: update(8, &vacated),
            end: update(7, &ended),
            examine: Statement::marks(&search.examine),
            read: Statement::marks(&search.read),
        }
    }

    pub(super) fn now(&self, place: usize) -> String {
        if self.bound_clock { format!("CAST(${place} AS SIGNED)") } else { NOW.into() }
    }

    /// Returns the statements for the order tables of streams.
    pub(super) fn order_sql(&self, table: &Table) -> OrderSql {
        let now = |place| self.now(place);
        OrderSql::new(table, &order::OrderDialect { mark: '$', now: &now, plus: &plus, add: ("INSERT IGNORE", "") })
    }

    /// Prefixes a statement with `SET STATEMENT … FOR`, if required.
    pub(super) fn writing(&self, statement: &str) -> String {
        let own = if self.no_wait { OWN_SETTINGS } else { "" };
        format!("{own}{statement}")
    }

    /// Grants those of `count` keys that are absent; each has eight values, as the claim of one key. The clock is last.
    ///
    /// MySQL cannot wait for less than a second. There, a locking read fails at once if another transaction holds a key, also
    /// one whose record is not committed. In a transaction, such reads lock gaps, so [`Dialect::claim`](crate::server::Dialect)
    /// reads before it inserts.
    pub(super) fn claim_all(&self, count: usize) -> Statement {
        let (table, columns, now) = (&self.table, columns(), self.now(count * 8 + 1));
        let row = |nth: usize| {
            let place = |value: usize| format!("${}", nth * 8 + value);
            let until = plus(&now, &place(3));
            let expires = plus(&until, &place(5));
            let values = format!(
                "{},{VERSION},{},1,{},{now},1,{until},NULL,{},{expires},{now},{now},{},NULL,{}",
                place(1),
                place(6),
                place(2),
                place(4),
                self.claimed,
                place(7)
            );
            if self.returning || self.waits {
                return format!("({values})");
            }
            format!("SELECT {values} FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE id={} {SHARED})", place(1))
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        let rows = match (self.returning, self.waits) {
            (true, _) => format!("VALUES {} RETURNING {columns},{now},1", rows.join(",")),
            (false, true) => format!("VALUES {}", rows.join(",")),
            (false, false) => rows.join(" UNION ALL "),
        };
        Statement::marks(&self.writing(&format!("INSERT IGNORE INTO {table} ({columns}) {rows}")))
    }

    /// Returns the read of several keys. The clock is the last parameter.
    pub(super) fn look_all(&self, count: usize) -> Statement {
        let (table, columns, now) = (&self.table, columns(), self.now(count + 1));
        Statement::marks(&format!("SELECT {columns},{now},0 FROM {table} WHERE id IN ({})", places(1, count)))
    }

    /// Writes a record if it has not changed since it was read. On MySQL, a locking read fails at once if another transaction
    /// holds the row, for which the update would wait.
    /// No assignment depends on another one, since their order is not defined in such an update.
    pub(super) fn put(&self) -> String {
        let set = |(at, name): (usize, &&str)| match *name {
            "value" => format!("value=coalesce(${},{})", at + 1, self.claimed),
            name => format!("{name}=${}", at + 1),
        };
        let set: Vec<_> = COLUMNS.iter().enumerate().skip(1).map(set).collect();
        let table = &self.table;
        let held =
            format!(" JOIN (SELECT id AS held FROM {table} WHERE id=$1 LIMIT 1 FOR UPDATE NOWAIT) AS h ON id=held");
        self.writing(&format!(
            "UPDATE {table}{held} SET {set} WHERE id=$1 AND v={VERSION} AND state=$17 AND owner<=>$18 AND fencing=$19 \
             AND attempt=$20 AND until_at=coalesce($21,until_at) AND expires_at=$22 AND updated_at=$23",
            held = if self.returning || self.waits { "" } else { &held },
            set = set.join(","),
        ))
    }

    /// Returns a write by the owner of a live lease, or of an expired lease without a takeover. $3 the number of the
    /// grant, or NULL
    fn update(&self, clock: usize, set: &dyn Fn(&str) -> String) -> String {
        let (table, now) = (&self.table, self.now(clock));
        let (set, guard) = (set(&now), guard(&now, "$1", "$2", "$3"));
        self.writing(&format!("UPDATE {table} AS r SET {set} WHERE {guard}"))
    }

    /// Returns the renewal of several keys. $1 lease, then the clock; then for each key the hash, the owner, the
    /// number.
    pub(super) fn renew_all(&self, count: usize) -> Statement {
        let now = self.now(2);
        self.update_all(&renewed(&now, "$1"), &now, 3, 3, count)
    }

    /// Returns the completion of several keys. $1 retention, then the clock; then for each key the hash, the owner,
    /// the number, the value.
    pub(super) fn complete_all(&self, count: usize) -> Statement {
        let now = self.now(2);
        let first = if self.bound_clock { 3 } else { 2 };
        let when = |nth: usize| format!("WHEN ${} THEN ${}", first + nth * 4, first + nth * 4 + 3);
        let value = format!("CASE r.id {} END", (0..count).map(when).collect::<Vec<_>>().join(" "));
        self.update_all(&completed(&now, &value, "$1"), &now, 4, 3, count)
    }

    fn update_all(&self, set: &str, now: &str, width: usize, clocked: usize, count: usize) -> Statement {
        let first = if self.bound_clock { clocked } else { clocked - 1 };
        let place = |nth: usize| first + nth * width;
        let one = |nth: usize| {
            let (id, owner, number) = (place(nth), place(nth) + 1, place(nth) + 2);
            format!("(r.id=${id} AND r.owner=${owner} AND r.fencing=coalesce(${number},r.fencing))")
        };
        let any: Vec<String> = (0..count).map(one).collect();
        let (table, sound) = (&self.table, sound());
        Statement::marks(&self.writing(&format!(
            "UPDATE {table} AS r SET {set} WHERE ({}) AND r.state=1 AND r.expires_at>{now} AND {sound}",
            any.join(" OR ")
        )))
    }

    fn search_sql(&self) -> SearchSql {
        let dialect = SearchDialect {
            mark: '$',
            now: &|place| self.now(place),
            sound: sound(),
            name: "name",
            last: "max(id)",
            greater: "greatest",
            number: ("CAST(", " AS SIGNED)"),
        };
        SearchSql::new(&self.table, &dialect)
    }

    /// Returns one page of the purge, ordered by id: each id, and whether its record has expired. $1 after this id, $2
    /// maximum
    pub(super) fn scan(&self) -> Statement {
        let (table, old) = (&self.table, self.old(3));
        Statement::marks(&format!("SELECT id, {old} FROM {table} WHERE id>$1 ORDER BY id LIMIT $2"))
    }

    /// Removes those of `count` records that still are past their time. The clock is last.
    pub(super) fn purge(&self, count: usize) -> Statement {
        let (table, old) = (&self.table, self.old(count + 1));
        Statement::marks(&self.writing(&format!("DELETE FROM {table} WHERE id IN ({}) AND {old}", places(1, count))))
    }

    fn old(&self, clock: usize) -> String {
        let (now, sound) = (self.now(clock), sound());
        format!("(expires_at<={now}-{GRACE} AND fencing<{now} AND {sound})")
    }
}

pub(super) fn columns() -> String {
    COLUMNS.join(",")
}

fn places(first: usize, count: usize) -> String {
    (first..first + count).map(|place| format!("${place}")).collect::<Vec<_>>().join(",")
}

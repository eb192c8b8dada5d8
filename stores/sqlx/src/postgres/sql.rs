//! The statements of a store, with the name of the table and the clock.
//!
//! The statements mirror [`protocol`](idempotent_core::protocol) only where one round trip requires it: in the grant
//! of an absent key, and in the operations of its owner. The protocol decides all other cases on a row that was read.
//! Such a decision is written only if the row has not changed ([`Statements::put`]). `tests/suite/postgres` compares
//! both with the protocol.
//!
//! A claim takes the advisory lock of its key without waiting, for three reasons. No call holds a connection while it
//! waits for the transaction of another program. A lock that is taken is no error, so it does not abort a transaction.
//! The clock is read **after** the lock, so that fencing numbers rise in the order of the grants, even across a
//! deletion. A clock that was read at the start of the statement could be overtaken by another claim and deletion.
use crate::order::{self, OrderSql};
use crate::row::{COLUMNS, VERSION};
use crate::search::{SearchDialect, SearchSql};
use crate::server::{Statement, Statements, completed, ended, guard, plus, renewed, sound, vacated, value_stored};
use crate::steps::{StepsDialect, StepsSql};
use crate::table::Table;

/// `now()` returns the same time throughout a transaction.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp())*1000000)::bigint";

/// The length of all keys. The planner estimates that the condition selects few rows, and searches each key by the
/// index. Without the condition, the planner reads a small table as a whole. The plan is kept with the statement until
/// the server's next ANALYZE, even if the table grows in the meantime.
const BY_KEY: &str = "length(i.key)=16";

/// The notification settings of the waiters of a table: a channel, and a space of advisory locks in which each waiter
/// announces itself (`listener.rs`).
#[derive(Clone, Debug)]
pub(super) struct NotificationSettings {
    pub(super) channel: String,
    pub(super) space: i32,
}

#[derive(Clone, Debug)]
pub(super) struct PostgresStatements {
    /// Returns whether a run or an open transaction holds the key. $2 the lock of the key
    pub(super) is_held: Statement,
    /// Deletes one page of expired records, ordered by id, without an index on the time, which each completion would
    /// have to update. Skips locked records. The commit does not wait for the disk: the next purge deletes records
    /// that reappear after a crash. $1 after this id, $2 page size, $3 maximum number of deletions: the last id that
    /// was examined, the number examined, the number deleted.
    pub(super) purge: Statement,
    /// Claims several keys in one round trip; the caller claims a key without a result alone. Locks are tried in the
    /// order of the ids, and the clock is read after all locks.
    ///
    /// Arrays: $1 ids, $2 owners, $3 leases, $4 fingerprints, $5 retentions, $6 names, $7 displays, $8 locks
    pub(super) claim_all: Statement,
    /// Arrays: $1 ids, $2 owners, $3 numbers, $4 leases. The ids that were written.
    pub(super) renew_all: Statement,
    /// Arrays: $1 ids, $2 owners, $3 numbers, $4 values, $5 retentions. The ids that were written.
    pub(super) complete_all: Statement,
}

pub(super) fn texts(maker: &StatementBuilder) -> (Statements, PostgresStatements) {
    let search = maker.search_sql();
    let texts = Statements {
        claim: Statement::numbered(maker.claim("NULL")),
        look: Statement::numbered(maker.look()),
        put: Statement::numbered(maker.put("NULL")),
        renew: Statement::numbered(maker.update(&renewed("t.n", "$4"), 5)),
        complete: Statement::numbered(maker.settle(&completed("t.n", "$4", "$5"), 6)),
        store_value: Statement::numbered(value_stored(&maker.table)),
        delete: Statement::numbered(maker.delete()),
        vacate: Statement::numbered(maker.settle(&vacated("t.n"), 8)),
        end: Statement::numbered(maker.settle(&ended("t.n"), 7)),
        examine: Statement::numbered(search.examine),
        read: Statement::numbered(search.read),
    };
    let more = PostgresStatements {
        is_held: Statement::numbered(maker.is_held()),
        purge: Statement::numbered(maker.purge()),
        claim_all: Statement::numbered(maker.claim_all()),
        renew_all: Statement::numbered(maker.renew_all()),
        complete_all: Statement::numbered(maker.complete_all()),
    };
    (texts, more)
}

/// Returns the statements for the steps of runs.
pub(super) fn steps_sql(table: &Table, bound_clock: bool) -> StepsSql {
    let now = |place| now(place, bound_clock);
    StepsSql::new(
        table,
        &StepsDialect {
            mark: '$',
            sound: sound(),
            now: &now,
            lock: "FOR SHARE OF r",
            try_lock: Some("pg_try_advisory_xact_lock($8)"),
        },
    )
}

/// Returns the statements for the order tables of streams.
pub(super) fn order_sql(table: &Table, bound_clock: bool) -> OrderSql {
    let now = |place| now(place, bound_clock);
    OrderSql::new(
        table,
        &order::OrderDialect { mark: '$', now: &now, plus: &plus, add: ("INSERT", " ON CONFLICT DO NOTHING") },
    )
}

fn now(place: usize, bound_clock: bool) -> String {
    if bound_clock { format!("${place}::bigint") } else { NOW.into() }
}

pub(super) struct StatementBuilder {
    /// Quoted.
    pub(super) table: String,
    /// The clause after RETURNING that notifies the waiters for the row `r`.
    pub(super) tell: String,
    bound_clock: bool,
}

impl StatementBuilder {
    /// Creates a builder. `table` is quoted.
    pub(super) fn new(table: String, notifications: &NotificationSettings, bound_clock: bool) -> Self {
        Self { table, tell: tell(notifications), bound_clock }
    }

    pub(super) fn now(&self, place: usize) -> String {
        now(place, self.bound_clock)
    }

    /// Returns one row: the grant of an absent key, or the existing record; then the time, and whether the row is the
    /// grant. Without a row, the lock of the key was taken, or another claim was faster.
    ///
    /// $3 lease, $4 fingerprint, $5 retention, $6 name, $7 display, $8 the lock of the key. `value` is that of the new record.
    pub(super) fn claim(&self, value: &str) -> String {
        let (table, columns, now) = (&self.table, columns(), self.now(9));
        let (until, expires) = (plus("n", "$3"), plus("u", "$5"));
        // CASE, since only CASE defines the order of evaluation.
        format!(
            "WITH cur AS MATERIALIZED (SELECT {columns} FROM {table} WHERE id=$1), \
             k AS MATERIALIZED (SELECT CASE WHEN NOT EXISTS (SELECT FROM cur) THEN \
             CASE WHEN pg_try_advisory_xact_lock($8) THEN {now} END END AS n), \
             ins AS (INSERT INTO {table} ({columns}) \
             SELECT $1,{VERSION},$6,1,$2,n,1,u,NULL,$4,{expires},n,n,{value},NULL,$7 \
             FROM (SELECT n,{until} AS u FROM k WHERE n IS NOT NULL) AS k ON CONFLICT (id) DO NOTHING RETURNING {columns}) \
             SELECT {columns},{now},1::bigint FROM ins UNION ALL SELECT {columns},{now},0::bigint FROM cur"
        )
    }

    fn look(&self) -> String {
        format!("SELECT {},{},0::bigint FROM {} WHERE id=$1", columns(), self.now(2), self.table)
    }

    /// Writes a whole record over a record that was read, if that record has not changed. Returns whether the lock of
    /// the key was free, and whether the record was written. The columns of the record are $1 to $16, in their order.
    ///
    /// The columns that were read: $17 state, $18 owner, $19 fencing number, $20 attempt, $21 until, $22 expires, $23
    /// updated; $24 the lock of the key
    /// `value` is that of a record without one.
    pub(super) fn put(&self, value: &str) -> String {
        let set = |(at, name): (usize, &&str)| match *name {
            "value" => format!("value=coalesce(${},{value})", at + 1),
            name => format!("{name}=${}", at + 1),
        };
        let set: Vec<_> = COLUMNS.iter().enumerate().skip(1).map(set).collect();
        format!(
            "WITH lk AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($24) AS ok), \
             up AS (UPDATE {table} AS r SET {set} FROM lk WHERE lk.ok AND r.id=$1 AND r.v={VERSION} AND r.state=$17 \
             AND r.owner IS NOT DISTINCT FROM $18 AND r.fencing=$19 AND r.attempt=$20 AND r.until_at=coalesce($21,r.until_at) \
             AND r.expires_at=$22 AND r.updated_at=$23 RETURNING CASE WHEN r.state<>1 OR r.expires_at<=r.updated_at THEN {tell} END) \
             SELECT (SELECT ok::int FROM lk)::bigint, (SELECT count(*) FROM up)",
            table = self.table,
            tell = self.tell,
            set = set.join(","),
        )
    }

    /// Returns whether a run or an open transaction holds the key. The lock is shared, since another caller that looks at the same
    /// moment holds nothing. $2 the lock of the key
    fn is_held(&self) -> String {
        format!(
            "SELECT CASE WHEN EXISTS (SELECT FROM {} WHERE id=$1 AND state=1 AND expires_at>updated_at) THEN 1::bigint \
             WHEN pg_try_advisory_xact_lock_shared($2) THEN 0 ELSE 1 END",
            self.table
        )
    }

    /// Returns a write by the owner of a live lease, or of an expired lease without a takeover. $3 the number of the
    /// grant, or NULL
    fn update(&self, set: &str, clock: usize) -> String {
        let (table, now, guard) = (&self.table, self.now(clock), guard("t.n", "$1", "$2", "$3"));
        format!("UPDATE {table} AS r SET {set} FROM (SELECT {now} AS n) AS t WHERE {guard}")
    }

    /// Returns a write that ends the run.
    fn settle(&self, set: &str, clock: usize) -> String {
        format!("{} RETURNING {}", self.update(set, clock), self.tell)
    }

    /// Removes the row if the clock has passed its number. Otherwise, the protocol leaves a tombstone.
    fn delete(&self) -> String {
        let (table, now, guard) = (&self.table, self.now(4), guard("t.n", "$1", "$2", "$3"));
        format!(
            "DELETE FROM {table} AS r USING (SELECT {now} AS n) AS t WHERE {guard} AND r.fencing<t.n RETURNING {}",
            self.tell
        )
    }

    fn search_sql(&self) -> SearchSql {
        let dialect = SearchDialect {
            mark: '$',
            now: &|place| self.now(place),
            sound: sound(),
            name: "name",
            // Before version 18, there is no `max(bytea)`.
            last: "(array_agg(id ORDER BY id DESC))[1]",
            greater: "greatest",
            number: ("(", ")::bigint"),
        };
        SearchSql::new(&self.table, &dialect)
    }

    /// Returns the text of [`PostgresStatements::purge`]. The deletion goes by the id of a locked record, because a
    /// position (`ctid`) is unique in one partition only, and would name live records of the others.
    ///
    /// The subquery with the lock is planned by itself, for one id, so the number of records that the planner expects
    /// decides nothing. [`BY_KEY`] explains the condition on the length.
    fn purge(&self) -> String {
        let (table, now, sound) = (&self.table, self.now(4), sound());
        let old = format!("expires_at<=t.n AND fencing<t.n AND {sound}");
        format!(
            "WITH t AS MATERIALIZED (SELECT {now} AS n), \
             step AS MATERIALIZED (SELECT id, {old} AS old FROM {table}, t WHERE id>$1 ORDER BY id LIMIT $2), \
             held AS MATERIALIZED (SELECT h.id FROM (SELECT id FROM step WHERE old LIMIT $3) AS s, t, LATERAL \
             (SELECT r.id FROM {table} AS r WHERE r.id=s.id AND {old} FOR UPDATE OF r SKIP LOCKED) AS h), \
             gone AS (DELETE FROM {table} AS r USING held AS h WHERE r.id=h.id AND length(h.id)=16 RETURNING 1) \
             SELECT (SELECT id FROM step ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM step), (SELECT count(*) FROM gone), \
             set_config('synchronous_commit','off',true)"
        )
    }

    /// Returns [`claim`](Self::claim) for several keys in one round trip; the caller claims a key without a result
    /// alone. Locks are tried in the order of the ids, and the clock is read after all locks.
    ///
    /// Arrays: $1 ids, $2 owners, $3 leases, $4 fingerprints, $5 retentions, $6 names, $7 displays, $8 locks
    ///
    /// [`BY_KEY`] explains the condition on the lengths.
    fn claim_all(&self) -> String {
        let (table, columns, now) = (&self.table, columns(), self.now(9));
        let (until, expires) = (plus("k.n", "lk.lease"), plus("u", "memory"));
        let found = COLUMNS.map(|column| format!("r.{column}")).join(",");
        format!(
            "WITH i AS MATERIALIZED (SELECT * FROM unnest($1::bytea[],$2::bytea[],$3::bigint[],$4::bytea[],$5::bigint[],\
             $6::bytea[],$7::bytea[],$8::bigint[]) AS i(key,own,lease,fp,memory,called,shown,lock) WHERE {BY_KEY} \
             ORDER BY key), \
             cur AS MATERIALIZED (SELECT {found} FROM i JOIN {table} AS r ON r.id=i.key), \
             lk AS MATERIALIZED (SELECT i.*, pg_try_advisory_xact_lock(i.lock) AS ok FROM i \
             WHERE i.key NOT IN (SELECT id FROM cur)), \
             k AS MATERIALIZED (SELECT CASE WHEN (SELECT count(*) FROM lk)>=0 THEN {now} END AS n), \
             ins AS (INSERT INTO {table} ({columns}) \
             SELECT key,{VERSION},called,1,own,n,1,u,NULL,fp,{expires},n,n,NULL,NULL,shown \
             FROM (SELECT lk.*, k.n, {until} AS u FROM lk, k WHERE lk.ok) AS k \
             ON CONFLICT (id) DO NOTHING RETURNING {columns}) \
             SELECT {columns},{now},1::bigint FROM ins UNION ALL SELECT {columns},{now},0::bigint FROM cur"
        )
    }

    /// Returns [`renew`](Self::renew) for several keys. Arrays: $1 ids, $2 owners, $3 numbers, $4 leases. The result
    /// has the ids that were written.
    fn renew_all(&self) -> String {
        self.update_all(&renewed("t.n", "i.span"), ("$4::bigint[]", "span"), 5)
    }

    /// Returns [`complete`](Self::complete) for several keys. Arrays: $1 ids, $2 owners, $3 numbers, $4 values, $5
    /// retentions. The result has the ids that were written.
    fn complete_all(&self) -> String {
        let arrays = ("$4::bytea[],$5::bigint[]", "result,span");
        format!("{},{}", self.update_all(&completed("t.n", "i.result", "i.span"), arrays, 6), self.tell)
    }

    fn update_all(&self, set: &str, (arrays, names): (&str, &str), clock: usize) -> String {
        let (table, now, guard) = (&self.table, self.now(clock), guard("t.n", "i.key", "i.own", "i.number"));
        format!(
            "UPDATE {table} AS r SET {set} FROM (SELECT {now} AS n) AS t, \
             unnest($1::bytea[],$2::bytea[],$3::bigint[],{arrays}) AS i(key,own,number,{names}) \
             WHERE {BY_KEY} AND {guard} RETURNING r.id"
        )
    }
}

/// Notifies the waiters for the row `r`. A waiter holds the lock of the key in this space. If the lock is free, there
/// is no waiter, and no notification is sent: NOTIFY serialises commits, with their waits for the disk, by a lock of
/// the server. The lock is held until the commit. A waiter therefore either receives the notification or sees the row.
fn tell(NotificationSettings { channel, space }: &NotificationSettings) -> String {
    let byte = |at: usize, bits: usize| format!("(get_byte(r.id,{at})<<{bits})");
    // The key's last four bytes, as `listener::number` has them.
    let number = [byte(12, 24), byte(13, 16), byte(14, 8), byte(15, 0)].join("|");
    format!(
        "CASE WHEN NOT pg_try_advisory_xact_lock({space},{number}) THEN pg_notify('{channel}',encode(r.id,'hex')) END"
    )
}

pub(super) fn columns() -> String {
    COLUMNS.join(",")
}

//! The statements of a store, and the parts of statements that all dialects share.
use idempotent_core::Record;

use super::statement::Statement;
use crate::order::OrderSql;
use crate::row::{FENCING_END, VERSION};
#[cfg(feature = "postgres")]
use crate::steps::StepsSql;

/// The statements for a table. `$1` is always the key's hash, and `$2` the owner. With a custom clock, the time is the last
/// parameter.
///
/// A row with a record has its columns, then the time, then 1 if this statement granted the claim and 0 if not.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    /// Grants a key that is absent. $3 lease, $4 fingerprint, $5 retention, $6 name, $7 display, $8 the key's lock
    pub(crate) claim: Statement,
    pub(crate) look: Statement,
    /// Writes a whole record over a record that was read, if that record has not changed. The columns of the record
    /// are $1 to $16, in their order. The columns that were read: $17 state, $18 owner, $19 fencing number, $20
    /// attempt, $21 until, $22 expires, $23 updated; $24 the lock of the key
    pub(crate) put: Statement,
    /// $3 the grant's number, or NULL; $4 lease
    pub(crate) renew: Statement,
    /// $3 the grant's number, or NULL; $4 value, $5 retention
    pub(crate) complete: Statement,
    /// Adds the value to a record that was completed without it. $3 the grant's number, or NULL; $4 value
    pub(crate) store_value: Statement,
    /// $3 the grant's number, or NULL
    pub(crate) delete: Statement,
    /// $3 the grant's number, or NULL; $4 delay, $5 retention, $6 error, $7 attempts taken off
    pub(crate) vacate: Statement,
    /// Failed or dead. $3 the grant's number, or NULL; $4 state, $5 retention, $6 error
    pub(crate) end: Statement,
    /// [`SearchSql::examine`](crate::search::SearchSql::examine)
    pub(crate) examine: Statement,
    /// [`SearchSql::read`](crate::search::SearchSql::read)
    pub(crate) read: Statement,
}

/// The statements within an open transaction. They differ from [`Statements`] in two ways: they never wait for a lock, and a
/// read sees committed data at every isolation level.
#[derive(Clone, Debug)]
pub(crate) struct TransactionStatements {
    /// Grants a key that is absent, as [`Statements::claim`]. The column of the value marks the record as one that was claimed in
    /// a transaction, until its completion.
    pub(crate) claim: Statement,
    pub(crate) look: Statement,
    /// Sets the same mark, unless the record has a value.
    pub(crate) put: Statement,
    /// Completes a lease, or a key that was claimed in this transaction. Then no takeover is possible. Answers as `put`. $3 the
    /// grant's number, or NULL, $4 value, $5 retention, $6 the key's lock, $7 1 if this was proved to be the transaction of the
    /// claim, or 0
    pub(crate) complete: Statement,
}

/// The statements about steps.
#[derive(Debug)]
pub(crate) struct StepStatements {
    pub(crate) note: Statement,
    /// The same within a transaction: the key is kept from others until its end. 8 the key's lock
    pub(crate) note_in: Statement,
    pub(crate) read: Statement,
    pub(crate) scan: Statement,
    pub(crate) purge: Statement,
}

/// The statements about the transactions of runs. Each is sent without parameters.
#[derive(Debug)]
pub(crate) struct RunTexts {
    /// Begins a transaction and marks it.
    pub(crate) begin: String,
    /// Fails if the transaction is not the marked one. Compares the session with its beginning. Can be repeated.
    pub(crate) stands: String,
    /// Commits. The statements before it have proved that the transaction is the marked one.
    pub(crate) commit: String,
    /// Rolls back the marked transaction, and fails if it is another one. Compares the session, too.
    pub(crate) roll_back: String,
    /// Rolls back any transaction, and releases the locks of the session.
    pub(crate) recover: String,
    /// Compares the session once more, after the transaction.
    pub(crate) is_same: String,
    /// Ends the connection at the server, with its locks, settings and open transaction.
    pub(crate) end_connection: String,
}

impl StepStatements {
    /// Creates statements with numbered parameters.
    #[cfg(feature = "postgres")]
    pub(crate) fn numbered(sql: StepsSql) -> Self {
        let StepsSql { note, note_in, read, scan, purge } = sql;
        let text = |sql: std::sync::Arc<str>| Statement::numbered(sql.to_string());
        Self { note: text(note), note_in: text(note_in), read: text(read), scan: text(scan), purge: text(purge) }
    }
}

/// The statements about the order tables of streams.
#[derive(Debug)]
pub(crate) struct OrderStatements {
    pub(crate) read: Statement,
    pub(crate) add: Statement,
    pub(crate) compare_and_swap: Statement,
    pub(crate) scan: Statement,
    pub(crate) purge: Statement,
    pub(crate) browse: Statement,
}

impl OrderStatements {
    /// Creates the statements. `writing` adds the prefix of a statement that writes.
    pub(crate) fn new(sql: &OrderSql, text: impl Fn(&str) -> Statement, writing: impl Fn(&str) -> String) -> Self {
        let written = |sql: &str| text(&writing(sql));
        Self {
            read: text(&sql.read),
            add: written(&sql.add),
            compare_and_swap: written(&sql.compare_and_swap),
            scan: text(&sql.scan),
            purge: written(&sql.purge),
            browse: text(&sql.browse),
        }
    }
}

// No assignment reads a column that an earlier assignment has written, because MySQL evaluates assignments in order.

/// Returns the assignments of a renewal. The retention after the lease keeps its length.
pub(crate) fn renewed(now: &str, lease: &str) -> String {
    let later = format!("greatest(until_at,{})", plus(now, lease));
    let expires = plus(&later, "greatest(expires_at-until_at,0)");
    // The end is kept where the clock goes back, and so is the last write: no lease is longer than it may be.
    format!("expires_at={expires}, until_at={later}, updated_at=greatest(updated_at,{now})")
}

pub(crate) fn completed(now: &str, value: &str, retention: &str) -> String {
    let expires = plus(now, retention);
    format!("state=2, value={value}, expires_at={expires}, taken_over=NULL, display=NULL, updated_at={now}")
}

/// Returns the assignments of a release for another run. A record without anything to remember expires at once.
pub(crate) fn vacated(now: &str) -> String {
    let due = plus(now, "$4");
    let forgotten = "$7>0 AND attempt<=1 AND taken_over IS NULL AND $4=0";
    let expires = format!("CASE WHEN {forgotten} THEN {now} ELSE {} END", plus(&due, "$5"));
    format!(
        "state=0, owner=NULL, expires_at={expires}, taken_over=CASE WHEN $7>0 THEN taken_over END, \
         attempt=greatest(attempt-$7,0), until_at={due}, error=$6, display=NULL, updated_at={now}"
    )
}

pub(crate) fn ended(now: &str) -> String {
    let expires = plus(now, "$5");
    format!("state=$4, owner=NULL, taken_over=NULL, expires_at={expires}, error=$6, updated_at={now}")
}

/// Returns the condition for the owner of a live lease, or of an expired lease that was not taken over.
pub(crate) fn guard(now: &str, id: &str, owner: &str, number: &str) -> String {
    let sound = sound();
    format!(
        "r.id={id} AND r.owner={owner} AND r.fencing=coalesce({number},r.fencing) AND r.state=1 AND r.expires_at>{now} \
         AND {sound}"
    )
}

/// Returns the statement that adds the value to a record of `table` that was completed without it.
pub(crate) fn value_stored(table: &str) -> String {
    format!(
        "UPDATE {table} SET value=$4 \
         WHERE id=$1 AND owner=$2 AND fencing=coalesce($3,fencing) AND state=2 AND value IS NULL AND {}",
        sound()
    )
}

/// Returns the saturating sum of a time and a duration, both not negative. A plain sum would overflow with an error.
pub(crate) fn plus(time: &str, span: &str) -> String {
    format!("(least({time},{max}-{span})+{span})", max = i64::MAX)
}

/// Returns the condition for a record that [`row::record`](crate::row::record) can read, except for texts that are not UTF-8.
/// Statements write and remove only such records.
pub(crate) fn sound() -> String {
    format!(
        "(v={VERSION} AND state BETWEEN 0 AND 4 AND fencing>=0 AND fencing<{FENCING_END} \
         AND attempt BETWEEN 0 AND {} AND until_at>=0 AND expires_at>=0 AND first_seen>=0 AND updated_at>=0 \
         AND coalesce(taken_over,0)>=0 AND coalesce(length(fingerprint),17)=17 \
         AND (state<>1 OR until_at-updated_at<={}) \
         AND CASE WHEN state IN (1,2) THEN coalesce(length(owner),0)=16 ELSE owner IS NULL AND error IS NOT NULL END)",
        u32::MAX,
        Record::LONGEST_LEASE.as_micros(),
    )
}

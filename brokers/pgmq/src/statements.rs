//! The SQL statements of a queue.
//!
//! A message is read, created and sent by the functions of PGMQ. Its functions for settling know the id of a message only. A
//! consumer whose visibility timeout is over would delete a message that another consumer holds. The statements of this module
//! also compare the number of reads and the number of settlements, which together identify one hold.
use std::sync::Arc;

use crate::queue_name::QueueName;

/// The time at which PGMQ stored the message in microseconds since 1970, as a column expression. A writer of the table may store any
/// time, so the expression never fails.
macro_rules! sent {
    () => {
        "CASE WHEN isfinite(enqueued_at) THEN least(extract(epoch FROM enqueued_at) * 1000000, 9000000000000000000)::bigint \
         ELSE 0 END"
    };
}

/// The number of settlements that returned the message to the queue, as a column expression. A producer does not know the time at
/// which PGMQ will store its message, so marks with this time are those of a settlement.
const SETTLED: &str = concat!(
    "CASE WHEN headers #>> '{idempotent,sent}' = (",
    sent!(),
    ")::text THEN coalesce(substring(headers #>> '{idempotent,settled}' FROM '^[0-9]{1,9}$')::int, 0) ELSE 0 END"
);
/// The held messages of the arguments: ids, numbers of reads, numbers of settlements.
const HELD: &str = "unnest($1::bigint[], $2::int[], $3::int[]) AS held(id, reads, ends)";
const IS_HELD: &str = "msg_id = held.id AND read_ct = held.reads AND";

/// The statements of one source.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Reads messages: name, visibility timeout in seconds, number.
    pub(crate) read: Arc<str>,
    /// Deletes or archives held messages, and returns the ids of those that another consumer holds.
    pub(crate) ack: Arc<str>,
    /// Extends held messages by a time in microseconds.
    pub(crate) keep: Arc<str>,
    /// Returns a message to the queue: id, reads, delay in microseconds, marks.
    pub(crate) release: Arc<str>,
    /// Moves a message to the dead letters: id, reads, settlements, name of the queue of dead letters, marks.
    pub(crate) dead_letter: Arc<str>,
    /// Looks for a dead letter by the id of its death.
    pub(crate) died: Arc<str>,
}

impl Statements {
    pub(crate) fn new(queue: &QueueName, dead: &QueueName, archives: bool) -> Self {
        let (table, dead) = (queue.quoted(), dead.quoted());
        Self {
            read: format!("SELECT {} FROM pgmq.read($1, $2, $3) ORDER BY msg_id", columns()).into(),
            ack: ack(queue, archives).into(),
            // A locked message is being settled, or a handler has deleted it in an open transaction. No other consumer reads it.
            keep: format!(
                "WITH kept AS (SELECT msg_id AS id FROM {table} AS message, {HELD} \
                 WHERE {IS_HELD} {SETTLED} = held.ends FOR UPDATE OF message SKIP LOCKED) \
                 UPDATE {table} SET vt = clock_timestamp() + $4::bigint * interval '1 microsecond' \
                 FROM kept WHERE msg_id = kept.id RETURNING msg_id"
            )
            .into(),
            release: format!(
                "UPDATE {table} SET vt = clock_timestamp() + $3::bigint * interval '1 microsecond', headers = {} \
                 WHERE msg_id = $1 AND read_ct = $2 RETURNING msg_id",
                marked("$4")
            )
            .into(),
            dead_letter: format!(
                "WITH taken AS (DELETE FROM {table} WHERE msg_id = $1 AND read_ct = $2 AND {SETTLED} = $3 \
                 RETURNING message, headers) \
                 SELECT pgmq.send($4, message, {}, clock_timestamp()) FROM taken",
                marked("$5")
            )
            .into(),
            died: format!("SELECT EXISTS (SELECT FROM {dead} WHERE headers #>> '{{idempotent,letter,death}}' = $1)")
                .into(),
        }
    }
}

fn ack(queue: &QueueName, archives: bool) -> String {
    let table = queue.quoted();
    let archived = match archives {
        true => format!(
            ", kept AS (INSERT INTO {} (msg_id, read_ct, enqueued_at, vt, message, headers) \
             SELECT msg_id, read_ct, enqueued_at, vt, message, headers FROM gone)",
            queue.quoted_archive()
        ),
        false => String::new(),
    };
    format!(
        "WITH held AS (SELECT * FROM {HELD}), gone AS (DELETE FROM {table} USING held \
         WHERE {IS_HELD} {SETTLED} = held.ends RETURNING msg_id, read_ct, enqueued_at, vt, message, headers){archived} \
         SELECT id FROM held WHERE NOT EXISTS (SELECT FROM gone WHERE msg_id = id) \
         AND EXISTS (SELECT FROM {table} WHERE msg_id = id)"
    )
}

/// Returns the columns of a message.
fn columns() -> String {
    let sent = sent!();
    format!(
        "msg_id, read_ct, {SETTLED} AS settled, {sent} AS enqueued, message::text AS message, headers::text AS headers"
    )
}

/// Returns the headers with changed marks, as an expression.
fn marked(marks: &str) -> String {
    let (all, own) = (headers(), object("headers -> 'idempotent'"));
    format!("{all} || jsonb_build_object('idempotent', {own} || {marks}::jsonb)")
}

/// Returns an expression for the headers. Headers that are no object become a member with an empty name.
fn headers() -> String {
    format!(
        "CASE WHEN jsonb_typeof(headers) NOT IN ('object', 'null') THEN jsonb_build_object('', headers) ELSE {} END",
        object("headers")
    )
}

/// Returns an expression for an object, which is empty if the value is something different.
fn object(value: &str) -> String {
    format!("CASE jsonb_typeof({value}) WHEN 'object' THEN {value} ELSE '{{}}'::jsonb END")
}

/// Returns the statements that delete a held message in a transaction: by its id, and by its deliveries without the
/// settled ones. They fail outside of a transaction: a handler may have ended its own, and the deletion would remain.
pub(crate) fn delete_in(queue: &QueueName, id: i64, delivered: i64) -> String {
    format!("{IN_TRANSACTION} {} RETURNING msg_id", deletion(queue, id, delivered))
}

/// Returns the statements that archive a held message in a transaction, with the arguments of [`delete_in`].
pub(crate) fn archive_in(queue: &QueueName, id: i64, delivered: i64) -> String {
    format!(
        "{IN_TRANSACTION} WITH gone AS ({} RETURNING msg_id, read_ct, enqueued_at, vt, message, headers) \
         INSERT INTO {} (msg_id, read_ct, enqueued_at, vt, message, headers) \
         SELECT msg_id, read_ct, enqueued_at, vt, message, headers FROM gone RETURNING msg_id",
        deletion(queue, id, delivered),
        queue.quoted_archive()
    )
}

/// The server refuses a savepoint outside of a transaction.
const IN_TRANSACTION: &str = "SAVEPOINT idempotent_pgmq; RELEASE SAVEPOINT idempotent_pgmq;";

fn deletion(queue: &QueueName, id: i64, delivered: i64) -> String {
    format!("DELETE FROM {} WHERE msg_id = {id} AND read_ct - {SETTLED} = {delivered}", queue.quoted())
}

/// The statement that sends a message: name, message, headers, time of delivery in microseconds since 1970 or null.
pub(crate) const SEND: &str = "SELECT pgmq.send($1, $2::jsonb, $3::jsonb, coalesce(timestamptz 'epoch' + \
                               $4::bigint * interval '1 microsecond', clock_timestamp())) AS msg_id";

/// The statements of the dead letters.
#[derive(Debug)]
pub(crate) struct LetterStatements {
    pub(crate) count: Arc<str>,
    /// Reads a letter after an id, up to an id.
    pub(crate) next: Arc<str>,
    /// Moves a letter to a queue: id, name.
    pub(crate) put_back: Arc<str>,
    pub(crate) discard: Arc<str>,
}

impl LetterStatements {
    pub(crate) fn new(dead: &QueueName) -> Self {
        let table = dead.quoted();
        let own = object("headers -> 'idempotent'");
        let back = format!(
            "{} || jsonb_build_object('idempotent', {own} - ARRAY['attempt', 'letter', 'settled', 'sent'])",
            headers()
        );
        Self {
            count: format!("SELECT count(*) AS letters, coalesce(max(msg_id), 0) AS newest FROM {table}").into(),
            next: format!(
                "SELECT {} FROM {table} WHERE msg_id > $1 AND msg_id <= $2 ORDER BY msg_id LIMIT 1",
                columns()
            )
            .into(),
            put_back: format!(
                "WITH taken AS (DELETE FROM {table} WHERE msg_id = $1 RETURNING message, headers) \
                 SELECT pgmq.send($2, message, {back}, clock_timestamp()) FROM taken"
            )
            .into(),
            discard: format!("DELETE FROM {table} WHERE msg_id = $1 RETURNING msg_id").into(),
        }
    }
}

//! Statements and rows of the table with the steps of runs. [`StepsDialect`] has the differences between dialects.
use std::sync::Arc;

use idempotent_core::{StepRecord, StepState, StoreError, StoreErrorKind};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::table::Table;

/// The number of steps that a purge statement scans. One transaction removes at most these and the steps of one key more.
pub(crate) const STEP: i64 = 500;
/// The minimum age of a purged step, in µs: the purge may not see younger records yet.
pub(crate) const YOUNG: i64 = 60_000_000;

/// The differences between dialects.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) struct StepsDialect<'a> {
    /// The character before a parameter's number.
    pub(crate) mark: char,
    /// The condition for a valid record.
    pub(crate) sound: String,
    /// The clock, or the place it is bound at.
    pub(crate) now: &'a dyn Fn(usize) -> String,
    /// The lock clause that prevents a takeover until the step is recorded.
    pub(crate) lock: &'a str,
    /// The expression that tries to take the key's advisory lock, if claims use one. Its number is parameter 8.
    pub(crate) try_lock: Option<&'a str>,
}

/// The texts. 1 is the key's hash, 2 the owner, 3 the grant's number.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Clone, Debug)]
pub(crate) struct StepsSql {
    /// 4 name, 5 place, 6 state, 7 value. One row where it was written.
    pub(crate) note: Arc<str>,
    /// The same within a transaction. 8 the key's lock
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "others have no lock of the key's"))]
    pub(crate) note_in: Arc<str>,
    /// name, place, state, value: of no step where there is none. No row where the key is not held so.
    pub(crate) read: Arc<str>,
    /// $1 after this id, $2 maximum number of steps, $3 maximum number of keys: the last id that was examined, if more
    /// may follow; the number of keys with orphaned steps, and the last of these keys
    pub(crate) scan: Arc<str>,
    /// 1 after this id, 2 up to this one
    pub(crate) purge: Arc<str>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl StepsSql {
    pub(crate) fn new(table: &Table, dialect: &StepsDialect<'_>) -> Self {
        let (steps, records) = (table.quoted_steps(), table.quoted());
        let StepsDialect { mark: p, sound, now, lock, try_lock } = dialect;
        let held = |clock| {
            format!(
                "{records} AS r, (SELECT {} AS n) AS t WHERE r.id={p}1 AND r.owner={p}2 \
                 AND r.fencing=coalesce({p}3,r.fencing) AND r.state=1 AND r.expires_at>t.n AND {sound}",
                now(clock)
            )
        };
        let note = |clock, before: &str, also: &str| {
            format!(
                "{before}INSERT INTO {steps} AS s (id,name,begun,place,state,value) \
             SELECT {p}1,{p}4,r.first_seen,{p}5,{p}6,{p}7 FROM {}{also} {lock} ON CONFLICT (id,name) DO UPDATE SET begun=excluded.begun, place=excluded.place, \
             state=excluded.state, value=excluded.value WHERE s.begun<>excluded.begun OR s.state<excluded.state",
                held(clock)
            )
        };
        let note_in = match try_lock {
            Some(tried) => {
                let before = format!("WITH lk AS MATERIALIZED (SELECT {tried} AS ok) ");
                note(9, &before, " AND (SELECT ok FROM lk)")
            }
            None => note(9, "", ""),
        };
        let note = note(8, "", "");
        let read = format!(
            "SELECT s.name, s.place, s.state, s.value FROM (SELECT r.id AS id, r.first_seen AS begun FROM {}) AS h \
             LEFT JOIN {steps} AS s ON s.id=h.id AND s.begun=h.begun ORDER BY s.place",
            held(4)
        );
        // Not by NOT EXISTS, which PostgreSQL may make a join of that reads all records.
        let orphan = |clock| {
            let now = now(clock);
            format!(
                "s.begun<{now}-{YOUNG} AND (SELECT 1 FROM {records} AS r \
                 WHERE r.id=s.id AND r.first_seen=s.begun) IS NULL"
            )
        };
        // A later purge examines further steps of the last key.
        let scan = format!(
            "WITH step AS (SELECT id, begun FROM {steps} WHERE id>{p}1 ORDER BY id LIMIT {p}2), \
             gone AS (SELECT DISTINCT s.id FROM step AS s WHERE {} ORDER BY s.id LIMIT {p}3) \
             SELECT (SELECT id FROM step ORDER BY id LIMIT 1 OFFSET {p}2-1), (SELECT count(*) FROM gone), \
             (SELECT id FROM gone ORDER BY id DESC LIMIT 1)",
            orphan(4)
        );
        let purge = format!("DELETE FROM {steps} AS s WHERE s.id>{p}1 AND s.id<={p}2 AND {}", orphan(3));
        Self { note: note.into(), note_in: note_in.into(), read: read.into(), scan: scan.into(), purge: purge.into() }
    }
}

/// Returns the code of a state in the table. A later state has a higher code.
pub(crate) fn code(state: StepState) -> i64 {
    match state {
        StepState::Intended => 0,
        StepState::Done => 1,
        StepState::Undoing => 2,
    }
}

/// A step of a row; none where the join found none.
pub(crate) type Row = (Option<Vec<u8>>, Option<i64>, Option<i64>, Option<Vec<u8>>);

/// Decodes a step strictly, like a record.
pub(crate) fn step((name, place, state, value): Row) -> Result<Option<StepRecord>, StoreError> {
    let Some(name) = name else { return Ok(None) };
    let name = String::from_utf8(name).map_err(|_| corrupt("name", "is not UTF-8"))?;
    let place = place.and_then(|place| u32::try_from(place).ok()).ok_or_else(|| corrupt("place", "is out of range"))?;
    let state = match state {
        Some(0) => StepState::Intended,
        Some(1) => StepState::Done,
        Some(2) => StepState::Undoing,
        _ => return Err(corrupt("state", "is none of 0 to 2")),
    };
    Ok(Some(StepRecord { name: name.into(), place, state, value: value.map(Arc::from) }))
}

fn corrupt(field: &str, what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because(format!("field `{field}` of a step {what}"))
}

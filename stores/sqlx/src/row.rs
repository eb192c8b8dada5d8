//! Rows of the record table. Reading is strict: an invalid value is an error that names the field.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    FencingToken, Fingerprint, Key, OwnerToken, Record, State, StateKind, StoreError, StoreErrorKind, Timestamp,
};

/// The columns of a record, in the order in which every statement selects and inserts them.
pub(crate) const COLUMNS: [&str; 16] = [
    "id",
    "v",
    "name",
    "state",
    "owner",
    "fencing",
    "attempt",
    "until_at",
    "taken_over",
    "fingerprint",
    "expires_at",
    "first_seen",
    "updated_at",
    "value",
    "error",
    "display",
];
/// Version of the meaning of a row; a row of a higher one is left alone.
pub(crate) const VERSION: i64 = 1;
/// The upper bound of fencing numbers, so that clients can represent them as doubles.
pub(crate) const FENCING_END: i64 = 1 << 53;

/// A column, by its place in [`COLUMNS`].
#[derive(Clone, Copy)]
pub(crate) enum Column {
    Id,
    V,
    Name,
    State,
    Owner,
    Fencing,
    Attempt,
    Until,
    TakenOver,
    Fingerprint,
    Expires,
    FirstSeen,
    Updated,
    Value,
    Error,
    Display,
}

/// Access to the cells of a dialect's row by position.
pub(crate) trait Cells: Send + Sync {
    /// Returns an integer, or `None` for null.
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error>;
    /// Returns the bytes of a blob or text, or `None` for null.
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error>;
}

fn int(row: &impl Cells, column: Column) -> Result<Option<i64>, StoreError> {
    row.int(column as usize).map_err(|_| corrupt(column, "is not a whole number"))
}

fn bytes(row: &impl Cells, column: Column) -> Result<Option<&[u8]>, StoreError> {
    row.bytes(column as usize).map_err(|_| corrupt(column, "is not bytes"))
}

/// Returns the error for an invalid field.
pub(crate) fn corrupt(column: Column, what: &str) -> StoreError {
    let field = COLUMNS[column as usize];
    StoreError::new(StoreErrorKind::Corrupt).because(format!("field `{field}` {what}"))
}

/// Returns the code of a state in the table.
pub(crate) fn code(state: StateKind) -> i64 {
    match state {
        // No record has it; a code that no row carries.
        StateKind::Absent => -1,
        StateKind::Vacant => 0,
        StateKind::Consuming => 1,
        StateKind::Consumed => 2,
        StateKind::Failed => 3,
        StateKind::Dead => 4,
    }
}

pub(crate) fn record(row: &impl Cells) -> Result<Record, StoreError> {
    let version = number(row, Column::V)?;
    if version > VERSION as u64 {
        return Err(StoreError::new(StoreErrorKind::UnknownVersion)
            .because(format!("found version {version} in field `v`, supported is {VERSION}")));
    }
    let fencing = number(row, Column::Fencing)?;
    if fencing >= FENCING_END as u64 {
        return Err(corrupt(Column::Fencing, "is 2^53 or more"));
    }
    let attempt = u32::try_from(number(row, Column::Attempt)?).map_err(|_| corrupt(Column::Attempt, "is too high"))?;
    // Every state has a number here, also those that do not use it.
    let until = Timestamp(number(row, Column::Until)?);
    let taken_over =
        int(row, Column::TakenOver)?.map(|n| positive(Column::TakenOver, n)).transpose()?.map(FencingToken);
    let state = match int(row, Column::State)? {
        Some(0) => State::Vacant { not_before: until, error: error(row)?, taken_over },
        Some(1) => State::Consuming { owner: owner(row)?, until, taken_over },
        Some(2) => State::Consumed { owner: owner(row)?, value: bytes(row, Column::Value)?.map(Arc::from) },
        Some(3) => State::Failed { error: error(row)? },
        Some(4) => State::Dead { error: error(row)? },
        Some(other) => return Err(corrupt(Column::State, &format!("is {other}, allowed are 0 to 4"))),
        None => return Err(corrupt(Column::State, "is missing")),
    };
    if !matches!(state, State::Consuming { .. } | State::Consumed { .. }) && bytes(row, Column::Owner)?.is_some() {
        return Err(corrupt(Column::Owner, "is set although the key has no owner"));
    }
    let record = Record {
        fencing: FencingToken(fencing),
        attempt,
        fingerprint: fingerprint(row)?,
        state,
        expires_at: Timestamp(number(row, Column::Expires)?),
        first_seen: Timestamp(number(row, Column::FirstSeen)?),
        updated_at: Timestamp(number(row, Column::Updated)?),
        display: text(row, Column::Display)?,
    };
    record.check()?;
    Ok(record)
}

/// The columns that depend on a record's state, for a statement that writes or compares it.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) owner: Option<OwnerToken>,
    /// The time, or `None` if the column has no meaning in this state.
    pub(crate) until: Option<Timestamp>,
    pub(crate) taken_over: Option<FencingToken>,
    pub(crate) value: Option<Arc<[u8]>>,
    pub(crate) error: Option<Arc<str>>,
}

impl Parts {
    pub(crate) fn of(record: &Record) -> Self {
        let none = Self::default();
        match &record.state {
            State::Vacant { not_before, error, taken_over } => {
                Self { until: Some(*not_before), taken_over: *taken_over, error: Some(error.clone()), ..none }
            }
            State::Consuming { owner, until, taken_over } => {
                Self { owner: Some(*owner), until: Some(*until), taken_over: *taken_over, ..none }
            }
            State::Consumed { owner, value } => Self { owner: Some(*owner), value: value.clone(), ..none },
            State::Failed { error } | State::Dead { error } => Self { error: Some(error.clone()), ..none },
        }
    }
}

pub(crate) fn key(row: &impl Cells) -> Result<Key, StoreError> {
    let name = text(row, Column::Name)?.ok_or_else(|| corrupt(Column::Name, "is missing"))?;
    Ok(Key::from_parts(&name, id(row)?.ok_or_else(|| corrupt(Column::Id, "is missing"))?))
}

/// Returns the key of a row whose name may be unreadable.
pub(crate) fn lossy_key(row: &impl Cells, id: u128) -> Key {
    let name = bytes(row, Column::Name).ok().flatten().unwrap_or_default();
    Key::from_parts(&String::from_utf8_lossy(name), id)
}

/// Returns the hash of a row's key, or `None` if an outer join found no row.
pub(crate) fn id(row: &impl Cells) -> Result<Option<u128>, StoreError> {
    bytes(row, Column::Id)?.map(|bytes| sixteen(Column::Id, bytes)).transpose()
}

/// Returns a duration in µs for a statement. The result saturates, and is rounded up to whole µs, as with
/// [`Timestamp`].
pub(crate) fn micros(span: Duration) -> i64 {
    signed(Timestamp(0) + span)
}

/// Returns a time for a statement.
pub(crate) fn signed(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn positive(column: Column, number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| corrupt(column, "is below zero"))
}

fn number(row: &impl Cells, column: Column) -> Result<u64, StoreError> {
    int(row, column)?.map_or_else(|| Err(corrupt(column, "is missing")), |number| positive(column, number))
}

fn sixteen(column: Column, bytes: &[u8]) -> Result<u128, StoreError> {
    bytes
        .try_into()
        .map(u128::from_be_bytes)
        .map_err(|_| corrupt(column, &format!("has {} bytes, not 16", bytes.len())))
}

fn owner(row: &impl Cells) -> Result<OwnerToken, StoreError> {
    let bytes = bytes(row, Column::Owner)?.ok_or_else(|| corrupt(Column::Owner, "is missing"))?;
    sixteen(Column::Owner, bytes).map(OwnerToken)
}

fn fingerprint(row: &impl Cells) -> Result<Option<Fingerprint>, StoreError> {
    let read = |bytes: &[u8]| {
        bytes.try_into().map(Fingerprint::from_bytes).map_err(|_| corrupt(Column::Fingerprint, "has the wrong length"))
    };
    bytes(row, Column::Fingerprint)?.map(read).transpose()
}

fn text(row: &impl Cells, column: Column) -> Result<Option<Arc<str>>, StoreError> {
    let read = |bytes| std::str::from_utf8(bytes).map(Arc::from).map_err(|_| corrupt(column, "is not UTF-8"));
    bytes(row, column)?.map(read).transpose()
}

fn error(row: &impl Cells) -> Result<Arc<str>, StoreError> {
    text(row, Column::Error)?.ok_or_else(|| corrupt(Column::Error, "is missing"))
}

//! Values of columns, for parameters and rows.
use idempotent_core::{Key, StoreError, StoreErrorKind, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, ValueRef};

use crate::row::{COLUMNS, Cells};

pub(super) fn id(key: &Key) -> Box<[u8]> {
    Box::new(key.hash().to_be_bytes())
}

pub(super) fn owner(token: u128) -> Box<[u8]> {
    Box::new(token.to_be_bytes())
}

impl Cells for SqliteRow {
    fn int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        if self.try_get_raw(at)?.is_null() { Ok(None) } else { self.try_get(at).map(Some) }
    }
}

/// Returns the time of the statement that read the row. An SQLite version without `unixepoch(…, 'subsec')` returns
/// null.
pub(super) fn now(row: &SqliteRow) -> Result<Timestamp, StoreError> {
    let now: Option<i64> = row.try_get(COLUMNS.len()).unwrap_or_default();
    now.and_then(|now| u64::try_from(now).ok()).map(Timestamp).ok_or_else(|| {
        StoreError::new(StoreErrorKind::Schema)
            .because("SQLite returned no time in milliseconds: use SQLite 3.42 or later")
    })
}

//! The check of the database at the end.
use std::collections::BTreeMap;

use anyhow::Context;
use sqlx::{Connection, PgConnection};

/// Returns the violations: keys without exactly one of both rows, or with a record that is not consumed.
pub(super) async fn rows(url: &str, keys: u64) -> anyhow::Result<Vec<String>> {
    let mut connection = PgConnection::connect(url).await.context("the server is gone")?;
    let counts =
        "SELECT key, count(*) FILTER (WHERE part = 1), count(*) FILTER (WHERE part = 2) FROM effects GROUP BY key";
    let counts: Vec<(i64, i64, i64)> = sqlx::query_as(counts).fetch_all(&mut connection).await?;
    let counts: BTreeMap<i64, (i64, i64)> =
        counts.into_iter().map(|(key, first, second)| (key, (first, second))).collect();
    let consumed: i64 =
        sqlx::query_scalar("SELECT count(*) FROM idempotent_record WHERE state = 2").fetch_one(&mut connection).await?;
    let mut found: Vec<String> = (1..=keys)
        .filter_map(|key| {
            let rows = i64::try_from(key).ok().and_then(|key| counts.get(&key)).copied().unwrap_or_default();
            (rows != (1, 1)).then(|| format!("I0: key {key} has {} and {} rows, not one and one", rows.0, rows.1))
        })
        .collect();
    if u64::try_from(consumed).ok() != Some(keys) {
        found.push(format!("I9: {consumed} records are consumed, of {keys} keys"));
    }
    Ok(found)
}

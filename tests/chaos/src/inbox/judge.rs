//! The check of the database at the end.
use std::collections::BTreeMap;

use super::database::Server;

/// Returns the violations: keys without exactly one of both rows, or with a record that is not consumed.
pub(super) async fn rows(server: &Server, keys: u64) -> anyhow::Result<Vec<String>> {
    let (counts, consumed) = server.rows().await?;
    let counts: BTreeMap<i64, (i64, i64)> =
        counts.into_iter().map(|(key, first, second)| (key, (first, second))).collect();
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

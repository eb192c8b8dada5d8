//! Rows of the record table that a separate connection damages.
use std::fmt;
use std::path::Path;

use idempotent::Key;
use idempotent_testkit::{Damage, DamageInjector};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row};

/// A separate connection.
pub(crate) struct Rows(SqlitePool);

impl Rows {
    pub(crate) async fn of(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path);
        Self(SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options))
    }
}

/// Returns the assignment that damages a record, or `None` if a STRICT column prevents this damage.
fn change(damage: Damage) -> Option<&'static str> {
    match damage {
        Damage::CutOff => Some("owner = substr(owner, 1, 3)"),
        Damage::Noise => Some("attempt = 1 << 40"),
        Damage::NewerVersion => Some("v = 999"),
        Damage::NoOwner => Some("owner = NULL"),
        Damage::BadFencing => Some("fencing = -5"),
        Damage::EndlessLease => Some("until_at = 253402300799000000, expires_at = 253402300799000000"),
        Damage::UnknownState => Some("state = 9"),
        _ => None,
    }
}

#[async_trait::async_trait]
impl DamageInjector for Rows {
    fn holds(&self, damage: Damage) -> bool {
        change(damage).is_some()
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let change = change(damage).unwrap();
        let statement = format!("UPDATE idempotent_record SET {change} WHERE id = ?1");
        let update = sqlx::query(AssertSqlSafe(statement)).bind(key.hash().to_be_bytes().to_vec());
        assert_eq!(update.execute(&self.0).await.unwrap().rows_affected(), 1);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let text = "SELECT quote(v)||quote(name)||quote(state)||quote(owner)||quote(fencing)||quote(attempt)\
             ||quote(until_at)||quote(taken_over)||quote(fingerprint)||quote(expires_at)||quote(first_seen)\
             ||quote(updated_at)||quote(value)||quote(error)||quote(display) FROM idempotent_record WHERE id = ?1";
        let row = sqlx::query(text).bind(key.hash().to_be_bytes().to_vec()).fetch_optional(&self.0).await.unwrap();
        row.map(|row| row.get::<String, _>(0).into_bytes()).unwrap_or_default()
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}

//! The version of the server, and its capabilities.
use idempotent_core::{StoreError, StoreErrorKind};
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

/// Rows that do not match are not locked, and a read sees committed rows.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// The properties of the server that the statements depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerVersion {
    /// MariaDB: a statement can tell the row it inserted, and bring its own settings.
    pub(super) returning: bool,
    /// Bytes of the largest statement it takes.
    pub(super) packet: usize,
    /// A lock that was waited for in vain is the end of the whole transaction, where the server is set so.
    pub(super) unforgiving: bool,
}

impl ServerVersion {
    pub(super) async fn of(connection: &mut MySqlConnection) -> Result<(String, Self), sqlx::Error> {
        let asked =
            "SELECT version(), CAST(@@max_allowed_packet AS SIGNED), CAST(@@innodb_rollback_on_timeout AS SIGNED)";
        let row = sqlx::query(asked).fetch_one(connection).await?;
        let (version, packet): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let unforgiving = row.try_get::<i64, _>(2)? != 0;
        let returning = version.contains("MariaDB");
        Ok((version, Self { returning, packet: usize::try_from(packet).unwrap_or(usize::MAX), unforgiving }))
    }

    /// Refuses one that is too old.
    pub(super) fn check(self, version: &str) -> Result<Self, StoreError> {
        self.check_for(version, (10, 5))
    }

    /// Refuses a MariaDB older than this, and a MySQL that is too old.
    pub(super) fn check_for(self, version: &str, mariadb: (u32, u32)) -> Result<Self, StoreError> {
        let (name, least) = if self.returning { ("MariaDB", mariadb) } else { ("MySQL", (8, 0)) };
        let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or_default());
        let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        if found >= least {
            return Ok(self);
        }
        Err(StoreError::new(StoreErrorKind::Schema).because(format!(
            "the server is {name} {}.{}, the minimum is {}.{}: upgrade the server, or use another store",
            found.0, found.1, least.0, least.1
        )))
    }

    /// Returns the session settings of the store's connections, with which no statement waits for a lock.
    pub(super) fn session(self, read_only: bool) -> String {
        // MySQL cannot wait less than a second.
        let wait = if self.returning { 0 } else { 1 };
        format!("{}; SET SESSION innodb_lock_wait_timeout={wait}", Self::transactions(read_only))
    }

    /// Returns the session settings of the connections for transactions of runs.
    pub(super) fn transactions(read_only: bool) -> String {
        let access = if read_only { "; SET SESSION TRANSACTION READ ONLY" } else { "" };
        format!("{ISOLATION}{access}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused_by_name() {
        let check = |version: &str| {
            ServerVersion { returning: version.contains("MariaDB"), packet: 1 << 24, unforgiving: false }
                .check(version)
                .map(drop)
        };
        for good in ["10.11.14-MariaDB-0+deb12u2", "11.4.2-MariaDB", "10.5.0-MariaDB", "8.0.36", "9.1.0-commercial"] {
            check(good).unwrap();
        }
        for (old, words) in [("10.4.34-MariaDB", "MariaDB 10.4"), ("5.7.44-log", "MySQL 5.7"), ("what", "MySQL 0.0")] {
            let told = check(old).unwrap_err().to_string();
            assert!(told.contains(words) && told.contains("the minimum is"), "{told}");
        }
    }
}

//! Connections to databases with delay tables and outboxes.
use std::str::FromStr;

use idempotent::__private::url::masked;
use idempotent::sqlx::{self, ConnectOptions, Connection, Database as Sql, Pool, pool::PoolOptions};

use crate::backend::Backend;
use crate::failure::Failure;

/// The URLs of databases, for errors.
pub(crate) const DATABASES: &str = "postgres://HOST/DATABASE, mysql://HOST/DATABASE, or sqlite:PATH";

/// The connections to a database.
pub(crate) enum Database {
    #[cfg(feature = "mysql")]
    MySql(Pool<sqlx::MySql>),
    #[cfg(feature = "postgres")]
    Postgres(Pool<sqlx::Postgres>),
    #[cfg(feature = "sqlite")]
    Sqlite(Pool<sqlx::Sqlite>),
}

/// Connects to the database of a URL. Creates no file.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Database> {
    match Backend::of(url) {
        #[cfg(feature = "mysql")]
        Some(Backend::MySql) => {
            let url = url.replacen("mariadb://", "mysql://", 1);
            Ok(Database::MySql(pool::<sqlx::MySql>(options(&url)?).await?))
        }
        #[cfg(feature = "postgres")]
        Some(Backend::Postgres) => Ok(Database::Postgres(pool::<sqlx::Postgres>(options(url)?).await?)),
        #[cfg(feature = "sqlite")]
        Some(Backend::Sqlite) => {
            let options = options::<sqlx::sqlite::SqliteConnectOptions>(url)?.create_if_missing(false);
            let file = options.get_filename();
            if !file.exists() {
                let why = format!("the file `{}` is missing, and this command creates none", file.display());
                return Err(Failure::Unfit(why).into());
            }
            Ok(Database::Sqlite(pool::<sqlx::Sqlite>(options).await?))
        }
        _ => {
            let why = format!("`{}` is no URL of a database of this program: use {DATABASES}", masked(url));
            Err(Failure::Usage(why).into())
        }
    }
}

/// Refuses a name that cannot be that of a table. The database is not asked.
pub(crate) fn check_table(name: &str) -> Result<(), Failure> {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_next = |byte: u8| is_first(byte) || byte.is_ascii_digit();
    if name.len() <= 52 && name.bytes().next().is_some_and(is_first) && name.bytes().all(is_next) {
        return Ok(());
    }
    let name = idempotent_operate::escaped(name);
    let rule = "1 to 52 of the characters a-z, 0-9 and `_`, and no digit at its start";
    Err(Failure::Usage(format!("`{name}` is no name of a table: a name has {rule}")))
}

fn options<O: FromStr<Err = sqlx::Error>>(url: &str) -> anyhow::Result<O> {
    let unread = |error| Failure::Usage(format!("`{}` cannot be read ({error}): use {DATABASES}", masked(url)));
    Ok(url.parse().map_err(unread)?)
}

/// The number of connections. A delay table and an outbox need one for a transaction and one for a statement.
const CONNECTIONS: u32 = 2;

async fn pool<Db: Sql>(options: <Db::Connection as Connection>::Options) -> Result<Pool<Db>, sqlx::Error> {
    let options = options.disable_statement_logging();
    // A pool tries to connect until its timeout, and loses the error.
    options.connect().await?.close().await?;
    Ok(PoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(super::commands::OPENING)
        .connect_lazy_with(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_plain_name() {
        for good in ["orders", "_x9", &"a".repeat(52)] {
            assert!(check_table(good).is_ok(), "{good}");
        }
        for bad in ["", "9x", "Orders", "x\"; drop table r; --", "größe", &"a".repeat(53)] {
            assert!(check_table(bad).is_err(), "{bad}");
        }
    }
}

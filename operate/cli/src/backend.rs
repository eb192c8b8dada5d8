//! The systems in which records are stored, and the checks that each of them offers.
use crate::arguments::{Division, TableNames};
use crate::failure::Failure;
use crate::finding::{Finding, Severity};

/// A system that stores records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Backend {
    Redis,
    Sqlite,
    Postgres,
    MySql,
    /// A database with a cache.
    Tiered,
}

/// A migration of a table, as text.
pub(crate) struct Migration {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) statements: Vec<String>,
}

/// The status of a table.
pub(crate) struct Schema {
    pub(crate) table: String,
    pub(crate) found: u32,
    pub(crate) known: u32,
    pub(crate) pending: Vec<Migration>,
    pub(crate) problem: Option<String>,
}

impl Backend {
    /// Returns the backend of a URL. The URL may be invalid in other respects.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split(':').next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            "tiered" => Some(Self::Tiered),
            scheme if scheme.starts_with("redis") => Some(Self::Redis),
            _ => None,
        }
    }

    /// Returns true for a database server.
    pub(crate) fn is_database(self) -> bool {
        matches!(self, Self::Postgres | Self::MySql | Self::Tiered)
    }

    /// Runs the checks of this backend. They write nothing.
    pub(crate) async fn findings(self, url: &str, namespace: &str, names: &TableNames) -> anyhow::Result<Vec<Finding>> {
        match self {
            Self::Redis => redis(url, namespace).await,
            Self::Tiered => {
                let (database, cache) =
                    url.split_once(':').and_then(|(_, tiers)| tiers.split_once('|')).unwrap_or_default();
                let mut findings = Vec::new();
                for tier in [database, cache] {
                    if let Some(backend) = Self::of(tier) {
                        findings.extend(Box::pin(backend.findings(tier, namespace, names)).await?);
                    }
                }
                Ok(findings)
            }
            Self::Sqlite | Self::Postgres | Self::MySql => {
                Ok(vec![self.schema(url, names, Division::default()).await?.finding(url)])
            }
        }
    }

    /// Returns the status of the tables. Reads only.
    pub(crate) async fn schema(self, url: &str, names: &TableNames, division: Division) -> anyhow::Result<Schema> {
        self.check_division(division)?;
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite => schema(sqlite(url, names)?.read_only(true).schema_status().await?),
            #[cfg(feature = "postgres")]
            Self::Postgres => schema(postgres(url, names, division).read_only(true).schema_status().await?),
            #[cfg(feature = "mysql")]
            Self::MySql => schema(mysql(url, names).read_only(true).schema_status().await?),
            other => return Err(other.has_no_schema()),
        })
    }

    /// Returns all migrations. Needs no connection.
    ///
    /// # Errors
    /// The backend has no tables, or a name is invalid.
    pub(crate) fn migrations(self, names: &TableNames, division: Division) -> anyhow::Result<Vec<Migration>> {
        self.check_division(division)?;
        let invalid = |error: idempotent::StoreError| Failure::Usage(error.to_string());
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite => migrations(sqlite("sqlite::memory:", names)?.schema_steps().map_err(invalid)?),
            #[cfg(feature = "postgres")]
            Self::Postgres => {
                migrations(postgres("postgres://localhost", names, division).schema_steps().map_err(invalid)?)
            }
            #[cfg(feature = "mysql")]
            Self::MySql => migrations(mysql("mysql://localhost", names).schema_steps().map_err(invalid)?),
            other => return Err(other.has_no_schema()),
        })
    }

    /// Checks `--partitions` without asking the database.
    fn check_division(self, division: Division) -> anyhow::Result<()> {
        if division.partitions.is_none() || self == Self::Postgres {
            return Ok(());
        }
        Err(Failure::Usage("only tables in PostgreSQL have partitions: leave --partitions out".into()).into())
    }

    fn has_no_schema(self) -> anyhow::Error {
        Failure::Usage(format!("{self:?} has no schema and no tables, or this program was built without it")).into()
    }
}

impl Schema {
    fn finding(&self, url: &str) -> Finding {
        let Self { table, found, known, pending, problem } = self;
        let (severity, text) = match (problem, pending.len()) {
            (Some(problem), _) => (Severity::Fail, problem.clone()),
            (None, 0) => (Severity::Ok, format!("table `{table}` has version {found}")),
            (None, missing) => {
                let text = format!(
                    "table `{table}` has version {found} of {known}, {missing} migrations are missing: run \
                                    `idempotent migrate up`"
                );
                (Severity::Fail, text)
            }
        };
        Finding { severity, check: "schema", server: idempotent::connect(url).to_string(), text }
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str, names: &TableNames) -> anyhow::Result<idempotent::store::SqliteStoreBuilder> {
    if names.schema.is_some() {
        return Err(
            Failure::Usage("SQLite has no schemas: leave --schema out, and name the table by --table".into()).into()
        );
    }
    let builder = idempotent::SqliteStore::builder(url);
    Ok(match &names.table {
        Some(table) => builder.table(table),
        None => builder,
    })
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, names: &TableNames, division: Division) -> idempotent::store::PostgresStoreBuilder {
    let mut builder = idempotent::PostgresStore::builder(url);
    if let Some(table) = &names.table {
        builder = builder.table(table);
    }
    if let Some(schema) = &names.schema {
        builder = builder.schema(schema);
    }
    if let Some(partitions) = division.partitions {
        builder = builder.partitions(partitions);
    }
    builder
}

#[cfg(feature = "mysql")]
fn mysql(url: &str, names: &TableNames) -> idempotent::store::MySqlStoreBuilder {
    let mut builder = idempotent::MySqlStore::builder(url);
    if let Some(table) = &names.table {
        builder = builder.table(table);
    }
    if let Some(schema) = &names.schema {
        builder = builder.schema(schema);
    }
    builder
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn migrations(steps: Vec<idempotent::store::SchemaStep>) -> Vec<Migration> {
    let migration = |step: &idempotent::store::SchemaStep| Migration {
        version: step.version(),
        name: step.name().to_owned(),
        statements: step.statements().to_vec(),
    };
    steps.iter().map(migration).collect()
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn schema(status: idempotent::store::SchemaStatus) -> Schema {
    Schema {
        table: status.table,
        found: status.found,
        known: status.known,
        pending: migrations(status.pending),
        problem: status.problem.map(|problem| problem.to_string()),
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str, namespace: &str) -> anyhow::Result<Vec<Finding>> {
    use idempotent::store::Health;

    let builder = idempotent::RedisStore::builder(url).namespace(namespace).read_only(true);
    Ok(builder.connect().await?.check().await?.findings().iter().map(Finding::from).collect())
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str, _: &str) -> anyhow::Result<Vec<Finding>> {
    Err(Failure::Usage("this program was built without Redis".into()).into())
}

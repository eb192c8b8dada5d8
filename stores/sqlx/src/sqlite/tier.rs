//! An SQLite file as the fast tier of another store.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    CacheTier, CachedOutcome, Clock, FencingToken, Fingerprint, Key, StoreError, StoreErrorKind, SystemClock, Timestamp,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{ConnectOptions, Row};

use super::connection::{FairConnection, OpenFile};
use super::migrate::migrate;
use super::open::{connections, place, use_wal};
use super::options::{self, DatabaseTarget, SqliteStoreBuilder, Synchronous};
use super::record_access::id;
use crate::catalog::KnownSchema;
use crate::row::signed;
use crate::schema::Migration;
use crate::table::Table;

/// A file on the disk of one process as the fast tier of a [`TieredStore`](idempotent_core::TieredStore), whose records are in
/// a store that the processes share. Clones share the connections.
///
/// The tier answers duplicates without a request over the network, and its facts survive a restart of the process. Losing the
/// file costs only speed. Each process needs a file of its own: WAL mode does not work on network file systems.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_core::{MemoryStore, TieredStore};
/// use idempotent_sqlx::SqliteTier;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("facts.db").display().to_string();
/// let shared = MemoryStore::new(); // or PostgreSQL, MySQL, Redis
/// let local = SqliteTier::open(path).await?;
/// let store = TieredStore::builder(shared, local).max_age(Duration::from_secs(3600)).build();
/// # drop(store);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Limits
/// - A key that is [forgotten](idempotent_core::Admin::forget) in one process is answered by the tiers of other processes for up to
///   [`max_age`](idempotent_core::TieredStoreBuilder::max_age).
/// - A file belongs to one shared store. Remove the file before the process uses another store, or an older backup of the store.
/// - Facts end by the clock of the machine at the start of the process. A process that starts with a fast clock ends facts and bars
///   early, and one that starts with a slow clock keeps them for longer, by the difference.
/// - An expired fact stays in the file until new facts replace it: each new fact removes up to two expired ones.
#[derive(Clone)]
pub struct SqliteTier(Arc<TierFile>);

struct TierFile {
    path: String,
    writer: FairConnection,
    reader: FairConnection,
    clock: Arc<dyn Clock>,
}

const TABLE: &str = "idempotent_tier";
const KNOWN: KnownSchema<'static> = KnownSchema {
    migrations: MIGRATIONS,
    columns: &["id", "until_at", "fencing", "fact_until", "fingerprint", "value"],
    skips_locked: false,
};

/// A row without a fencing number is a bar. `until_at` is the end of the row, and `fact_until` the end that readers of the fact
/// compare with their clocks.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "facts",
    sql: "CREATE TABLE {table} (
 id BLOB NOT NULL PRIMARY KEY,
 until_at INTEGER NOT NULL,
 fencing INTEGER,
 fact_until INTEGER,
 fingerprint BLOB,
 value BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX {name}_until ON {table} (until_at)",
}];

const RECALL: &str = "SELECT fencing, fact_until, fingerprint, value FROM idempotent_tier \
     WHERE id=?1 AND until_at>?2 AND fencing IS NOT NULL";
const REMEMBER: &str = "INSERT INTO idempotent_tier (id, until_at, fencing, fact_until, fingerprint, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT (id) DO UPDATE SET until_at=excluded.until_at, fencing=excluded.fencing, fact_until=excluded.fact_until, \
     fingerprint=excluded.fingerprint, value=excluded.value WHERE idempotent_tier.until_at<=?7";
const BAR: &str = "INSERT INTO idempotent_tier (id, until_at) VALUES (?1, ?2) \
     ON CONFLICT (id) DO UPDATE SET until_at=max(until_at, excluded.until_at), \
     fencing=NULL, fact_until=NULL, fingerprint=NULL, value=NULL";
const REMOVE: &str = "DELETE FROM idempotent_tier WHERE id IN \
     (SELECT id FROM idempotent_tier WHERE until_at<=?1 ORDER BY until_at LIMIT 2)";

impl SqliteTier {
    /// Opens the file. Creates a missing file and table. `place` is a path, `sqlite:PATH` or `sqlite://PATH`.
    ///
    /// # Errors
    /// The same as [`SqliteStoreBuilder::open`]. [`Schema`](StoreErrorKind::Schema): the database is in memory, where
    /// [`MemoryTier`](idempotent_core::MemoryTier) serves.
    ///
    /// # Cancellation
    /// The file may have been created.
    pub async fn open(place: impl Into<String>) -> Result<Self, StoreError> {
        Self::open_on(place.into(), Arc::new(SystemClock::new())).await
    }

    async fn open_on(file: String, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let table = Table::new(TABLE)?;
        let builder = SqliteStoreBuilder::new(file).table(TABLE).synchronous(Synchronous::Normal);
        let DatabaseTarget::File(path) = builder.target()? else {
            let text = "a tier in memory ends with its process: name a file, or use `MemoryTier`";
            return Err(StoreError::new(StoreErrorKind::Schema).because(text));
        };
        let path = options::check(&path, true)?;
        let shown = path.display().to_string();
        let target = DatabaseTarget::File(path);
        let place = Arc::new(place(&builder, &target, &table));
        let (writing, reading) = connections(&builder, &target);
        let mut connection = writing.connect().await.map_err(|error| place.error(error))?;
        migrate(&mut connection, &table, &place, true, &KNOWN).await?;
        use_wal(&mut connection, &place).await?;
        let file = OpenFile::of(&target);
        let reader = FairConnection::new(reading, place.clone(), file.clone(), None);
        let writer = FairConnection::new(writing, place, file, Some(connection));
        Ok(Self(Arc::new(TierFile { path: shown, writer, reader, clock })))
    }

    fn now(&self) -> Timestamp {
        self.0.clock.wall()
    }
}

#[async_trait]
impl CacheTier for SqliteTier {
    async fn recall(&self, key: &Key) -> Result<Option<CachedOutcome>, StoreError> {
        let mut turn = self.0.reader.turn().await?;
        let row = turn.first(sqlx::query(RECALL).bind(id(key)).bind(signed(self.now()))).await?;
        let damaged = || StoreError::new(StoreErrorKind::Corrupt).because("a fact of the tier cannot be read");
        row.map(|row| fact(&row).ok_or_else(damaged)).transpose()
    }

    async fn remember(&self, key: &Key, fact: &CachedOutcome, keep: Duration) -> Result<bool, StoreError> {
        let mut turn = self.0.writer.turn().await?;
        // The wait for the connection is over, so the fact does not begin late.
        let now = self.now();
        turn.execute(sqlx::query(REMOVE).bind(signed(now))).await?;
        let remember = sqlx::query(REMEMBER)
            .bind(id(key))
            .bind(signed(now + keep))
            .bind(fact.fencing.0.cast_signed())
            .bind(signed(fact.until))
            .bind(fact.fingerprint.map(|fingerprint| Box::<[u8]>::from(fingerprint.to_bytes())))
            .bind(fact.value.clone())
            .bind(signed(now));
        Ok(turn.execute(remember).await? > 0)
    }

    async fn bar(&self, key: &Key, keep: Duration) -> Result<(), StoreError> {
        let mut turn = self.0.writer.turn().await?;
        let bar = sqlx::query(BAR).bind(id(key)).bind(signed(self.now() + keep));
        turn.execute(bar).await.map(drop)
    }
}

/// Returns the fact of a row, or `None` if a column has an invalid value.
fn fact(row: &SqliteRow) -> Option<CachedOutcome> {
    let fingerprint: Option<Vec<u8>> = row.try_get(2).ok()?;
    let fingerprint = match fingerprint {
        Some(bytes) => Some(Fingerprint::from_bytes(bytes.try_into().ok()?)),
        None => None,
    };
    Some(CachedOutcome {
        fencing: FencingToken(row.try_get::<i64, _>(0).ok()?.cast_unsigned()),
        fingerprint,
        value: row.try_get::<Option<Vec<u8>>, _>(3).ok()?.map(Arc::from),
        until: Timestamp(u64::try_from(row.try_get::<i64, _>(1).ok()?).ok()?),
    })
}

impl fmt::Debug for SqliteTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTier").field("path", &self.0.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, Scene};
    use idempotent_testkit::VirtualClock;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(name: &str) -> Key {
        Identity::new(Scene::Mq, "orders", name).key("tests").unwrap()
    }

    fn outcome(fencing: u64) -> CachedOutcome {
        CachedOutcome {
            fencing: FencingToken(fencing),
            fingerprint: Some(Fingerprint::of_bytes("payload")),
            value: Some(Arc::from(&b"\0\xff"[..])),
            until: Timestamp(1 << 60),
        }
    }

    /// Opens a tier in a folder. A second call opens the same file.
    async fn open(folder: &tempfile::TempDir, clock: &VirtualClock) -> SqliteTier {
        let path = folder.path().join("facts.db").display().to_string();
        SqliteTier::open_on(path, Arc::new(clock.clone())).await.unwrap()
    }

    #[tokio::test]
    async fn a_fact_survives_a_restart_and_ends_after_its_time() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
        let bare = CachedOutcome { fingerprint: None, value: None, ..outcome(u64::MAX) };
        let tier = open(&folder, &clock).await;
        assert!(tier.remember(&key("full"), &outcome(7), MINUTE).await.unwrap());
        assert!(tier.remember(&key("bare"), &bare, MINUTE * 2).await.unwrap());
        assert!(!tier.remember(&key("full"), &bare, MINUTE).await.unwrap(), "the first fact is kept");
        drop(tier);
        let tier = open(&folder, &clock).await;
        assert_eq!(tier.recall(&key("full")).await.unwrap(), Some(outcome(7)));
        assert_eq!(tier.recall(&key("bare")).await.unwrap(), Some(bare.clone()));
        clock.advance(MINUTE).await;
        assert_eq!(tier.recall(&key("full")).await.unwrap(), None);
        assert!(tier.remember(&key("full"), &bare, MINUTE).await.unwrap(), "an expired fact is replaced");
    }

    #[tokio::test]
    async fn a_bar_replaces_a_fact_and_prevents_facts_until_its_end() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
        let tier = open(&folder, &clock).await;
        assert!(tier.remember(&key("k"), &outcome(7), MINUTE).await.unwrap());
        tier.bar(&key("k"), MINUTE * 2).await.unwrap();
        tier.bar(&key("k"), MINUTE).await.unwrap();
        clock.advance(MINUTE).await;
        assert_eq!(tier.recall(&key("k")).await.unwrap(), None);
        assert!(!tier.remember(&key("k"), &outcome(7), MINUTE).await.unwrap(), "the longer bar counts");
        clock.advance(MINUTE).await;
        assert!(tier.remember(&key("k"), &outcome(8), MINUTE).await.unwrap());
        assert_eq!(tier.recall(&key("k")).await.unwrap(), Some(outcome(8)));
    }

    #[tokio::test]
    async fn each_new_fact_removes_two_expired_ones() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
        let tier = open(&folder, &clock).await;
        for name in ["a", "b", "c"] {
            assert!(tier.remember(&key(name), &outcome(7), MINUTE).await.unwrap());
        }
        clock.advance(MINUTE).await;
        assert!(tier.remember(&key("d"), &outcome(7), MINUTE).await.unwrap());
        let mut turn = tier.0.reader.turn().await.unwrap();
        let rows = turn.all(sqlx::query("SELECT id FROM idempotent_tier")).await.unwrap();
        assert_eq!(rows.len(), 2, "one expired fact and the new one");
    }

    #[tokio::test]
    async fn a_database_in_memory_is_refused_with_the_alternative() {
        let error = SqliteTier::open("sqlite::memory:").await.unwrap_err();
        assert!(error.kind() == StoreErrorKind::Schema && error.to_string().contains("`MemoryTier`"), "{error}");
    }
}

//! A store, and a table of effects in the same file.
use idempotent_core::Executor;
use idempotent_sqlx::{Inbox, InboxTransaction, SqliteStore};
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use crate::support::Place;

pub(super) type Database = Sqlite;
pub(super) type Own = InboxTransaction<Sqlite>;
pub(super) type Tx = Transaction<'static, Sqlite>;

pub(super) struct World {
    pub(super) place: Place,
    pub(super) store: SqliteStore,
    pub(super) executor: Executor,
    pub(super) inbox: Inbox<Sqlite>,
    pub(super) leased: Inbox<Sqlite>,
}

impl World {
    pub(super) async fn new() -> Self {
        let world = Self::of(Place::new()).await;
        world.place.sql("CREATE TABLE effects(key TEXT NOT NULL)").await;
        world
    }

    /// Another process's.
    pub(super) async fn again(address: &str) -> Self {
        Self::of(Place { path: address.into(), ..Place::new() }).await
    }

    pub(super) fn address(&self) -> String {
        self.place.path.to_str().unwrap().to_owned()
    }

    async fn of(place: Place) -> Self {
        let store = place.open().await;
        let executor = Executor::new(store.clone());
        let (inbox, leased) = (Inbox::new(&executor), Inbox::leased(&executor));
        Self { place, store, executor, inbox, leased }
    }

    pub(super) fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.to_owned())
    }

    /// Returns the name of the table of records.
    pub(super) fn records(&self) -> &str {
        "idempotent_record"
    }

    pub(super) async fn effect(&self, tx: &mut Tx, key: &str) -> sqlx::Result<()> {
        sqlx::query("INSERT INTO effects(key) VALUES ($1)").bind(key).execute(&mut **tx).await.map(drop)
    }

    /// One of the caller's own.
    pub(super) async fn begin(&self) -> Tx {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&self.place.path);
        let pool = sqlx::SqlitePool::connect_lazy_with(options);
        pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    pub(super) async fn effects(&self, key: &str) -> i64 {
        self.place.count(&format!("SELECT count(*) FROM effects WHERE key = '{key}'")).await
    }
}

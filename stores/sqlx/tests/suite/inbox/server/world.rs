//! A store, and a table of effects in the same database.
use std::time::Duration;

use idempotent_core::{Admin, Claim, ClaimRequest, Executor, Key, Store};
use idempotent_sqlx::{Inbox, InboxTransaction};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Pool, Transaction};

use super::backend::{EFFECTS, INSERT};
use super::fixture::{Db, Place, Store as ItsStore, creating};

pub(super) type Database = Db;
pub(super) type Own = InboxTransaction<Db>;
pub(super) type Tx = Transaction<'static, Db>;

pub(super) struct World {
    pub(super) place: Place,
    pub(super) pool: Pool<Db>,
    pub(super) store: ItsStore,
    pub(super) executor: Executor,
    pub(super) inbox: Inbox<Db>,
    pub(super) leased: Inbox<Db>,
    pub(super) other: Pool<Db>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::at(Place::new(), 4).await
    }

    pub(super) async fn at(place: Place, connections: u32) -> Self {
        Self::patient(place, connections, Duration::from_secs(5)).await
    }

    /// Creates a world whose store waits this long for a response.
    pub(super) async fn patient(place: Place, connections: u32, patience: Duration) -> Self {
        let pool = PoolOptions::new().max_connections(connections).test_before_acquire(false);
        let pool = pool.acquire_timeout(Duration::from_secs(5)).connect_lazy(&place.url).unwrap();
        Self::on_pool(place, pool, patience).await
    }

    pub(super) async fn on_pool(place: Place, pool: Pool<Db>, patience: Duration) -> Self {
        let table = EFFECTS.replace("effects", &format!("effects_{}", place.table));
        sqlx::raw_sql(AssertSqlSafe(table)).execute(&place.other()).await.unwrap();
        Self::of(place, pool, patience).await
    }

    /// Another process's.
    pub(super) async fn again(address: &str) -> Self {
        let (url, table) = address.split_once(' ').unwrap();
        let pool = PoolOptions::new().max_connections(4).connect_lazy(url).unwrap();
        Self::of(Place { url: url.to_owned(), table: table.to_owned() }, pool, Duration::from_secs(5)).await
    }

    pub(super) fn address(&self) -> String {
        format!("{} {}", self.place.url, self.place.table)
    }

    async fn of(place: Place, pool: Pool<Db>, patience: Duration) -> Self {
        let store =
            creating(ItsStore::on_pool(pool.clone()).table(&place.table).timeout(patience)).connect().await.unwrap();
        let other = place.other();
        let executor = Executor::new(store.clone());
        let (inbox, leased) = (Inbox::new(&executor), Inbox::leased(&executor));
        Self { place, pool, store, executor, inbox, leased, other }
    }

    pub(super) fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("effects", &format!("effects_{}", self.place.table)))
    }

    /// Returns the name of the table of records.
    pub(super) fn records(&self) -> &str {
        &self.place.table
    }

    /// The effect. One that is there twice fails at the commit, and not before.
    pub(super) async fn effect(&self, tx: &mut Tx, key: &str) -> sqlx::Result<()> {
        let insert = sqlx::query(self.sql(INSERT));
        insert.bind(key).execute(&mut **tx).await.map(drop)
    }

    pub(super) async fn effects(&self, key: &str) -> i64 {
        let count = sqlx::query_scalar(self.sql(&format!("SELECT count(*) FROM effects WHERE name = '{key}'")));
        count.fetch_one(&self.other).await.unwrap()
    }

    /// One of the caller's own.
    pub(super) async fn begin(&self) -> Tx {
        self.other.begin().await.unwrap()
    }

    /// Claims the key for another worker.
    pub(super) async fn steal(&self, key: &Key) {
        let record = self.store.peek(key).await.unwrap().unwrap();
        self.store.forget(key, record.fencing, true, Duration::from_secs(60)).await.unwrap();
        let claim = self.store.claim(&ClaimRequest::new(key.clone()).unwrap()).await.unwrap();
        assert!(matches!(claim, Claim::Acquired(_)));
    }
}

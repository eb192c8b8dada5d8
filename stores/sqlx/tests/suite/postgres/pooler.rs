//! PgBouncer between the store and the server.
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use idempotent_core::{Claim, Store, StoreErrorKind};
use idempotent_harness::servers::PgBouncer;
use idempotent_sqlx::{DelayTable, Outbox, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, PgPool};

use crate::postgres::fixture::{Place, server};
use crate::postgres::setup::refused;
use crate::support::{done, held, key, request};

const TRANSACTION: &str = "pool_mode = transaction\n";
/// The time limit on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const REMEDY: &[&str] = &["max_prepared_statements", "pool_mode=session", "directly"];

/// Returns a pooler that keeps prepared statements: by transaction where this is the default, by session otherwise.
fn safe() -> (PgBouncer, bool) {
    let by_transaction = PgBouncer::keeps_prepared_statements();
    (PgBouncer::start(server(), if by_transaction { TRANSACTION } else { "pool_mode = session\n" }), by_transaction)
}

/// Two poolers that lose prepared statements: one lends the last connection first, one lends connections in turn.
fn unsafe_ones() -> [PgBouncer; 2] {
    let off = if PgBouncer::keeps_prepared_statements() { "max_prepared_statements = 0\n" } else { "" };
    ["", "server_round_robin = 1\n"].map(|more| PgBouncer::start(server(), &format!("{TRANSACTION}{off}{more}")))
}

#[tokio::test]
async fn a_pooler_that_loses_prepared_statements_is_refused_with_the_remedy() {
    let place = Place::new();
    place.open().await;
    for pooler in unsafe_ones() {
        let url = pooler.url_of("postgres");
        for _ in 0..10 {
            let open = PostgresStore::builder(&url).table(&place.table).connect().await;
            refused(open, StoreErrorKind::Schema, REMEDY);
        }
        let options: PgConnectOptions = url.parse().unwrap();
        let pool = || PgPool::connect_lazy_with(options.clone().extra_float_digits(None));
        refused(PostgresStore::on_pool(pool()).table(&place.table).connect().await, StoreErrorKind::Schema, REMEDY);
        refused(Outbox::builder(pool()).create(true).open().await, StoreErrorKind::Schema, REMEDY);
        refused(DelayTable::builder(pool()).create(true).open().await, StoreErrorKind::Schema, REMEDY);
    }
}

#[tokio::test]
async fn statements_that_are_never_cached_are_refused_only_with_a_pooler() {
    let place = Place::new();
    place.open().await;
    let uncached = |url: &str| PostgresStore::builder(format!("{url}?statement-cache-capacity=0")).table(&place.table);
    uncached(&place.url).connect().await.unwrap();
    for pooler in
        unsafe_ones().into_iter().chain([safe()].into_iter().filter_map(|(pooler, lent)| lent.then_some(pooler)))
    {
        let open = uncached(&pooler.url_of("postgres")).connect().await;
        refused(open, StoreErrorKind::Schema, &["statement-cache-capacity=0", "remove"]);
    }
}

/// A pool of the caller sends the parameter, unless its options are without it.
#[tokio::test]
async fn a_startup_parameter_that_a_pooler_refuses_is_named_with_the_remedy() {
    let (pooler, _) = safe();
    let pool = || PgPool::connect_lazy(&pooler.url_of("postgres")).unwrap();
    let remedy = &["unsupported startup parameter", "extra_float_digits(None)", "ignore_startup_parameters"];
    refused(PostgresStore::on_pool(pool()).create(true).connect().await, StoreErrorKind::Denied, remedy);
    refused(Outbox::builder(pool()).create(true).open().await, StoreErrorKind::Denied, remedy);
    refused(DelayTable::builder(pool()).create(true).open().await, StoreErrorKind::Denied, remedy);
    let options: PgConnectOptions = pooler.url_of("postgres").parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.extra_float_digits(None));
    PostgresStore::on_pool(pool).table(&Place::new().table).create(true).connect().await.unwrap();
}

#[tokio::test]
async fn a_session_pooler_with_one_server_connection_left_is_usable() {
    let place = Place::new();
    place.open().await;
    let pooler = PgBouncer::start(server(), "pool_mode = session\ndefault_pool_size = 2\n");
    let options: PgConnectOptions = pooler.url_of("postgres").parse().unwrap();
    let mut other = PgConnection::connect_with(&options.extra_float_digits(None)).await.unwrap();
    other.execute("SELECT 1").await.unwrap();
    let builder = PostgresStore::builder(pooler.url_of("postgres")).table(&place.table).timeout(PATIENCE);
    let store = builder.connections(1).listening(false).connect().await.unwrap();
    let key = key("alone");
    assert!(matches!(store.claim(&request(&key, 1)).await.unwrap(), Claim::Acquired(_)));
}

/// Eight connections of two stores, which the pooler mixes.
#[tokio::test]
async fn a_pooler_that_keeps_prepared_statements_returns_each_client_its_own_answers() {
    let (pooler, by_transaction) = safe();
    let place = Place::new();
    let builder = || place.builder();
    builder().connect().await.unwrap();
    let url = pooler.url_of("postgres");
    let open = || PostgresStore::builder(&url).table(&place.table).connections(4).timeout(PATIENCE).connect();
    let stores = try_join_all([open(), open()]).await.unwrap();
    for store in &stores {
        assert_eq!(store.capabilities().watch.is_none(), by_transaction, "notifications do not arrive");
    }
    join_all((0..400_u32).map(|n| {
        let stores = &stores;
        async move {
            let (key, value) = (key(&n.to_string()), n.to_string().into_bytes());
            let Claim::Acquired(_) = stores[n as usize % 2].claim(&request(&key, 1)).await.unwrap() else {
                panic!("{n} was claimed before")
            };
            stores[n as usize % 2].complete(&held(&key, 1), &done(&value)).await.unwrap();
            let again = stores[(n as usize + 1) % 2].claim(&request(&key, 2)).await.unwrap();
            let Claim::Consumed(record) = again else { panic!("{n} is not consumed: {again:?}") };
            assert_eq!(record.value.as_deref(), Some(&value[..]), "{n}");
        }
    }))
    .await;
}

//! The TLS options of a URL for PostgreSQL, and the connections that use them.
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use idempotent_core::{Call, Claim, Executor, Identity, Scene, Settled, Store};
use idempotent_harness::servers::PostgresServer;
use idempotent_sqlx::{Inbox, PostgresStore};
use sqlx::Postgres;

use crate::postgres::by_tls::url;
use crate::postgres::fixture::creating;
use crate::support::{done, held, key, request};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start_with_tls);

pub(super) const MODE: &str = "sslmode";
pub(super) const AUTHORITY: &str = "sslrootcert";
pub(super) const STRICT: &str = "verify-full";
/// Modes that look at no certificate.
pub(super) const LAX: [&str; 2] = ["prefer", "require"];

/// URLs by which the server can be used.
pub(super) fn accepted(ca: &Path) -> [String; 4] {
    let by_name = url(STRICT, ca).replace("127.0.0.1", "localhost");
    [url(STRICT, ca), by_name, url("verify-ca", ca), format!("{}?sslmode=require", SERVER.url())]
}

/// All connections use TLS: those of the store, those of transactions, and the one for notifications.
#[tokio::test]
async fn every_connection_of_a_store_goes_by_tls() {
    let database = SERVER.database("encrypted");
    let url = url(STRICT, &SERVER.certificates().ca()).replace(&SERVER.url(), &database);
    let store = creating(PostgresStore::builder(url)).connect().await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
    let mut watching = store.capabilities().watch.unwrap().watch(&key("a"));
    let inbox = Inbox::<Postgres>::new(&Executor::new(store.clone()));
    let call = Call::new(Identity::new(Scene::Mq, "tls", "b"));
    let own = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let encrypted = inbox
        .run(call, async |mut tx| Ok::<_, Failure>(sqlx::query_scalar::<_, bool>(own).fetch_one(&mut **tx).await?));
    assert!(encrypted.await.unwrap());
    let connections = "SELECT bool_and(ssl), count(*) > 2, count(*) FILTER (WHERE application_name LIKE '%listener') \
         FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname='encrypted'";
    let mut seen = String::new();
    // It connects as soon as it is polled.
    for _ in 0..2_000 {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut watching).await.is_err(), "nothing was settled");
        seen = SERVER.psql("postgres", connections);
        if seen.ends_with("|1") {
            break;
        }
    }
    assert_eq!(seen, "t|t|1");
    assert_eq!(store.complete(&held(&key("a"), 1), &done(b"paid")).await.unwrap(), Settled::Done);
    watching.await;
}

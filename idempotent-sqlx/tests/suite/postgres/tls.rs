//! By TLS, and not by mistake without.
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use idempotent_core::StoreErrorKind::{Denied, Schema};
use idempotent_core::{Call, Claim, Executor, Identity, Scene, Settled, Store};
use idempotent_sqlx::{Inbox, PostgresStore};
use idempotent_testkit::servers::PostgresServer;
use sqlx::Postgres;

use crate::postgres::place::server;
use crate::postgres::setup::refused;
use crate::support::{done, held, key, request};

type Failure = Box<dyn std::error::Error + Send + Sync>;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start_with_tls);

fn url(mode: &str, ca: &Path) -> String {
    format!("{}?sslmode={mode}&sslrootcert={}", SERVER.url(), ca.display())
}

#[tokio::test]
async fn a_server_with_tls_is_used_by_its_authority() {
    let ca = SERVER.certificates().ca();
    let by_name = url("verify-full", &ca).replace("127.0.0.1", "localhost");
    for url in [url("verify-full", &ca), by_name, url("verify-ca", &ca), format!("{}?sslmode=require", SERVER.url())] {
        PostgresStore::builder(url).create(true).open().await.unwrap();
    }
}

/// The store's own connections, those of transactions, and the one that is told what was settled.
#[tokio::test]
async fn every_connection_of_a_store_goes_by_tls() {
    let database = SERVER.database("encrypted");
    let url = url("verify-full", &SERVER.certificates().ca()).replace(&SERVER.url(), &database);
    let store = PostgresStore::builder(url).create(true).open().await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
    let mut watching = store.abilities().watch.unwrap().watch(&key("a"));
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

#[tokio::test]
async fn n58_a_certificate_of_an_unknown_authority_is_refused_with_the_way_to_name_it() {
    let words = ["TLS failed", "invalid peer certificate", "sslmode", &SERVER.address()];
    let other = PostgresStore::open(url("verify-full", &SERVER.certificates().other_ca())).await;
    refused(other, Denied, &words);
    let system = PostgresStore::open(format!("{}?sslmode=verify-full", SERVER.url())).await;
    refused(system, Denied, &[&words[..], &["UnknownIssuer"]].concat());
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_asked_for() {
    let open = PostgresStore::open(format!("{}?sslmode=require", server().url())).await;
    refused(open, Denied, &["TLS failed", "does not support TLS", &server().address()]);
}

#[tokio::test]
async fn certificates_that_would_not_be_used_are_refused() {
    let ca = SERVER.certificates().ca();
    for mode in ["prefer", "require"] {
        refused(PostgresStore::open(url(mode, &ca)).await, Schema, &["`sslrootcert`", "add `sslmode=verify-full`"]);
    }
    let missing = PostgresStore::open(url("verify-full", Path::new("no/such/ca.pem"))).await;
    refused(missing, Schema, &["`sslrootcert`", "cannot be read", "No such file"]);
}

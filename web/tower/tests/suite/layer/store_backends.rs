//! The basic behaviour on each kind of store.
use idempotent_core::{Executor, MemoryStore, Store, SystemClock, Tokens};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_sqlx::SqliteStore;
use idempotent_tower::IdempotencyLayer;

use crate::layer::support::{Shop, ask, by_user, order_by};

async fn basics(store: impl Store) {
    let executor = Executor::new(store);
    let shop = Shop::behind(IdempotencyLayer::new(executor.clone(), by_user()), SystemClock::default());
    let first = order_by("a").user("ann").send(&shop).await;
    first.ran(1);
    let replay = order_by("a").user("ann").send(&shop).await;
    replay.replays(1);
    assert_eq!(
        (first.status, first.header("location"), &first.body),
        (replay.status, replay.header("location"), &replay.body)
    );
    order_by("a").user("ann").body("other").send(&shop).await.problem(422, "key-reused");
    order_by("a").user("bob").send(&shop).await.ran(2);
    order_by("b").with("x-status", "500").send(&shop).await;
    order_by("b").send(&shop).await.ran(4);

    let slow = order_by("c").with("x-sleep", "60000");
    let (asked, router) = (slow.clone(), shop.clone());
    let running = tokio::spawn(async move { asked.send(&router).await });
    while shop.runs() < 5 {
        tokio::task::yield_now().await;
    }
    slow.send(&shop).await.problem(409, "in-flight");
    running.abort();

    let large = order_by("d").with("x-size", (1024 * 1024 - 2).to_string());
    large.send(&shop).await.ran(6);
    assert_eq!(large.send(&shop).await.replays(6).body.len(), 1 << 20, "as large as may be");

    let params = Shop::behind(IdempotencyLayer::by_param(executor.clone(), by_user()), SystemClock::default());
    order_by("any").send(&params).await.ran(1);
    let told = order_by("any").send(&params).await;
    assert!((1..=5).contains(&told.problem(409, "duplicate-request").retry_after().unwrap()));

    let tokens = Tokens::new(&executor);
    let token = tokens.issue(idempotent_tower::Caller::anonymous()).await.unwrap();
    let form = Shop::behind(IdempotencyLayer::by_token(tokens, by_user()), SystemClock::default());
    let submit = ask(http::Method::POST, "/orders").with("x-idempotent-token", token.as_str());
    submit.clone().with("x-status", "500").send(&form).await;
    submit.send(&form).await.ran(2);
    submit.send(&form).await.problem(409, "duplicate-request");
    submit.user("eve").send(&form).await.problem(409, "unknown-token");
}

#[tokio::test]
async fn the_basics_hold_on_memory() {
    basics(MemoryStore::new()).await;
}

#[tokio::test]
async fn the_basics_hold_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    basics(SqliteStore::open(dir.path().join("records.db").to_str().unwrap()).await.unwrap()).await;
}

#[tokio::test]
async fn the_basics_hold_on_redis() {
    let server = RedisServer::start();
    basics(RedisStore::connect(server.url()).await.unwrap()).await;
}

//! The commands `order list` and `order show`.
use std::sync::Arc;

use idempotent::key::DisplayKey;
use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Identity, Json, Outcome, Policy, Rejection, Scene, Store};
use idempotent_harness::servers::{MariaDbServer, PostgresServer, RedisServer};

use crate::support::{done, run, sqlite_url};

/// Calls a number of a stream. The calls of the stream `bob` fail permanently.
async fn call(executor: &Executor, stream: &str, number: u64) -> Option<Outcome> {
    let call = Call::new(Identity::new(Scene::Mq, "points", &(stream, number))).sequence(stream, number);
    let call = if stream == "bob" { call.policy(Policy::new().display_key(DisplayKey::Full)) } else { call };
    let handler = Handler::<DefaultReply, Json, _, _>::new(async || match stream {
        "bob" => Err(Rejection::Mismatch),
        _ => Ok(number),
    });
    Outcome::capture(executor.run(call, handler.permanent(|_| true))).await.1
}

/// Writes the streams `ann`, whose number 1 was not delivered, `bob`, whose number 1 has failed, and `eve`, in which nothing waits.
pub(crate) async fn fill(store: &Arc<dyn Store>) {
    let executor = Executor::new(store.clone());
    executor.register(&Identity::new(Scene::Mq, "points", "ann"), [1, 2, 3, 4]).await.unwrap();
    assert!(matches!(call(&executor, "ann", 2).await, Some(Outcome::Waiting { .. })));
    call(&executor, "bob", 1).await;
    assert!(matches!(call(&executor, "bob", 2).await, Some(Outcome::Held { .. })));
    assert_eq!(call(&executor, "eve", 7).await, Some(Outcome::Ran));
}

pub(crate) fn key(stream: &str, number: u64) -> String {
    Identity::new(Scene::Mq, "points", &(stream, number)).key("idempotent").unwrap().as_str().to_owned()
}

fn show(url: &str, stream: &str) -> serde_json::Value {
    serde_json::from_str(&done(url, &["order", "show", "--scope", "points", "--part", stream])).unwrap()
}

fn are_shown(url: &str) {
    let ann = show(url, "ann");
    assert_eq!((&ann["next"], &ann["blocked_by_number"], ann.get("last")), (&2.into(), &1.into(), None), "{ann}");
    assert_eq!((&ann["waiting"][2]["from"], &ann["waiting"][2]["to"]), (&3.into(), &4.into()), "{ann}");
    let bob = show(url, "bob");
    assert_eq!((&bob["last"], &bob["next"]), (&1.into(), &2.into()), "{bob}");
    assert_eq!((&bob["blocked_by"], &bob["blocked_by_state"]), (&key("bob", 1).into(), &"failed".into()), "{bob}");
    let eve = show(url, "eve");
    assert_eq!((&eve["last"], eve.get("next"), &eve["last_key"]), (&7.into(), None, &key("eve", 7).into()), "{eve}");

    let advised = |stream: &str| run(url, &["order", "show", "--scope", "points", "--part", stream, "-o", "table"]);
    assert!(
        advised("ann").err.contains("number 2 waits for number 1, which was not delivered"),
        "{:?}",
        advised("ann")
    );
    let bob = advised("bob");
    let command = format!("`idempotent forget '{}'`", key("bob", 1));
    assert!(bob.err.contains(&command) && bob.out.contains(" (failed, bob / 1)\n"), "{bob:?}");
    assert!(advised("ann").out.contains("expected   3 to 4\n"));
    let absent = run(url, &["order", "show", "--scope", "points", "--part", "dan"]);
    assert!(absent.code == 4 && absent.err.contains("has no order"), "{absent:?}");
}

fn are_listed(url: &str) {
    let list = |more: &[&str]| run(url, &[&["order", "list"], more].concat());
    let next = |more: &[&str]| {
        let listed = list(more);
        assert_eq!(listed.code, 0, "{listed:?}");
        let lines = listed.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut shown: Vec<_> = lines.map(|line| (line["last"].as_u64(), line["next"].as_u64())).collect();
        shown.sort_unstable();
        shown
    };
    assert_eq!(next(&[]), [(None, Some(2)), (Some(1), Some(2))]);
    assert_eq!(next(&["--all"]), [(None, Some(2)), (Some(1), Some(2)), (Some(7), None)]);
    assert_eq!(next(&["--limit", "1"]).len(), 1);
    assert!(list(&["--limit", "1"]).err.contains("raise --limit or --budget"));
    assert!(!list(&["--limit", "2"]).err.contains("raise"));
    assert!(next(&["--all", "--budget", "1"]).len() == 1 && list(&["--budget", "1"]).err.contains("--budget"));
    let table = list(&["-o", "table"]).out;
    assert!(table.contains("number 1, not delivered") && table.contains(&key("bob", 1)), "{table}");
    assert!(table.starts_with("SCOPE ") && table.contains("\npoints "), "{table}");
    // The calls of `bob` store the readable part of their keys.
    assert!(table.contains(&format!("{} (failed, bob / 1)", key("bob", 1))), "{table}");
    let bob = list(&[]).out.lines().find(|line| line.contains("blocked_by_display")).unwrap().to_owned();
    assert!(bob.contains("\"scope\":\"points\"") && bob.contains("\"blocked_by_state\":\"failed\""), "{bob}");
}

#[tokio::test]
async fn streams_in_sqlite_are_listed_and_shown() {
    let (_folder, url) = sqlite_url();
    fill(&idempotent::connect(&url).await.unwrap()).await;
    are_shown(&url);
    are_listed(&url);
}

#[tokio::test]
async fn more_streams_than_a_page_has_are_listed_up_to_the_limit_and_unreadable_ones_are_an_error() {
    let (_folder, url) = sqlite_url();
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    for stream in 0..1_001 {
        executor.register(&Identity::new(Scene::Mq, "points", &stream), [1, 2]).await.unwrap();
    }
    let list = |limit: &str| run(&url, &["order", "list", "--all", "--limit", limit]);
    let [all, cut] = ["1100", "1000"].map(list);
    assert!(all.code == 0 && all.out.lines().count() == 1_001 && !all.err.contains("raise"), "{}", all.err);
    assert!(cut.out.lines().count() == 1_000 && cut.err.contains("raise"), "{}", cut.err);
    let database = sqlx::SqlitePool::connect(&url).await.unwrap();
    let damage =
        "UPDATE idempotent_record_lines SET line = X'00' WHERE id IN (SELECT id FROM idempotent_record_lines LIMIT 2)";
    sqlx::query(damage).execute(&database).await.unwrap();
    database.close().await;
    let damaged = list("1100");
    assert!(damaged.code != 0 && damaged.err.contains("2 streams have no readable order table"), "{}", damaged.err);
}

#[tokio::test]
async fn streams_in_postgres_are_listed_and_shown() {
    let server = PostgresServer::start();
    fill(&idempotent::connect(server.url()).create(true).await.unwrap()).await;
    are_shown(&server.url());
    are_listed(&server.url());
}

#[tokio::test]
async fn streams_in_mariadb_are_listed_and_shown() {
    let server = MariaDbServer::start();
    fill(&idempotent::connect(server.url()).create(true).await.unwrap()).await;
    are_shown(&server.url());
    are_listed(&server.url());
}

#[tokio::test]
async fn streams_in_redis_are_shown_and_a_listing_is_refused_with_the_remedy() {
    let server = RedisServer::start();
    fill(&idempotent::connect(server.url()).await.unwrap()).await;
    are_shown(&server.url());
    let refused = run(&server.url(), &["order", "list"]);
    assert!(refused.code == 5 && refused.err.contains("name a stream by `idempotent order show`"), "{refused:?}");
    for command in ["list", "show"] {
        let help = done("", &["order", command, "--help"]);
        assert!(help.contains(&format!("  idempotent order {command} ")), "{help}");
    }
}

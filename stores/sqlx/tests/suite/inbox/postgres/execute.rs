//! Runs whose whole effect is one statement.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Call, Claim, ClaimRequest, Clock, Executor, FencingToken, Fingerprint, Outcome, Rejection, StateKind, Store,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_sqlx::{Inbox, PostgresStore};
use sqlx::{Postgres, Row};
use tokio::task::JoinSet;

use super::backend::at_level;
use super::commits::proxied;
use super::fixture::{Place, server};
use super::world::{Own, World};
use crate::inbox::{Failure, call, key, released, request};
use crate::support::stopped_clock;

const INSERT: &str = "INSERT INTO effects(name) SELECT $1 FROM claimed";

/// Executes the effect `name` with the inbox.
async fn execute(
    world: &World,
    inbox: &Inbox<Postgres>,
    call: Call,
    name: &str,
) -> (Result<u64, Failure>, Option<Outcome>) {
    Outcome::capture(inbox.execute(call, sqlx::query(world.sql(INSERT)).bind(name))).await
}

async fn run(world: &World, name: &str) -> (Result<u64, Failure>, Option<Outcome>) {
    execute(world, &world.inbox, call(name), name).await
}

#[tokio::test]
async fn effect_and_record_are_one_statement_and_a_duplicate_gets_the_number_of_rows() {
    let world = World::new().await;
    for inbox in [&world.inbox, &world.leased] {
        let name = format!("{inbox:?}").contains("Leased").to_string();
        for expected in [Outcome::Ran, Outcome::Replayed] {
            let (answer, outcome) = execute(&world, inbox, call(&name), &name).await;
            assert_eq!((answer.unwrap(), outcome), (1, Some(expected)), "{name}");
        }
        assert_eq!(world.effects(&name).await, 1);
        // A handler of the same key receives the same value.
        let value = world.inbox.run(call(&name), async |_: Own| Ok::<u64, Failure>(0)).await.unwrap();
        assert_eq!(value, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_one_round_trip() {
    let (world, proxy) = (World::new().await, Proxy::start(&server().address()).await);
    // A connection of the store, because sqlx tests each connection that returns to its pool. The proxy passes nothing but its
    // statements.
    let store = PostgresStore::builder(world.place.url.replace(&server().address(), &proxy.address()));
    let store = store.table(&world.place.table).connections(1).listening(false).connect().await.unwrap();
    let inbox = Inbox::<Postgres>::new(&Executor::new(store));
    // The first run prepares the statement.
    execute(&world, &inbox, call("warm"), "warm").await.0.unwrap();
    for name in ["a", "b"] {
        let before = proxy.passed().requests;
        execute(&world, &inbox, call(name), name).await.0.unwrap();
        assert_eq!(proxy.passed().requests - before, 1);
    }
}

#[tokio::test]
async fn the_effect_can_store_the_fencing_token_of_its_run() {
    let world = World::new().await;
    let insert = "INSERT INTO effects(name) SELECT fencing::text FROM claimed";
    for (inbox, name) in [(&world.inbox, "a"), (&world.leased, "b")] {
        let rows = inbox.execute::<Failure>(call(name), sqlx::query(world.sql(insert))).await.unwrap();
        assert_eq!(rows, 1);
        let record = world.store.peek(&key(name)).await.unwrap().unwrap();
        let FencingToken(number) = record.fencing;
        assert_eq!(world.effects(&number.to_string()).await, 1);
    }
}

#[tokio::test]
async fn a_statement_that_fails_leaves_neither_effect_nor_record_and_may_run_again() {
    let world = World::new().await;
    let divides = world.sql("INSERT INTO effects(name) SELECT (1/$1::int)::text FROM claimed");
    let (answer, outcome) = Outcome::capture(world.inbox.execute(call("a"), sqlx::query(divides).bind(0))).await;
    assert!(matches!(answer, Err(Failure::Sql)), "{answer:?}");
    released(outcome);
    assert!(world.store.peek(&key("a")).await.unwrap().is_none());

    // A row that is there twice fails at the commit.
    run(&world, "twice").await.0.unwrap();
    let (answer, outcome) = execute(&world, &world.inbox, call("b"), "twice").await;
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::RolledBack { .. }))), "{answer:?}");
    released(outcome);
    assert_eq!(execute(&world, &world.inbox, call("b"), "b").await.1, Some(Outcome::Ran));
    assert_eq!((world.effects("twice").await, world.effects("b").await), (1, 1));
}

#[tokio::test]
async fn a_statement_of_another_form_is_refused_with_the_rule() {
    let world = World::new().await;
    for sql in [
        "INSERT INTO effects(name) VALUES ($1)",
        "SELECT 1 FROM claimed",
        "DELETE FROM effects USING claimed;",
        "COMMIT",
        "ROLLBACK",
        "INSERT INTO effects(name) SELECT 'a' FROM claimed; COMMIT",
    ] {
        let refused = world.inbox.execute::<Box<dyn std::error::Error>>(call("a"), sqlx::query(world.sql(sql))).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("one INSERT, UPDATE or DELETE that reads from `claimed`"), "{error}");
    }
    assert!(world.store.peek(&key("a")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_effect_that_ignores_the_claim_is_not_repeated() {
    let world = World::new().await;
    let ignores = "INSERT INTO effects(name) SELECT 'a' WHERE (SELECT count(*) FROM claimed) < 2";
    for expected in [Outcome::Ran, Outcome::Replayed] {
        let executed = world.inbox.execute::<Failure>(call("a"), sqlx::query(world.sql(ignores)));
        let (answer, outcome) = Outcome::capture(executed).await;
        assert_eq!((answer.unwrap(), outcome), (1, Some(expected)));
        // The next claim does not look at the record first.
        world.store.claim(&request("other")).await.unwrap();
    }
    assert_eq!(world.effects("a").await, 1);
    let mut holder = world.pool.begin().await.unwrap();
    world.store.claim_in(&mut holder, &request("b")).await.unwrap();
    let busy = world.inbox.execute::<Failure>(call("b"), sqlx::query(world.sql(&ignores.replace("'a'", "'b'"))));
    assert!(matches!(busy.await, Err(Failure::Rejected(Rejection::InFlight { .. }))));
    assert_eq!(world.effects("b").await, 0);
}

#[tokio::test]
async fn a_key_in_another_transaction_is_in_flight_and_has_no_effect() {
    let world = World::new().await;
    let mut holder = world.pool.begin().await.unwrap();
    let claim = world.store.claim_in(&mut holder, &request("a")).await.unwrap();
    assert!(matches!(claim, Claim::Acquired(_)));
    let (answer, _) = run(&world, "a").await;
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::InFlight { .. }))), "{answer:?}");
    assert_eq!(world.effects("a").await, 0);
    holder.rollback().await.unwrap();
    assert_eq!(run(&world, "a").await.1, Some(Outcome::Ran));
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_in_a_transaction() {
    let place = Place::new();
    let clock = stopped_clock();
    let world = World::new().await;
    let shared: Arc<dyn Clock> = clock.clone();
    let store = place.builder().clock(shared).create(true).connect().await.unwrap();
    let inbox = Inbox::<Postgres>::new(&Executor::new(store.clone()));
    let abandoned = ClaimRequest { lease: Duration::from_secs(1), ..request("a") };
    assert!(matches!(store.claim(&abandoned).await.unwrap(), Claim::Acquired(_)));
    let (answer, _) = execute(&world, &inbox, call("a"), "a").await;
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::InFlight { .. }))), "{answer:?}");
    clock.jump(Duration::from_secs(2));
    assert_eq!(execute(&world, &inbox, call("a"), "a").await.1, Some(Outcome::Ran));
    assert_eq!(execute(&world, &inbox, call("a"), "a").await.1, Some(Outcome::Replayed));
    // The clock of the store is the last parameter.
    assert_eq!(execute(&world, &inbox, call("b"), "b").await.1, Some(Outcome::Ran));
    let record = store.peek(&key("b")).await.unwrap().unwrap();
    assert_eq!((record.state.kind(), record.updated_at), (StateKind::Consumed, clock.wall()));
    assert_eq!((world.effects("a").await, world.effects("b").await), (1, 1));
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused() {
    let world = World::new().await;
    let with = |payload: u8| call("a").fingerprint(Ok(Fingerprint::of_bytes([payload])));
    assert_eq!(execute(&world, &world.inbox, with(1), "a").await.1, Some(Outcome::Ran));
    assert_eq!(execute(&world, &world.inbox, with(1), "a").await.1, Some(Outcome::Replayed));
    let (answer, _) = execute(&world, &world.inbox, with(2), "a").await;
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::Mismatch))), "{answer:?}");
    assert_eq!(world.effects("a").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_lost_response_has_its_effect_once() {
    let (proxy, place) = proxied().await;
    let world = World::at(place, 4).await;
    run(&world, "warm").await.0.unwrap();
    for (number, fault) in [Fault::CutAfterApply, Fault::CutBeforeSend, Fault::CutMidReply].into_iter().enumerate() {
        for copy in 0..4 {
            let name = format!("lost {number} {copy}");
            proxy.fail_next_with(&name, fault);
            let (answer, outcome) = run(&world, &name).await;
            assert_eq!(proxy.disarm(), 0, "{name}: the fault struck");
            assert_eq!((answer.unwrap(), outcome), (1, Some(Outcome::Ran)), "{fault:?}");
            assert_eq!(run(&world, &name).await.1, Some(Outcome::Replayed), "{fault:?}");
            assert_eq!(world.effects(&name).await, 1, "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_key_has_its_effect_once_at_every_isolation_level() {
    const KEYS: usize = 20;
    for level in ["read committed", "repeatable read", "serializable"] {
        let world = Arc::new(at_level(level).await);
        let mut runs = JoinSet::new();
        for number in 0..KEYS * 8 {
            let world = world.clone();
            runs.spawn(async move {
                let name = format!("k{}", number % KEYS);
                let done = async || match number / KEYS % 2 {
                    0 => run(&world, &name).await.0.is_ok(),
                    _ => {
                        let effect =
                            async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, &name).await.map(|()| 1_u64)?);
                        world.inbox.run(call(&name), effect).await.is_ok()
                    }
                };
                while !done().await {
                    tokio::task::yield_now().await;
                }
            });
        }
        runs.join_all().await;
        for number in 0..KEYS {
            assert_eq!(world.effects(&format!("k{number}")).await, 1, "{level}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_anywhere_has_effect_and_record_or_neither() {
    let world = World::new().await;
    for polls in 0..40 {
        let name = format!("d{polls}");
        let mut run = Box::pin(run(&world, &name));
        // Each poll follows an event of the run.
        let mut left = polls;
        std::future::poll_fn(|cx| {
            if left == 0 {
                return std::task::Poll::Ready(());
            }
            left -= 1;
            run.as_mut().poll(cx).map(drop)
        })
        .await;
        drop(run);
    }
    for polls in 0..40 {
        let name = format!("d{polls}");
        // A statement on its way takes effect as a whole, before or after this run.
        while run(&world, &name).await.0.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.effects(&name).await, 1, "{name}");
    }
}

#[tokio::test]
async fn an_update_reports_all_rows_that_it_changed() {
    let world = World::new().await;
    for name in ["x1", "x2", "y"] {
        run(&world, name).await.0.unwrap();
    }
    let update = "UPDATE effects SET name = name || '!' FROM claimed WHERE name LIKE $1";
    for expected in [Outcome::Ran, Outcome::Replayed] {
        let executed = world.inbox.execute::<Failure>(call("u"), sqlx::query(world.sql(update)).bind("x%"));
        let (answer, outcome) = Outcome::capture(executed).await;
        assert_eq!((answer.unwrap(), outcome), (2, Some(expected)));
    }
    let delete = "DELETE FROM effects USING claimed WHERE name = 'nothing'";
    assert_eq!(world.inbox.execute::<Failure>(call("v"), sqlx::query(world.sql(delete))).await.unwrap(), 0);
    let left = sqlx::query(world.sql("SELECT count(*) FROM effects WHERE name LIKE 'x_!'"));
    assert_eq!(left.fetch_one(&world.other).await.unwrap().get::<i64, _>(0), 2);
}

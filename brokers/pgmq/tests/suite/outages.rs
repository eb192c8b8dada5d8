//! A killed server, an address that moves, a dropped queue, and a long handler.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_harness::proxy::Proxy;
use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind, Settlement, Source, SourceErrorKind};
use idempotent_pgmq::{PgmqPublisher, PgmqSource};
use sqlx::AssertSqlSafe;

use crate::world::{Database, World, counting, gated, ms, one, pgmq_url, retry, settle, until};

#[tokio::test]
async fn held_and_delayed_messages_survive_a_killed_server_and_run_once() {
    let world = World::of(Database::alone().await).await;
    let (handling, runs) = counting();
    let mut source = world.source().await;
    let settler = source.settler();
    for body in ["\"delayed\"", "\"held\""] {
        world.send(body).await;
    }
    let delayed = one(&mut source).await;
    settle(&settler, &delayed, retry(ms(300))).await;
    let held = one(&mut source).await;
    world.database.server.kill();
    let lost = settler.settle(&held.0, &held.1, &Settlement::Ack).await.unwrap_err();
    assert_eq!(lost.kind(), SourceErrorKind::Transient, "{lost}");
    world.database.server.restart();
    drop((held, source));
    let running = world.run(world.source().await, handling);
    until("both are acknowledged", async || world.open().await == 0).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}

/// The number of messages that a queue has had.
const SENT: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM pgmq.q_orders_msg_id_seq";

/// The address leads to another server while connections to the demoted one stay open.
#[tokio::test]
async fn a_consumer_and_a_publisher_follow_the_address_of_a_demoted_primary() {
    let (old, mut new) = (World::of(Database::alone().await).await, Database::alone().await);
    let name = old.database.name.clone();
    new.server.psql("postgres", &format!("ALTER DATABASE {} RENAME TO {name}", new.name));
    new.url = new.server.url_of(&name);
    let new = World::of(new).await;
    drop((old.source().await, new.source().await));
    let between = Proxy::start(&old.database.address()).await;
    let url = pgmq_url(&old.database.url_at(&between.address()));
    let (handling, runs) = counting();
    let running = old.run(PgmqSource::connect(&*url, "orders").await.unwrap(), handling);
    let (publisher, mut number) = (PgmqPublisher::new(&*url), 0);
    let mut publish = async || {
        number += 1;
        publisher.publish(&[OutboundMessage::new("orders", format!("m-{number}"), "1")]).await.remove(0)
    };
    publish().await.unwrap();
    until("the first message ran", async || runs.load(SeqCst) == 1 && old.open().await == 0).await;
    let demote = ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"];
    for statement in demote {
        old.database.server.psql("postgres", statement);
    }
    between.move_to(&new.database.address());
    until("the publisher follows", async || publish().await.is_ok() && new.number(SENT).await > 0).await;
    until("the consumer follows", async || runs.load(SeqCst) > 1).await;
    running.ended().await.unwrap();
}

/// The codes are raised by a trigger, so that older servers have all of them.
#[tokio::test]
async fn a_session_that_the_server_ended_is_named_and_no_open_connection_is_used_again() {
    let world = World::new().await;
    world.execute("SELECT pgmq.create('orders')").await;
    let publisher = PgmqPublisher::new(world.url());
    let publish = async |id: &str| publisher.publish(&[OutboundMessage::new("orders", id, "1")]).await.remove(0);
    let sessions = format!(
        "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'idempotent'",
        world.database.name
    );
    let sessions = async || {
        let pids = sqlx::query_scalar::<_, Option<Vec<i32>>>(AssertSqlSafe(sessions.clone()));
        pids.fetch_one(&world.client).await.unwrap().unwrap_or_default()
    };
    for (code, remedy) in
        [("25P03", "raise this timeout"), ("25P04", "raise this timeout"), ("57P05", "the server ended the connection")]
    {
        let (first, second) = tokio::join!(publish("first"), publish("second"));
        first.and(second).unwrap();
        let before = sessions().await;
        assert_eq!(before.len(), 2, "two connections are open");
        world
            .execute(&format!(
                "CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''ended'' \
                 USING ERRCODE = ''{code}''; END'; CREATE TRIGGER ends BEFORE INSERT ON pgmq.q_orders EXECUTE FUNCTION ends()"
            ))
            .await;
        let error = publish("refused").await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
        assert!(error.to_string().contains(code) && error.to_string().contains(remedy), "{error}");
        world.execute("DROP TRIGGER ends ON pgmq.q_orders; DROP FUNCTION ends").await;
        until("all connections are closed", async || sessions().await.iter().all(|pid| !before.contains(pid))).await;
    }
}

#[tokio::test]
async fn a_consumer_ends_with_the_reason_after_its_queue_was_dropped() {
    let world = World::new().await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("1").await;
    until("the message ran", async || runs.load(SeqCst) == 1).await;
    world.execute("SELECT pgmq.drop_queue('orders')").await;
    let error = running.ended_by_itself().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("create the queue"), "{error}");
}

#[tokio::test]
async fn a_long_handler_keeps_its_message() {
    let world = World::new().await;
    let (handling, begun, gate) = gated();
    let running = world.run(world.source().await, handling);
    world.send("1").await;
    until("the handler runs", async || begun.load(SeqCst) == 1).await;
    let hidden = async || world.number("SELECT (extract(epoch FROM vt) * 1000000)::bigint FROM pgmq.q_orders").await;
    let mut last = hidden().await;
    for _ in 0..5 {
        until("the consumer extends the visibility timeout", async || hidden().await > last).await;
        last = hidden().await;
    }
    gate.close();
    until("the message is acknowledged", async || world.open().await == 0).await;
    running.ended().await.unwrap();
}

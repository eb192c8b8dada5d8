//! Unlogged and partitioned queues.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Settlement, Source};

use crate::world::{Database, World, ms, one, receive, retry, settle, until};

#[tokio::test]
async fn an_unlogged_queue_is_empty_after_a_crash_and_its_new_messages_are_others_under_the_same_numbers() {
    let world = World::of(Database::alone().await).await;
    world.execute("SELECT pgmq.create_unlogged('orders')").await;
    let mut before = world.source().await;
    world.send("1").await;
    let first = one(&mut before).await;
    world.database.server.kill();
    world.database.server.restart();
    until("the server answers", async || world.sent("3").await).await;
    let mut source = world.source().await;
    let held = one(&mut source).await;
    assert_eq!((&*held.0.body, &held.0.position.offset), (&b"3"[..], &first.0.position.offset));
    assert_ne!(held.0.id, first.0.id);
    settle(&source.settler(), &held, Settlement::Ack).await;
    assert_eq!(world.open().await, 0);
}

/// The table is that of `pgmq.create_partitioned`. The test creates the partitions, in place of the extension pg_partman.
#[tokio::test]
async fn messages_of_a_partitioned_queue_are_settled_in_each_way() {
    let world = World::new().await;
    world
        .execute(
            "CREATE TABLE pgmq.q_orders (msg_id BIGINT GENERATED ALWAYS AS IDENTITY, read_ct INT DEFAULT 0 NOT NULL, \
             enqueued_at TIMESTAMPTZ DEFAULT now() NOT NULL, last_read_at TIMESTAMPTZ, vt TIMESTAMPTZ NOT NULL, \
             message JSONB, headers JSONB) PARTITION BY RANGE (msg_id); \
             CREATE TABLE pgmq.q_orders_p1 PARTITION OF pgmq.q_orders FOR VALUES FROM (1) TO (3); \
             CREATE TABLE pgmq.q_orders_p2 PARTITION OF pgmq.q_orders DEFAULT; \
             CREATE TABLE pgmq.a_orders (msg_id BIGINT NOT NULL, read_ct INT DEFAULT 0 NOT NULL, \
             enqueued_at TIMESTAMPTZ DEFAULT now() NOT NULL, last_read_at TIMESTAMPTZ, \
             archived_at TIMESTAMPTZ DEFAULT now() NOT NULL, vt TIMESTAMPTZ NOT NULL, message JSONB, headers JSONB) \
             PARTITION BY RANGE (msg_id); \
             CREATE TABLE pgmq.a_orders_p1 PARTITION OF pgmq.a_orders DEFAULT; \
             INSERT INTO pgmq.meta (queue_name, is_partitioned, is_unlogged) VALUES ('orders', true, false)",
        )
        .await;
    let mut source = world.builder().visibility_timeout(ms(60_000)).archive().connect().await.unwrap();
    let settler = source.settler();
    for body in ["1", "2", "3", "4"] {
        world.send(body).await;
    }
    assert_eq!(world.number("SELECT count(*) FROM pgmq.q_orders_p2").await, 2);
    let mut held = receive(&mut source, 4).await;
    assert_eq!(held.len(), 4);
    settler.keep_alive(&held.iter().map(|(_, tag)| tag).collect::<Vec<_>>()).await.unwrap();
    for how in [retry(ms(1)), Settlement::GiveBack] {
        settle(&settler, &held.remove(0), how).await;
    }
    let letter = DeadLetter::because("no stock", Timestamp(9));
    settle(&settler, &held.remove(0), Settlement::DeadLetter(letter)).await;
    settle(&settler, &held.remove(0), Settlement::Ack).await;
    for _ in 0..2 {
        let again = one(&mut source).await;
        settle(&settler, &again, Settlement::Ack).await;
    }
    let counts = ["q_orders", "a_orders", "q_orders_dead"].map(|table| format!("SELECT count(*) FROM pgmq.{table}"));
    let [open, archived, dead] = counts;
    let counts = (world.number(&open).await, world.number(&archived).await, world.number(&dead).await);
    assert_eq!(counts, (0, 3, 1));
}

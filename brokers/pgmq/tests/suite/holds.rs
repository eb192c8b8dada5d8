//! Messages that several consumers have read: who may settle them, and how they are counted.
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, DeadLetters, Delivery, KeyFrom, Message, Messages, Settle, Settlement, Source, SourceErrorKind,
};
use idempotent_pgmq::{PgmqDeadLetters, PgmqTag};

use crate::world::{LIMIT, World, ms, one, retry, settle, until};

/// The environment variable with the URL, in a process that reads a message and holds it.
const HOLDER: &str = "IDEMPOTENT_PGMQ_HOLDER";

fn letter() -> Settlement {
    Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))
}

async fn refused(settler: &dyn Settle<PgmqTag>, held: &(Delivery, PgmqTag), how: &Settlement) {
    let error = settler.settle(&held.0, &held.1, how).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Gone, "{}: {error}", how.name());
}

#[tokio::test]
async fn a_consumer_whose_hold_is_over_settles_and_extends_nothing_that_another_one_holds() {
    let world = World::new().await;
    let (mut late, mut other) = (world.source().await, world.source().await);
    let (settler, others) = (late.settler(), other.settler());
    world.send("1").await;
    let lost = one(&mut late).await;
    // The visibility timeout ends, and the other consumer reads the message.
    let held = one(&mut other).await;
    assert_eq!((held.0.position.clone(), held.0.delivered), (lost.0.position.clone(), Some(2)));
    let hidden = "SELECT (extract(epoch FROM vt) * 1000000)::bigint FROM pgmq.q_orders";
    let end = world.number(hidden).await;
    for how in [Settlement::Ack, retry(ms(1)), letter(), Settlement::GiveBack] {
        refused(&*settler, &lost, &how).await;
    }
    settler.keep_alive(&[&lost.1]).await.unwrap();
    assert_eq!((world.open().await, world.number(hidden).await), (1, end), "the hold is unchanged");
    assert_eq!(PgmqDeadLetters::new(world.url(), "orders").count().await.unwrap(), 0);
    settle(&others, &held, Settlement::Ack).await;
    assert_eq!(world.open().await, 0);
    // The message needs nothing more.
    settle(&settler, &lost, Settlement::Ack).await;
}

#[tokio::test]
async fn a_settlement_that_is_repeated_after_a_lost_answer_has_its_effect_once() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("1").await;
    let held = one(&mut source).await;
    for _ in 0..2 {
        settle(&settler, &held, retry(ms(1))).await;
    }
    // A keep-alive that was under way does not hide the message again.
    settler.keep_alive(&[&held.1]).await.unwrap();
    refused(&*settler, &held, &Settlement::Ack).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered, held.0.first_at), (Some(2), Some(1), Some(Timestamp(1))));
    for _ in 0..3 {
        settle(&settler, &held, letter()).await;
    }
    assert_eq!(PgmqDeadLetters::new(world.url(), "orders").count().await.unwrap(), 1);
    refused(&*settler, &held, &Settlement::GiveBack).await;
}

#[tokio::test]
async fn only_deliveries_without_a_settlement_count() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("1").await;
    let hows = [retry(ms(1)), Settlement::GiveBack, retry(ms(1)), Settlement::GiveBack];
    for (deferrals, how) in hows.into_iter().enumerate() {
        let held = one(&mut source).await;
        assert_eq!(held.0.delivered, Some(1), "a deferral must not use up `max_deliveries`");
        assert_eq!(held.0.redelivered, deferrals > 0);
        settle(&settler, &held, how).await;
    }
    drop(one(&mut source).await);
    let (delivery, _) = one(&mut source).await;
    assert_eq!((delivery.delivered, delivery.attempt), (Some(2), Some(2)), "as after a crash");
}

#[tokio::test]
async fn a_closed_source_returns_the_messages_of_its_last_read() {
    let world = World::new().await;
    let mut source = world.builder().visibility_timeout(ms(3_600_000)).connect().await.unwrap();
    world.send("1").await;
    // The read continues, although its call is dropped.
    tokio::select! {
        biased;
        received = source.receive(5) => panic!("{:?}", received.map(drop)),
        () = std::future::ready(()) => {}
    }
    source.close().await;
    assert_eq!(
        world.number("SELECT count(*) FROM pgmq.q_orders WHERE read_ct = 1 AND vt <= clock_timestamp()").await,
        1
    );
}

/// PGMQ counts whole seconds.
#[tokio::test]
async fn a_visibility_timeout_is_rounded_up() {
    let world = World::new().await;
    world.source().await;
    for (timeout, seconds) in [(100_000, 100), (100_001, 101)] {
        world.send("1").await;
        let mut source = world.builder().visibility_timeout(ms(timeout)).connect().await.unwrap();
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8";
        let before = world.number(now).await;
        let _held = one(&mut source).await;
        let until = world.number("SELECT (extract(epoch FROM max(vt)) * 1000)::int8 FROM pgmq.q_orders").await;
        let range = before + seconds * 1_000..=world.number(now).await + seconds * 1_000;
        assert!(range.contains(&until), "{timeout}: {until} in {range:?}");
    }
}

#[tokio::test]
async fn two_consumers_share_the_messages_and_none_arrives_twice() {
    let world = World::new().await;
    // Long enough that a busy machine takes no message over.
    let builder = || world.builder().visibility_timeout(LIMIT * 2);
    let sources = [builder().connect().await.unwrap(), builder().connect().await.unwrap()];
    world.execute("SELECT pgmq.send_batch('orders', array_agg(to_jsonb(n))) FROM generate_series(1, 200) AS n").await;
    let runs = Arc::<AtomicU32>::default();
    let [first, second] = sources.map(|source| {
        let counted = runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
            counted.fetch_add(1, SeqCst);
            async { Ok::<_, String>(()) }
        });
        world.run(source, handling)
    });
    until("the queue is empty", async || world.open().await == 0).await;
    let (first, second) = (first.ended().await.unwrap(), second.ended().await.unwrap());
    assert_eq!((first.received + second.received, runs.load(SeqCst)), (200, 200), "{first:?} {second:?}");
}

#[tokio::test]
async fn acknowledged_messages_are_archived_on_request() {
    let world = World::new().await;
    let mut source = world.builder().archive().connect().await.unwrap();
    let settler = source.settler();
    world.send("17").await;
    let held = one(&mut source).await;
    for _ in 0..2 {
        settle(&settler, &held, Settlement::Ack).await;
    }
    let archived = "SELECT count(*) FROM pgmq.a_orders WHERE message = '17' AND read_ct = 1";
    assert_eq!((world.open().await, world.number(archived).await), (0, 1));
}

/// Not a test: a process that holds a message, and keeps the message alive until the process is killed.
#[tokio::test]
async fn holder_process() {
    let Ok(url) = std::env::var(HOLDER) else { return };
    let mut source = World::builder_at(url).connect().await.unwrap();
    let (settler, held) = (source.settler(), one(&mut source).await);
    println!("\nholding");
    loop {
        let _ = settler.keep_alive(&[&held.1]).await;
        tokio::time::sleep(ms(300)).await;
    }
}

fn signal(process: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn a_stopped_process_loses_its_message_and_does_not_take_the_message_back_when_it_continues() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("17").await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "holds::holder_process", "--nocapture"]).env(HOLDER, world.url());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let is_holding = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "holding")).await.unwrap();
    signal(&process, "-STOP");
    let held = one(&mut source).await;
    signal(&process, "-CONT");
    // The process extends its message again and again, and this consumer does not: the message returns to this consumer.
    let again = one(&mut source).await;
    settle(&settler, &again, Settlement::Ack).await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(is_holding, "the process has received the message");
    assert_eq!(again.0.delivered, held.0.delivered.map(|count| count + 1));
    assert_eq!(world.open().await, 0);
}

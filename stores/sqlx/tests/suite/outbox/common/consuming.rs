//! Consumers with an outbox as their log: recorded, run, confirmed, acknowledged.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_core::{Executor, MemoryStore, OnInFlight, Policy};
use idempotent_mq::{
    Consumer, Delivery, DeliveryResult, HandlerResult, KeyFrom, LoggedDelivery, Message, MessageLog, Messages,
    OUTBOX_HEADER, OutboundMessage, Position, SenderState, SetupError,
};
use idempotent_sqlx::{OutboxStatus, QueueOffset};
use tokio::sync::{Notify, Semaphore};

use super::backend;
use super::world::{World, message, resends};
use crate::outbox::broker::Says;
use crate::outbox::memory_queue::Line;

/// The plan of a handler: each run takes a permit, and the first runs fail.
#[derive(Clone)]
struct Work {
    runs: Arc<AtomicU32>,
    began: Arc<Notify>,
    gate: Arc<Semaphore>,
    failures: Arc<AtomicU32>,
}

impl Work {
    fn new(permits: usize, failures: u32) -> Self {
        let (runs, failures) = (Arc::default(), Arc::new(AtomicU32::new(failures)));
        Self { runs, began: Arc::default(), gate: Arc::new(Semaphore::new(permits)), failures }
    }

    async fn run(self) -> HandlerResult {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.began.notify_one();
        self.gate.acquire().await.unwrap().forget();
        let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => HandlerResult::Again { after: None, error: "told to".into() },
            Err(_) => HandlerResult::Done,
        }
    }

    fn count(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

fn executor() -> Executor {
    Executor::new(MemoryStore::new())
}

fn consumer(
    line: &Line,
    executor: &Executor,
    policy: Policy,
    work: &Work,
    log: Option<Arc<dyn MessageLog>>,
) -> Result<Consumer<Line>, SetupError> {
    let work = work.clone();
    let handling =
        Messages::raw().keyed(KeyFrom::message_id()).policy(policy).run(move |_: Message<()>| work.clone().run());
    let builder = Consumer::builder(line.clone(), "orders", executor);
    match log {
        Some(log) => builder.log(log).build(handling),
        None => builder.build(handling),
    }
}

fn start(world: &World, line: &Line, executor: &Executor, policy: Policy, work: &Work) -> tokio::task::JoinHandle<()> {
    let consumer = consumer(line, executor, policy, work, Some(Arc::new(world.outbox.clone()))).unwrap();
    tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() })
}

async fn sent(world: &World, id: &str, at: u64) {
    world.broker.say(Says::Lies(at));
    world.put(&[message(id)]).await;
    assert_eq!(world.round().await.sent, 1);
}

#[tokio::test]
async fn noted_first_then_run_then_confirmed_and_forgotten_and_only_then_acknowledged() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(0, 0));
    sent(&world, "a", 7).await;
    line.gate().forget_permits(usize::MAX);
    let running = start(&world, &line, &executor(), Policy::new(), &work);
    line.deliver(&world.stored("a").await, 7);
    work.began.notified().await;
    assert_eq!((world.notes().await, world.status("a").await), (1, OutboxStatus::Unconfirmed), "while it runs");
    work.gate.add_permits(1);
    // The acknowledgement does not get through.
    while world.status("a").await != OutboxStatus::Confirmed || world.notes().await > 0 {
        assert!(line.settled().is_empty());
        tokio::task::yield_now().await;
    }
    line.gate().add_permits(1);
    line.has_settled(1).await;
    assert_eq!(line.settled(), [("a".to_owned(), "ack")]);
    world.pass(100_000);
    assert_eq!(world.round().await.looked_at, 0, "never again");
    running.abort();
}

#[tokio::test]
async fn a_failed_run_is_no_longer_noted_and_its_message_comes_again() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(9, 1));
    let executor = executor();
    sent(&world, "a", 7).await;
    let running = start(&world, &line, &executor, Policy::new(), &work);
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(1).await;
    assert_eq!((world.notes().await, world.status("a").await), (0, OutboxStatus::Unconfirmed));
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(2).await;
    assert_eq!((world.notes().await, world.status("a").await), (0, OutboxStatus::Confirmed));
    // A duplicate of what is done, as after a resend that was too much.
    line.deliver(&world.stored("a").await, 8);
    line.has_settled(3).await;
    assert_eq!(line.settled().iter().map(|(_, how)| *how).collect::<Vec<_>>(), ["retry", "ack", "ack"]);
    assert_eq!((work.count(), world.notes().await), (2, 0));
    running.abort();
}

/// After a crash between the run and the confirm, only the store knows that the message is done. The duplicate
/// confirms.
#[tokio::test]
async fn a_duplicate_of_what_is_done_confirms_the_stub_and_removes_the_note() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(9, 0));
    let executor = executor();
    sent(&world, "a", 7).await;
    let alone = consumer(&line, &executor, Policy::new(), &work, None).unwrap();
    let alone = tokio::spawn(async move { alone.run(std::future::pending()).await.map(drop).unwrap() });
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(1).await;
    alone.abort();
    assert_eq!(world.status("a").await, OutboxStatus::Unconfirmed);
    let running = start(&world, &line, &executor, Policy::new(), &work);
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(2).await;
    assert_eq!((world.status("a").await, world.notes().await, work.count()), (OutboxStatus::Confirmed, 0, 1));
    running.abort();
}

#[tokio::test]
async fn ids_that_the_outbox_does_not_know_and_deliveries_without_one_are_no_error() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(9, 0));
    let running = start(&world, &line, &executor(), Policy::new(), &work);
    line.deliver(&message("somebody else's"), 1);
    line.push(Delivery::new(Position::of("orders"), Vec::new()).id("x".repeat(300)));
    line.push(Delivery::new(Position::of("orders"), Vec::new()));
    line.has_settled(3).await;
    assert_eq!(
        (work.count(), world.notes().await),
        (2, 0),
        "a message without an id has no key and becomes a dead letter"
    );
    running.abort();
}

const FORGED: &str = "00112233445566778899aabbccddeeff";

/// A command may have the same id as an event that its handler writes, and as any other message on its queue.
#[tokio::test]
async fn only_a_message_that_the_outbox_has_sent_confirms_its_stub() {
    let (world, line, executor) = (World::new().await, Line::new(), executor());
    let event = OutboundMessage::new("events", "payment-4711", "paid");
    let (outbox, pool, written) = (world.outbox.clone(), world.pool.clone(), event.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        let (outbox, pool, event) = (outbox.clone(), pool.clone(), written.clone());
        async move {
            let mut tx = pool.begin_with(backend::BEGIN).await.unwrap();
            outbox.enqueue(&mut tx, &event).await.unwrap();
            tx.commit().await.unwrap();
            HandlerResult::Done
        }
    });
    let builder = Consumer::builder(line.clone(), "orders", &executor).log(Arc::new(world.outbox.clone()));
    let consumer = builder.build(handling).unwrap();
    let running = tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() });
    let command = OutboundMessage::new("commands", "payment-4711", "pay");
    line.deliver(&command, 1);
    line.has_settled(1).await;
    assert_eq!(world.status("payment-4711").await, OutboxStatus::Unconfirmed, "the command's end is not the event's");
    assert_eq!(world.round().await.sent, 1);
    let stored = world.stored("payment-4711").await;
    line.deliver(&command, 2);
    line.deliver(&command.header(OUTBOX_HEADER, FORGED), 3);
    line.has_settled(3).await;
    assert_eq!((world.status("payment-4711").await, world.notes().await), (OutboxStatus::Unconfirmed, 0));
    let mut forged = world.receipts(&["payment-4711", "payment-4711", "payment-4711"]).await;
    let nonces = [FORGED, "", "not a nonce"].map(|nonce| (!nonce.is_empty()).then(|| nonce.into()));
    forged.iter_mut().zip(nonces).for_each(|(forged, nonce)| forged.nonce = nonce);
    assert_eq!(world.outbox.received(&forged).await.unwrap(), [SenderState::Foreign; 3]);
    // Also where a consumer concludes what the log called foreign, alone and with others.
    for how in [DeliveryResult::Done, DeliveryResult::DeadLettered] {
        join_all(forged.iter().map(|forged| world.outbox.concluded(forged, how))).await;
    }
    assert_eq!(world.status("payment-4711").await, OutboxStatus::Unconfirmed);
    line.deliver(&stored, 4);
    line.has_settled(4).await;
    assert_eq!(world.status("payment-4711").await, OutboxStatus::Confirmed);
    running.abort();
}

/// Its sender does not send it again: acknowledged, it would be gone if the run dies.
#[tokio::test]
async fn a_duplicate_in_flight_of_a_message_that_is_not_resent_is_retried() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(0, 0));
    let running = start(&world, &line, &executor(), Policy::new().on_in_flight(OnInFlight::Ack), &work);
    world.put(&[message("dead"), message("a")]).await;
    world.conclude("dead", 1, DeliveryResult::DeadLettered).await;
    let mut settled = 0;
    for (sent, end) in [
        (message("of another producer"), "retry"),
        (world.stored("dead").await, "retry"),
        (message("a"), "retry"),
        (world.stored("a").await, "ack"),
    ] {
        // The first delivery of "a" still runs.
        let runs = line.settled().iter().all(|(id, _)| *id != sent.id);
        line.deliver(&sent, 7);
        if runs {
            work.began.notified().await;
            line.deliver(&sent, 8);
        }
        settled += 1;
        line.has_settled(settled).await;
        assert_eq!(line.settled().last().unwrap(), &(sent.id, end));
    }
    assert_eq!(work.count(), 3);
    running.abort();
}

#[tokio::test]
async fn a_discarded_message_is_not_sent_again() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(9, 9));
    sent(&world, "a", 7).await;
    let running = start(&world, &line, &executor(), Policy::new().max_retries(0), &work);
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(1).await;
    assert_eq!(line.settled(), [("a".to_owned(), "dead letter")]);
    assert_eq!((world.status("a").await, world.notes().await), (OutboxStatus::Dead, 0));
    running.abort();
}

#[tokio::test]
async fn ack_in_flight_is_refused_without_an_outbox_and_the_remedy_is_named() {
    let acks = Policy::new().on_in_flight(OnInFlight::Ack);
    let refused = consumer(&Line::new(), &executor(), acks, &Work::new(0, 0), None).unwrap_err().to_string();
    for words in ["loses the message", "outbox", "`log`", "retry or wait"] {
        assert!(refused.contains(words), "{refused}");
    }
    let world = World::new().await;
    let log: Arc<dyn MessageLog> = Arc::new(world.outbox.clone());
    consumer(&Line::new(), &executor(), acks, &Work::new(0, 0), Some(log)).unwrap();
    // An executor has no outbox of its own.
    assert!(Executor::builder(MemoryStore::new()).policy(idempotent_core::Scene::Mq, acks).build().is_err());
}

#[tokio::test]
async fn a_duplicate_acked_in_flight_is_sent_again_once_its_owner_was_killed() {
    let (world, line, work) = (World::new().await, Line::new(), Work::new(0, 0));
    let executor = executor();
    let acks = Policy::new().on_in_flight(OnInFlight::Ack).lease(Duration::from_secs(2));
    sent(&world, "a", 7).await;
    let owner = start(&world, &line, &executor, acks, &work);
    line.deliver(&world.stored("a").await, 7);
    work.began.notified().await;
    line.deliver(&world.stored("a").await, 7);
    line.has_settled(1).await;
    assert_eq!(line.settled(), [("a".to_owned(), "ack")]);
    assert_eq!(
        (world.notes().await, world.status("a").await),
        (1, OutboxStatus::Unconfirmed),
        "the owner's note stays"
    );
    owner.abort();
    // No consumer holds the message: the broker considers the delivery done, and its worker has ended.
    work.gate.add_permits(9);
    let other = start(&world, &line, &executor, acks, &work);
    world.pass(20);
    assert_eq!(world.round().await.sent, 0, "noted as being consumed");
    let mut sent = world.broker.ids().len();
    let relay = world.relay().resends(resends().max_sends(1_000));
    let confirmed = async {
        while world.status("a").await != OutboxStatus::Confirmed {
            // While the owner's lease lives, the resent one is acknowledged, too; and sent again.
            world.pass(200);
            relay.round().await.unwrap();
            for at in sent..world.broker.ids().len() {
                line.deliver(&world.stored("a").await, 8 + at as u64);
                world.broker.say(Says::Lies(8 + at as u64));
                line.has_settled(at + 1).await;
            }
            sent = world.broker.ids().len();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), confirmed).await.expect("it runs in the end");
    assert_eq!((work.count(), world.notes().await), (2, 0));
    other.abort();
}

#[tokio::test]
async fn the_seen_position_of_a_queue_only_grows_and_a_passed_message_counts_as_lost() {
    let world = World::new().await;
    sent(&world, "lost", 7).await;
    let receipts = |at: u64, id: &str| {
        let delivery = Delivery::new(Position::of("orders").partition(0).offset(at), Vec::new()).id(id);
        LoggedDelivery::of(&delivery, u128::from(at)).unwrap()
    };
    world.pass(15);
    for (at, lost) in [(6, false), (9, true), (3, true)] {
        world.outbox.received(&[receipts(at, "x"), receipts(at - 1, "y"), receipts(at, "x")]).await.unwrap();
        world.outbox.concluded(&receipts(at, "x"), DeliveryResult::Failed).await.unwrap();
        world.broker.say(Says::Lies(7));
        assert_eq!(world.round().await.sent > 0, lost, "{at}");
        world.pass(200);
    }
    assert_eq!(world.stub("lost").await.place, Some(QueueOffset::of(7)));
}

#[tokio::test]
async fn a_postponed_delivery_removes_only_its_own_mark() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    for number in [1, 2] {
        world.outbox.received(&[world.receipt("a", number).await]).await.unwrap();
    }
    world.conclude("a", 2, DeliveryResult::Deferred).await;
    assert_eq!(world.notes().await, 1);
    world.conclude("a", 1, DeliveryResult::Deferred).await;
    assert_eq!(world.notes().await, 0);
}

#[tokio::test]
async fn a_void_message_stays_void_and_a_dead_one_that_was_done_after_all_is_confirmed() {
    let world = World::new().await;
    world.put(&[message("void"), message("dead")]).await;
    world.void("void").await;
    world.conclude("dead", 1, DeliveryResult::DeadLettered).await;
    assert_eq!(world.status("dead").await, OutboxStatus::Dead);
    for id in ["void", "dead"] {
        world.conclude(id, 1, DeliveryResult::Done).await;
    }
    assert_eq!((world.status("void").await, world.status("dead").await), (OutboxStatus::Void, OutboxStatus::Confirmed));
}

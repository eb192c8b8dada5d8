//! Handlers of many messages at once: each message is still claimed, counted and settled by itself.
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{BatchItem, Clock, Policy, StateKind};
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Message, MessageHandler, Messages, Position, Settlement};
use idempotent_testkit::{StoreOperation, VirtualClock};

use crate::broker::What;
use crate::world::{Job, World, ms, secs};

/// A handler that takes `takes`, and remembers who was given to it together.
#[derive(Clone)]
struct Bulk {
    clock: VirtualClock,
    takes: Duration,
    batches: Arc<Mutex<Vec<Batch>>>,
    says: fn(&str) -> HandlerResult,
}

/// Ids with the attempts that their leases tell.
type Batch = Vec<(String, u32)>;

impl Bulk {
    fn new(world: &World, takes: Duration) -> Self {
        Self { clock: world.clock.clone(), takes, batches: Arc::default(), says: |_| HandlerResult::Done }
    }

    fn saying(mut self, says: fn(&str) -> HandlerResult) -> Self {
        self.says = says;
        self
    }

    async fn run(self, given: Vec<BatchItem<Message<()>>>) -> Vec<HandlerResult> {
        let ids = given.iter().map(|given| (given.item.delivery.id.clone().unwrap(), given.lease.attempt()));
        let ids: Vec<_> = ids.collect();
        self.batches.lock().unwrap().push(ids.clone());
        self.clock.sleep_until(self.clock.now() + self.takes).await;
        ids.iter().map(|(id, _)| (self.says)(id)).collect()
    }

    fn of(&self, most: usize) -> MessageHandler {
        let bulk = self.clone();
        Messages::raw().keyed(KeyFrom::message_id()).run_batch(most, move |given| bulk.clone().run(given))
    }

    fn batches(&self) -> Vec<Vec<String>> {
        let batches = self.batches.lock().unwrap();
        batches.iter().map(|batch| batch.iter().map(|(id, _)| id.clone()).collect()).collect()
    }

    fn attempts(&self, id: &str) -> Vec<u32> {
        let batches = self.batches.lock().unwrap();
        batches.iter().flatten().filter(|(other, _)| other == id).map(|(_, attempt)| *attempt).collect()
    }
}

#[tokio::test]
async fn a_handler_of_batches_is_given_what_is_free_and_each_message_is_settled_by_itself() {
    let world = World::new();
    let policy = Policy::new().in_flight_delay(secs(1));
    let earlier = world.consume(policy, Job::ok(&world, ms(10)).by_id()).await;
    world.broker.send_all(&["b"]);
    world.clock.advance(ms(20)).await;
    earlier.kill().await;
    let elsewhere = world.consume(policy, Job::ok(&world, secs(5)).by_id()).await;
    world.broker.send_all(&["c"]);
    world.clock.advance(ms(10)).await;
    elsewhere.kill().await;
    let bulk = Bulk::new(&world, ms(10));
    let process = world.consume(policy, bulk.of(8)).await;
    world.broker.send_all(&["a", "b", "c", "d", "a"]);
    world.clock.advance(ms(50)).await;
    assert_eq!(bulk.batches(), [["a", "d"]]);
    let settled = |name: &str| world.broker.settlements(name);
    assert_eq!((settled("a"), settled("d")), (vec![Settlement::Ack; 2], vec![Settlement::Ack]));
    assert!(world.broker.is_acked("b"));
    let [Settlement::Retry(retry)] = &settled("c")[..] else { panic!("{:?}", settled("c")) };
    // Put off as long as the policy says: no attempt.
    assert_eq!((retry.after, retry.attempt), (secs(1), 1));
    let counts = process.counts();
    assert_eq!((counts.acked, counts.deferred, counts.received), (4, 1, 5));
}

#[tokio::test]
async fn a_handler_of_batches_is_not_called_for_duplicates_only() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(10));
    world.consume(Policy::new(), bulk.of(8)).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(ms(50)).await;
    world.broker.send_all(&["a", "b", "b"]);
    world.clock.advance(ms(50)).await;
    assert_eq!((bulk.batches(), world.broker.left()), (vec![vec!["a".to_owned(), "b".to_owned()]], 0));
}

#[tokio::test]
async fn the_batch_handlers_answer_for_a_message_applies_to_that_message() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(10)).saying(|id| match id {
        "again" => HandlerResult::Again { after: Some(secs(7)), error: "no stock".into() },
        "never" => HandlerResult::Never { reason: "no such customer".into() },
        _ => HandlerResult::Done,
    });
    let process = world.consume(Policy::new(), bulk.of(8)).await;
    world.broker.send_all(&["done", "again", "never"]);
    world.clock.advance(ms(20)).await;
    assert!(world.broker.is_acked("done"));
    let [retry] = &world.broker.retries("again")[..] else { panic!("one retry") };
    assert_eq!((retry.after, retry.attempt), (secs(7), 2));
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((dead.id.as_deref(), &*letter.reason), (Some("never"), "no such customer"));
    world.clock.advance(secs(7)).await;
    assert_eq!((bulk.attempts("again"), bulk.attempts("done")), (vec![1, 2], vec![1]));
    let counts = process.counts();
    assert_eq!((counts.acked, counts.dead_lettered), (1, 1));
}

#[tokio::test]
async fn messages_of_a_batch_that_keeps_failing_are_dead_lettered_after_their_own_runs() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(10)).saying(|_| HandlerResult::Again { after: None, error: "down".into() });
    let policy = Policy::new().max_retries(2).retry_delay(secs(1));
    world.consume(policy, bulk.of(8)).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(secs(60)).await;
    assert_eq!((bulk.attempts("a"), bulk.attempts("b")), (vec![1, 2, 3], vec![1, 2, 3]));
    let dead = world.broker.dead();
    let told: Vec<_> = dead.iter().map(|(dead, letter)| (dead.id.as_deref().unwrap(), letter.attempts)).collect();
    assert_eq!((told, world.broker.left()), (vec![("a", 3), ("b", 3)], 0));
    // Each by its own key: they do not collapse.
    assert!(dead[0].1.id.is_some() && dead[0].1.id != dead[1].1.id);
}

#[tokio::test]
async fn too_few_answers_and_a_panic_fail_the_batch_and_not_the_consumer() {
    let world = World::new();
    let runs = Arc::new(Mutex::new(0));
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run_batch(8, move |given: Vec<BatchItem<_>>| {
        let run = {
            let mut runs = counted.lock().unwrap();
            *runs += 1;
            *runs
        };
        async move {
            match run {
                1 => vec![HandlerResult::Done],
                2 => panic!("as told"),
                _ => vec![HandlerResult::Done; given.len()],
            }
        }
    });
    let process = world.consume(Policy::new().retry_delay(secs(1)), handling).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(secs(10)).await;
    assert_eq!((*runs.lock().unwrap(), world.broker.left()), (3, 0));
    let counts = process.counts();
    assert_eq!((counts.retried, counts.acked), (4, 2));
}

#[tokio::test]
async fn messages_that_arrive_while_a_batch_runs_form_the_next_batch_and_a_full_one_runs_concurrently() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(1));
    let more = |builder: idempotent_mq::ConsumerBuilder<_>| builder.concurrency(6);
    world.consume_by(Policy::new(), bulk.of(3), more).await;
    world.broker.send_all(&["a"]);
    world.clock.advance(ms(100)).await;
    world.broker.send_all(&["b", "c"]);
    world.clock.advance(ms(100)).await;
    assert_eq!(bulk.batches(), [["a"]]);
    world.broker.send_all(&["d"]);
    world.clock.advance(ms(50)).await;
    assert_eq!(bulk.batches(), [vec!["a"], vec!["b", "c", "d"]], "three messages are a full batch");
    world.broker.send_all(&["e"]);
    world.clock.advance(ms(50)).await;
    assert_eq!(bulk.batches().len(), 2);
    world.clock.advance(ms(2_000)).await;
    assert_eq!(bulk.batches(), [vec!["a"], vec!["b", "c", "d"], vec!["e"]]);
    assert_eq!(world.broker.left(), 0);
}

#[tokio::test]
async fn messages_of_one_key_of_order_are_not_in_one_batch() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(10));
    let run = bulk.clone();
    let order =
        KeyFrom::message("customer", |message: &Message<()>| message.delivery.id.clone().unwrap()[..1].to_owned());
    let handling = Messages::raw()
        .ordered_by(order)
        .keyed(KeyFrom::message_id())
        .run_batch(8, move |given| run.clone().run(given));
    world.consume(Policy::new(), handling).await;
    world.broker.send_all(&["a1", "a2", "b1", "a3"]);
    world.clock.advance(secs(1)).await;
    assert_eq!(bulk.batches(), [vec!["a1", "b1"], vec!["a2"], vec!["a3"]]);
}

#[tokio::test]
async fn a_batch_that_runs_may_end_and_what_waits_for_the_next_is_given_back_and_costs_no_attempt() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(2));
    let mut process = world.consume_by(Policy::new(), bulk.of(4), |builder| builder.grace(secs(5))).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(ms(100)).await;
    world.broker.send_all(&["c"]);
    world.clock.advance(ms(100)).await;
    process.stop().await;
    assert_eq!(world.broker.settlements("c"), [Settlement::GiveBack]);
    world.clock.advance(secs(2)).await;
    assert!(process.task.is_finished() && world.broker.is_acked("a") && world.broker.is_acked("b"));
    assert_eq!(world.record("c").await, None);
    let counts = process.task.await.unwrap().unwrap();
    assert_eq!((counts.acked, counts.given_back, counts.received), (2, 1, 3));
}

#[tokio::test]
async fn a_batch_with_claims_in_transit_is_released_and_its_keys_are_free() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(2));
    let mut process = world.consume_by(Policy::new(), bulk.of(4), |builder| builder.grace(secs(5))).await;
    process.store.delay_reply(StoreOperation::Claim, secs(1));
    world.broker.send_all(&["a", "b"]);
    world.clock.settle().await;
    process.stop().await;
    assert_eq!(world.broker.settlements("a"), [Settlement::GiveBack]);
    assert_eq!(world.broker.settlements("b"), [Settlement::GiveBack]);
    world.clock.advance(secs(9)).await;
    assert!(process.task.is_finished() && bulk.batches().is_empty());
    assert_eq!((world.record("a").await, world.record("b").await), (None, None));
}

#[tokio::test]
async fn a_batch_that_outlives_the_grace_is_dropped_whole_and_left_to_its_leases() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(1_000));
    let mut process = world.consume_by(Policy::new(), bulk.of(4), |builder| builder.grace(secs(5))).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(ms(100)).await;
    process.stop().await;
    world.clock.advance(secs(5)).await;
    assert!(process.task.is_finished());
    for name in ["a", "b"] {
        assert_eq!(world.broker.story(name).last(), Some(&(5_100, What::Settled(Settlement::GiveBack))));
        assert_eq!(world.record(name).await.unwrap().state.kind(), StateKind::Consuming);
    }
}

#[tokio::test]
async fn the_batch_of_a_killed_process_runs_again_when_its_leases_expire() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(2));
    let policy = Policy::new().in_flight_delay(secs(1)).lease(secs(60));
    let first = world.consume(policy, bulk.of(4)).await;
    world.broker.send_all(&["a", "b"]);
    world.clock.advance(ms(100)).await;
    first.kill().await;
    world.broker.cut();
    world.consume(policy, bulk.of(4)).await;
    world.clock.advance(secs(30)).await;
    assert_eq!(bulk.batches(), [["a", "b"]]);
    world.clock.advance(secs(60)).await;
    assert_eq!((bulk.attempts("a"), bulk.attempts("b"), world.broker.left()), (vec![1, 2], vec![1, 2], 0));
}

#[tokio::test]
async fn a_revoked_leader_ends_no_other_message_of_its_batch() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(100));
    let process = world.consume(Policy::new(), bulk.of(4)).await;
    process.store.delay_reply(StoreOperation::Claim, secs(1));
    for (partition, name) in (0..).zip(["a", "b"]) {
        let position = Position::of("orders").partition(partition).offset(name);
        world.broker.send_delivery(name, Delivery::new(position, Vec::new()).id(name));
    }
    world.clock.advance(ms(100)).await;
    world.broker.revoke(Position::of("orders").partition(0));
    world.clock.advance(secs(20)).await;
    assert_eq!((process.counts().revoked, process.counts().acked, process.counts().retried), (1, 1, 0));
    assert_eq!(bulk.attempts("b"), [1]);
}

#[tokio::test]
async fn two_consumers_of_one_handling_have_batches_of_their_own() {
    let world = World::new();
    let bulk = Bulk::new(&world, ms(100));
    let handling = bulk.of(8);
    let other = World::new();
    let process = world.consume(Policy::new(), handling.clone()).await;
    let beside = other.consume(Policy::new(), handling).await;
    world.broker.send_all(&["a", "b"]);
    other.broker.send_all(&["a", "c"]);
    world.clock.settle().await;
    // The handler sleeps by the first world's clock.
    world.clock.advance(secs(1)).await;
    other.clock.advance(secs(1)).await;
    let mut batches = bulk.batches();
    batches.sort();
    assert_eq!(batches, [["a", "b"], ["a", "c"]]);
    assert_eq!((process.counts().acked, beside.counts().acked), (2, 2));
}

#[tokio::test]
async fn a_batch_that_can_never_run_or_never_fill_is_refused_when_the_consumer_is_built() {
    let world = World::new();
    let of = |most, key: KeyFrom<()>| {
        Messages::raw().keyed(key).run_batch(most, |_: Vec<_>| pending::<Vec<HandlerResult>>())
    };
    let refused = |handling| world.refused(Policy::new(), handling, |builder| builder.concurrency(4));
    assert!(refused(of(0, KeyFrom::message_id())).contains("at most 0 messages"));
    let text = refused(of(5, KeyFrom::message_id()));
    assert!(text.contains("raise `concurrency` to 5"), "{text}");
    let text = refused(of(4, KeyFrom::message_id().or_unprotected()));
    assert!(text.contains("has no lease"), "{text}");
}

#[tokio::test]
async fn a_batch_led_by_a_duplicate_may_end_normally() {
    let world = World::new();
    let bulk = Bulk::new(&world, secs(2));
    let mut process = world.consume_by(Policy::new(), bulk.of(4), |builder| builder.grace(secs(5))).await;
    world.broker.send_all(&["done"]);
    world.clock.advance(secs(3)).await;
    world.broker.send_all(&["done", "a"]);
    world.clock.advance(ms(100)).await;
    process.stop().await;
    world.clock.advance(secs(3)).await;
    assert!(process.task.is_finished() && world.broker.is_acked("a"));
    assert_eq!((bulk.attempts("a"), world.broker.settlements("done")), (vec![1], vec![Settlement::Ack; 2]));
}

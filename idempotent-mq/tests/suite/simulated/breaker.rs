//! Intake while the store is down.
use idempotent_core::Policy;
use idempotent_mq::{HandlerResult, Settlement};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::world::{Job, World, again, ms, secs};

#[tokio::test]
async fn no_deliveries_are_taken_while_the_store_is_down_and_pending_ones_are_postponed() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process =
        world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1).prefetch(4).claim_ahead(0)).await;
    let gauges = process.gauges();
    assert_eq!((gauges.held, gauges.running, gauges.capacity, gauges.paused), (0, 0, 1, false));
    process.store.down();
    world.broker.send_numbered(20);
    world.clock.advance(secs(60)).await;
    assert!(process.gauges().paused);
    // Four were in hand when it was noticed; after that one at a time is tried at most, and only if a peek is answered.
    let counts = process.counts();
    assert_eq!((counts.received, counts.deferred, counts.pauses), (4, 4, 1));
    assert_eq!((job.runs(), world.broker.left(), counts.retried), (0, 20, 0));
    let claims = world.store.log().iter().filter(|call| call.verb == StoreOperation::Claim).count();
    assert_eq!(claims, 4, "one claim, asked again three times");
    process.store.up();
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.left()), (20, 0));
    let gauges = process.gauges();
    assert_eq!((gauges.held, gauges.running, gauges.paused), (0, 0, false));
}

#[tokio::test]
async fn a_store_that_answers_a_peek_and_no_claim_is_tried_by_one_delivery_at_a_time() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(2).prefetch(8)).await;
    process.store.fail_before(StoreOperation::Claim, FOREVER);
    world.broker.send_numbered(20);
    world.clock.settle().await;
    world.clock.advance(secs(1)).await;
    let first = process.counts().received;
    assert!(first <= 9, "{first}");
    world.clock.advance(secs(120)).await;
    // 1, 2, 4, 8, 16, 30, 30 … s apart.
    let tried = process.counts().received - first;
    assert!((4..=9).contains(&tried), "{tried}");
    process.store.heal();
    world.clock.advance(secs(120)).await;
    assert_eq!((job.runs(), world.broker.left()), (20, 0));
    assert!((0..20).all(|number| world.broker.is_acked(&format!("m{number}"))));
}

#[tokio::test]
async fn a_trial_that_does_not_ask_the_store_does_not_close_intake_for_ever() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1).prefetch(1)).await;
    process.store.down();
    world.broker.send("m1", "{}");
    world.clock.advance(ms(100)).await;
    process.store.up();
    // Past its time: acknowledged without asking anybody.
    let mut expired = idempotent_mq::Delivery::new(idempotent_mq::Position::of("orders"), Vec::new()).id("old");
    expired.expires_at = Some(idempotent_core::Timestamp(1));
    world.broker.send_delivery("old", expired);
    world.broker.send("m2", "{}");
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), world.broker.left()), (2, 0));
    assert_eq!(world.broker.settlements("old"), [Settlement::Ack]);
}

#[tokio::test]
async fn one_record_that_cannot_be_read_does_not_stop_intake() {
    use idempotent_core::{
        Claim, ClaimHandle, ClaimRequest, Completion, Executor, Key, Record, Release, Settled, Store,
        StoreCapabilities, StoreError, StoreErrorKind,
    };
    // The key of one message belongs to a foreign record.
    #[derive(Debug)]
    struct Foreign(idempotent_testkit::FaultStore);
    #[async_trait::async_trait]
    impl Store for Foreign {
        async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
            if request.key == crate::world::key_of("bad") {
                return Err(StoreError::new(StoreErrorKind::Foreign));
            }
            assert_ne!(request.key, crate::world::key_of("panics"), "a defect of the store");
            self.0.claim(request).await
        }
        async fn renew(&self, held: &ClaimHandle, lease: std::time::Duration) -> Result<Settled, StoreError> {
            self.0.renew(held, lease).await
        }
        async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
            self.0.complete(held, completion).await
        }
        async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
            self.0.release(held, release).await
        }
        async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
            self.0.peek(key).await
        }
        fn capabilities(&self) -> StoreCapabilities<'_> {
            StoreCapabilities::none()
        }
    }
    let world = World::new();
    let executor = Executor::builder(Foreign(world.store.clone()))
        .clock(std::sync::Arc::new(world.clock.clone()))
        .build()
        .unwrap();
    let job = Job::ok(&world, ms(10));
    let consumer =
        idempotent_mq::Consumer::builder(world.broker.connect(), "billing", &executor).build(job.by_id()).unwrap();
    let process = world.start(world.store.clone(), executor, consumer).await;
    world.broker.send_all(&["bad", "panics", "m1", "m2"]);
    world.clock.advance(ms(900)).await;
    let counts = process.counts();
    assert_eq!((counts.acked, counts.deferred, counts.pauses), (2, 2, 0));
}

#[tokio::test]
async fn a_trial_whose_handler_fails_or_takes_long_does_not_keep_intake_closed() {
    for (handler, takes, ends, wait, runs) in [
        // One trial of 10 s, and then the others side by side.
        ("fails", secs(10), again as fn(u32) -> HandlerResult, secs(40), 9),
        // Its claim was granted: that says enough.
        ("takes long", secs(600), |_| HandlerResult::Done, secs(10), 8),
    ] {
        let world = World::new();
        let job = Job::ends(&world, takes, ends);
        let policy = Policy::new().retry_delay(secs(300));
        let process = world.consume_by(policy, job.by_id(), |builder| builder.concurrency(8).prefetch(8)).await;
        process.store.down();
        world.broker.send_numbered(9);
        world.clock.advance(secs(3)).await;
        process.store.up();
        world.clock.advance(wait).await;
        assert_eq!(job.runs(), runs, "a handler that {handler}");
    }
}

#[tokio::test]
async fn a_trial_without_a_visible_result_is_followed_by_another_one() {
    let world = World::new();
    let job = Job::ok(&world, secs(600));
    let runs = job.clone();
    // Claims somewhere in it, or not at all.
    let handling = idempotent_mq::Messages::raw().annotated(move |message| {
        let (job, executor) = (runs.clone(), idempotent_core::Executor::current().unwrap());
        async move {
            use idempotent_core::{Call, DefaultReply, Handler, Identity, Json, Rejection, Scene};
            let call = Call::new(Identity::new(Scene::Mq, "inner", &message.delivery.id));
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async move {
                job.run(message).await;
                Ok::<(), Rejection>(())
            });
            executor.run(call, handler).await
        }
    });
    let process = world.consume_by(Policy::new(), handling, |builder| builder.concurrency(4).prefetch(4)).await;
    process.store.down();
    world.broker.send_numbered(9);
    world.clock.advance(secs(3)).await;
    process.store.up();
    world.clock.advance(secs(60)).await;
    assert_eq!(job.runs(), 4);
}

//! The three forms of a handler: annotated, keyed by the consumer, a tower service.
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use idempotent_core::{Executor, MemoryStore, Policy, Redelivery, Rejection, Scene};
use idempotent_macros::idempotent;
use idempotent_mq::{
    Consumer, DelaySupport, HandlerResult, IntoHandlerResult, KeyFrom, MemoryQueue, Message, MessageHandler, Messages,
    SourceCapabilities, Undecodable, service,
};
use serde::Deserialize;

use crate::broker::Ways;
use crate::world::{World, ms, secs};

#[derive(Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

const ORDER: &str = r#"{"number": 1, "cents": 5}"#;

/// Sends an order twice, and one whose card is declined.
fn send_two_orders(world: &World) {
    for (name, body) in [("m1", ORDER), ("m1 again", ORDER), ("m2", r#"{"number": 2, "cents": 0}"#)] {
        world.broker.send(name, body);
    }
}

/// A transparent error, in which the rejection cannot be found.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("card declined")]
    Declined,
}

#[idempotent(scene = mq, scope = "charge", key = order.number, crate = idempotent_core)]
async fn charge(order: &Order, charged: &AtomicU32) -> Result<(), Failed> {
    charged.fetch_add(1, SeqCst);
    if order.cents == 0 { Err(Failed::Declined) } else { Ok(()) }
}

/// Returns a handler that calls this function with a counter, and the counter.
fn counted<F>(run: fn(Order, Arc<AtomicU32>) -> F) -> (MessageHandler, Arc<AtomicU32>)
where
    F: Future<Output: IntoHandlerResult> + Send + 'static,
{
    let charged = Arc::new(AtomicU32::new(0));
    let counter = charged.clone();
    let handling = Messages::json().annotated(move |message: Message<Order>| run(message.body, counter.clone()));
    (handling, charged)
}

#[tokio::test]
async fn an_annotated_function_finds_the_executor_and_settles_the_message() {
    let world = World::new();
    let (handling, charged) = counted(|order, charged| async move { charge(&order, &charged).await });
    let process = world.consume(Policy::new().max_retries(2), handling).await;
    send_two_orders(&world);
    world.clock.advance(secs(60)).await;
    assert!(world.broker.is_acked("m1") && world.broker.is_acked("m1 again"));
    // Attempts are counted by the claim, also where the attribute made it.
    assert_eq!((charged.load(SeqCst), process.counts().retried), (4, 2));
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((dead.id.as_deref(), letter.attempts), (Some("m2"), 3));
    let key = idempotent_core::Identity::new(Scene::Mq, "charge", &2u64).key("idempotent").unwrap();
    assert!(letter.id.unwrap().starts_with(key.as_str()));
    assert_eq!(process.counts().unprotected, 0);
}

#[idempotent(scene = mq, scope = "short", key = order.number, lease = "600s", crate = idempotent_core)]
async fn long_lease(order: &Order, charged: &AtomicU32) -> Result<(), Rejection> {
    charged.fetch_add(1, SeqCst);
    short_retention(order, charged).await
}

#[idempotent(scene = mq, scope = "inner", key = order.number, retain = "5m", crate = idempotent_core)]
async fn short_retention(order: &Order, charged: &AtomicU32) -> Result<(), Rejection> {
    charged.fetch_add(1, SeqCst);
    Ok(())
}

/// The attribute's lease and retention are seen when they are used: nothing runs by them.
#[tokio::test]
async fn a_lease_of_the_attributes_that_does_not_fit_the_redelivery_is_refused_before_anything_runs() {
    let redelivery = || Redelivery::after([1, 5, 30, 300].map(secs));
    for (fits, redelivery) in [(false, redelivery()), (true, redelivery().deferrals_are_free())] {
        let world = World::with(Ways {
            capabilities: SourceCapabilities::new(DelaySupport::Any).redelivery(redelivery),
            ..Ways::default()
        });
        let (handling, charged) = counted(|order, charged| async move { long_lease(&order, &charged).await });
        let process = world.consume(Policy::new(), handling).await;
        world.broker.send("m1", ORDER);
        world.clock.advance(ms(200)).await;
        // A run inside it answers for itself: its short retention is no matter of the broker's.
        assert_eq!(charged.load(SeqCst), if fits { 2 } else { 0 });
        assert_eq!(world.broker.is_acked("m1"), fits);
        if !fits {
            let [retry] = &world.broker.retries("m1")[..] else { panic!("one retry") };
            assert_eq!((retry.attempt, &*retry.reason), (1, "misconfigured"));
        }
        drop(process);
    }
}

#[tokio::test]
async fn an_error_that_hides_a_rejection_does_not_cost_the_message_an_attempt() {
    let world = World::new();
    let (handling, charged) =
        counted(|order, charged| async move { charge(&order, &charged).await.map_err(|_| "an error of another type") });
    let process = world.consume(Policy::new(), handling).await;
    process.store.down();
    world.broker.send("m1", ORDER);
    world.clock.advance(ms(200)).await;
    let retries = world.broker.retries("m1");
    assert_eq!((retries[0].attempt, &*retries[0].reason, charged.load(SeqCst)), (1, "store_down", 0));
}

#[tokio::test]
async fn a_handler_that_is_said_to_be_unprotected_runs_for_each_delivery_and_is_counted() {
    let world = World::new();
    let charged = Arc::new(AtomicU32::new(0));
    let counted = charged.clone();
    let handling = Messages::raw().unprotected(move |_| {
        let charged = counted.clone();
        async move {
            let run = charged.fetch_add(1, SeqCst);
            if run == 0 {
                panic!("as told")
            }
            Ok::<_, Undecodable>(())
        }
    });
    let process = world.consume(Policy::new(), handling).await;
    world.broker.send("m1", "");
    world.broker.send("m1", "");
    world.clock.advance(secs(2)).await;
    assert_eq!((charged.load(SeqCst), process.counts().unprotected, process.counts().acked), (3, 3, 2));
}

/// Is ready at every second look, and not to be shared.
#[derive(Clone)]
struct Slow {
    looked: bool,
    called: Arc<AtomicU32>,
    _alone: std::marker::PhantomData<std::cell::Cell<()>>,
}

impl tower_service::Service<Message<Order>> for Slow {
    type Response = ();
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if std::mem::replace(&mut self.looked, true) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, message: Message<Order>) -> Self::Future {
        assert!(self.looked, "called before it was ready");
        self.called.fetch_add(1, SeqCst);
        Box::pin(async move { if message.body.cents == 0 { Err("card declined") } else { Ok(()) } })
    }
}

#[tokio::test]
async fn a_tower_service_is_a_handler_once_it_is_ready() {
    let world = World::new();
    let called = Arc::new(AtomicU32::new(0));
    let slow = Slow { looked: false, called: called.clone(), _alone: std::marker::PhantomData };
    let handling = Messages::json().keyed(KeyFrom::body("number", |order: &Order| order.number)).run(service(slow));
    let process = world.consume(Policy::new().max_retries(1), handling).await;
    send_two_orders(&world);
    world.clock.advance(secs(60)).await;
    assert_eq!((called.load(SeqCst), process.counts().acked, process.counts().dead_lettered), (3, 2, 1));
}

#[tokio::test]
async fn the_dead_letter_of_a_permanent_failure_has_the_description_of_its_error_and_otherwise_its_type() {
    #[idempotent(scene = mq, scope = "plain", key = order.number, permanent = |_| true, crate = idempotent_core)]
    async fn plain(order: Order) -> Result<(), Failed> {
        if order.cents == 0 { Err(Failed::Declined) } else { Ok(()) }
    }
    #[idempotent(scene = mq, scope = "described", key = order.number, permanent = |_| true, describe = |error| error.to_string(),
        crate = idempotent_core)]
    async fn described(order: Order) -> Result<(), Failed> {
        if order.cents == 0 { Err(Failed::Declined) } else { Ok(()) }
    }
    let plain = Messages::json().annotated(|message: Message<Order>| plain(message.body));
    let described = Messages::json().annotated(|message: Message<Order>| described(message.body));
    for (handling, reason) in [(plain, "Failed`, its text is not kept"), (described, "failed for good: card declined")]
    {
        let world = World::new();
        world.consume(Policy::new(), handling).await;
        send_two_orders(&world);
        world.clock.advance(secs(60)).await;
        let (_, letter) = world.broker.dead().remove(0);
        assert!(letter.reason.starts_with("failed for good: ") && letter.reason.ends_with(reason), "{}", letter.reason);
    }
}

#[tokio::test]
async fn a_detached_run_does_not_keep_the_delivery_of_its_handler() {
    let queue = MemoryQueue::new("orders");
    queue.send("{}");
    let seen = Arc::new(Mutex::new(Weak::new()));
    let delivery = seen.clone();
    let handling = Messages::raw().unprotected(move |message: Message<()>| {
        *delivery.lock().unwrap() = Arc::downgrade(&message.delivery);
        // The first poll starts the task.
        async {
            assert_eq!(Executor::detach(pending::<()>()).now_or_never(), None);
            HandlerResult::Done
        }
    });
    let consumer = Consumer::builder(queue.source(), "orders", Executor::new(MemoryStore::new()));
    let counts = consumer.build(handling).unwrap().run(queue.drained()).await.unwrap();
    assert_eq!((counts.acked, seen.lock().unwrap().upgrade().is_none()), (1, true));
}

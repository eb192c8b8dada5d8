//! The time limit of an order: the parts of `apps/order_timeout` on a clock that the test moves, and the application
//! as processes that are killed.
#[path = "../../../stores/sqlx/tests/suite/delay/clock.rs"]
mod clock;
mod processes;
mod rabbit;
#[allow(dead_code, reason = "parts of it are for the example")]
#[path = "../../../apps/order_timeout/shop.rs"]
mod shop;

use std::sync::Arc;
use std::time::Duration;

use idempotent::delay::ScheduledTask;
use idempotent::mq::{Consumer, Message, Messages, Received, Source};
use idempotent::{Executor, MemoryStore};
use tokio::sync::oneshot;

use self::clock::Moved;
use self::shop::{Failed, Shop, time_is_over};

const LIMIT: Duration = Duration::from_secs(30 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);

struct World {
    shop: Arc<Shop>,
    clock: Arc<Moved>,
    executor: Executor,
    _folder: tempfile::TempDir,
}

struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Moved::new());
        let file = folder.path().join("shop.db");
        let shop = Shop::open(file.to_str().unwrap(), |limits| limits.clock(clock.clone())).await.unwrap();
        Self { shop: Arc::new(shop), clock, executor: Executor::new(MemoryStore::new()), _folder: folder }
    }

    /// A process of the shop's.
    fn start(&self) -> Running {
        let shop = self.shop.clone();
        let handling = Messages::raw().annotated(move |message: Message<()>| {
            let shop = shop.clone();
            async move {
                let order = String::from_utf8(message.delivery.body.clone()).map_err(|_| Failed::NoOrder)?;
                time_is_over(&order, &shop).await
            }
        });
        let consumer = Consumer::builder(self.shop.limits.source(), "order_limits", &self.executor);
        let consumer = consumer.build(handling).unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            consumer.run(async { drop(stopped.await) }).await.unwrap();
        });
        Running { stop, task }
    }

    async fn settled(&self) {
        until("nothing is left to be done", async || {
            let counts = self.shop.limits.counts().await.unwrap();
            counts.ready + counts.in_flight == 0
        })
        .await;
    }

    async fn state(&self, order: &str) -> (String, Vec<String>) {
        (self.shop.status(order).await.unwrap(), self.shop.effects(order).await.unwrap())
    }
}

impl Running {
    async fn ends(self) {
        drop(self.stop);
        tokio::time::timeout(MINUTE, self.task).await.unwrap().unwrap();
    }
}

pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so().await {
        assert!(start.elapsed() < 2 * MINUTE, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn once(what: &str) -> (String, Vec<String>) {
    (what.to_owned(), vec![what.to_owned()])
}

#[tokio::test]
async fn paid_a_millisecond_before_its_time_it_is_not_cancelled() {
    let world = World::new().await;
    let running = world.start();
    world.shop.place("o", LIMIT).await.unwrap();
    world.clock.advance(LIMIT - MILLI);
    assert!(world.shop.pay("o").await.unwrap());
    world.clock.advance(2 * LIMIT);
    world.settled().await;
    assert_eq!(world.state("o").await, once("paid"));
    assert!(!world.shop.pay("o").await.unwrap(), "it is paid once");
    running.ends().await;
}

#[tokio::test]
async fn unpaid_it_is_cancelled_when_its_time_is_over_and_not_before() {
    let world = World::new().await;
    let running = world.start();
    world.shop.place("o", LIMIT).await.unwrap();
    world.clock.advance(LIMIT - MILLI);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.state("o").await, ("unpaid".to_owned(), vec![]));
    // The clock stays at 30:00 from here on, so an order that needed a later time would never be cancelled.
    world.clock.advance(MILLI);
    until("it is cancelled", async || world.state("o").await == once("cancelled")).await;
    assert!(!world.shop.pay("o").await.unwrap(), "a payment that comes later is told so");
    assert_eq!(world.state("o").await, once("cancelled"));
    running.ends().await;
}

#[tokio::test]
async fn cancelled_twice_it_is_cancelled_once() {
    let world = World::new().await;
    let running = world.start();
    world.shop.place("o", LIMIT).await.unwrap();
    world.clock.advance(LIMIT);
    until("it is cancelled", async || world.state("o").await == once("cancelled")).await;
    world.settled().await;
    // As if it had been scheduled again, or not acknowledged; also by a process that remembers nothing of the first.
    for _ in 0..2 {
        world.shop.limits.put(&ScheduledTask::after("o", Duration::ZERO, "o")).await.unwrap();
        world.settled().await;
    }
    running.ends().await;
    let forgetful = World { executor: Executor::new(MemoryStore::new()), ..world };
    let running = forgetful.start();
    forgetful.shop.limits.put(&ScheduledTask::after("o", Duration::ZERO, "o")).await.unwrap();
    forgetful.settled().await;
    assert_eq!(forgetful.state("o").await, once("cancelled"));
    running.ends().await;
}

#[tokio::test]
async fn a_payment_between_delivery_and_handler_wins() {
    let world = World::new().await;
    world.shop.place("o", LIMIT).await.unwrap();
    world.clock.advance(LIMIT);
    let mut source = world.shop.limits.source();
    let Received::Deliveries(taken) = source.receive(1).await.unwrap() else { panic!() };
    assert_eq!(&*taken[0].0.body, b"o", "it is on its way");
    assert!(world.shop.pay("o").await.unwrap());
    world.executor.scope(time_is_over("o", &world.shop)).await.unwrap();
    assert_eq!(world.state("o").await, once("paid"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_and_cancellation_at_the_same_instant_never_both_take_effect() {
    const ORDERS: usize = 60;
    let world = World::new().await;
    let running = world.start();
    let (mut paid, mut cancelled) = (0, 0);
    for number in 0..ORDERS {
        let order = format!("o{number}");
        world.shop.place(&order, LIMIT).await.unwrap();
        let (shop, of_payment) = (world.shop.clone(), order.clone());
        // The payment a little earlier each time, or the clock.
        let wait = Duration::from_micros(400 * u64::try_from(number % 10).unwrap());
        let paying = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            shop.pay(&of_payment).await.unwrap()
        });
        world.clock.advance(LIMIT);
        let was_paid = paying.await.unwrap();
        world.settled().await;
        let expected = if was_paid { once("paid") } else { once("cancelled") };
        until("one of both", async || world.state(&order).await == expected).await;
        (paid, cancelled) = if was_paid { (paid + 1, cancelled) } else { (paid, cancelled + 1) };
    }
    assert_eq!(paid + cancelled, ORDERS);
    running.ends().await;
}

#[tokio::test]
async fn a_process_that_was_down_when_it_was_due_cancels_it_when_it_starts() {
    let world = World::new().await;
    let running = world.start();
    for order in ["unpaid", "paid"] {
        world.shop.place(order, LIMIT).await.unwrap();
    }
    // Down from 29:00 to 31:00; the payment came by another one.
    world.clock.advance(LIMIT - MINUTE);
    running.ends().await;
    assert!(world.shop.pay("paid").await.unwrap());
    world.clock.advance(2 * MINUTE);
    assert_eq!(world.shop.status("unpaid").await.unwrap(), "unpaid", "nobody runs");
    let running = world.start();
    until("it is cancelled", async || world.state("unpaid").await == once("cancelled")).await;
    assert_eq!(world.state("paid").await, once("paid"));
    running.ends().await;
}

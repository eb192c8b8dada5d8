//! The time limits of an order: the parts of `apps/order_timeout` on a clock that the test moves, and the application as
//! processes that are killed.
#[path = "../../../stores/sqlx/tests/suite/delay/clock.rs"]
mod clock;
mod payment;
mod processes;
#[allow(dead_code, reason = "parts of it are for another application")]
#[path = "../../../apps/outbox_payment/queue.rs"]
mod queue;
mod rabbit;
mod receipt;
#[allow(dead_code, reason = "parts of it are for the example")]
#[path = "../../../apps/order_timeout/shop.rs"]
mod shop;
#[path = "../../../apps/order_timeout/work.rs"]
mod work;

use std::sync::Arc;
use std::time::Duration;

use idempotent::delay::ScheduledTask;
use idempotent::mq::{Received, Source};
use idempotent::{Executor, MemoryStore, SqliteStore};
use tokio::sync::oneshot;

use self::clock::Moved;
use self::queue::Queue;
use self::shop::{Failed, Limit, PAYMENT, Shop, time_is_over};

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
        let file = folder.path().join("shop.db").display().to_string();
        let shop = Arc::new(Shop::open(&file, Some(clock.clone())).await.unwrap());
        let executor = Executor::new(SqliteStore::open(&file).await.unwrap());
        Self { shop, clock, executor, _folder: folder }
    }

    /// Starts what a process of the shop runs.
    fn start(&self) -> Running {
        let (shop, executor, queue) = (self.shop.clone(), self.executor.clone(), Queue::default());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (limits, publisher) = (shop.limits.source(), Arc::new(queue.clone()));
            work::work(&shop, &executor, limits, queue, publisher, async { drop(stopped.await) }).await.unwrap();
        });
        Running { stop, task }
    }

    /// Brings an order to the status in which it waits for its customer.
    async fn waits(&self, order: &str, limit: Limit, time: Duration) {
        self.shop.place(order, time).await.unwrap();
        if limit != PAYMENT {
            assert!(self.shop.pay(order).await.unwrap());
            assert!(self.shop.ship(order, time).await.unwrap());
        }
    }

    /// Acts as the customer. Returns whether the customer was first.
    async fn customer_acts(&self, order: &str, limit: Limit) -> bool {
        let acted = if limit == PAYMENT { self.shop.pay(order).await } else { self.shop.confirm(order).await };
        acted.unwrap()
    }

    async fn settled(&self) {
        until("nothing is left to be done", async || {
            let (limits, notices) =
                (self.shop.limits.counts().await.unwrap(), self.shop.outbox.counts().await.unwrap());
            limits.ready + limits.in_flight == 0 && notices.unsent + notices.unconfirmed == 0
        })
        .await;
    }

    /// Returns the status of an order, its effects, and the notices that its customer has got.
    async fn state(&self, order: &str) -> (String, Vec<String>, Vec<String>) {
        let shop = &self.shop;
        (shop.status(order).await.unwrap(), shop.effects(order).await.unwrap(), shop.notices(order).await.unwrap())
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

/// Returns the state of an order after each of these effects once, and a notice of what the shop has done.
fn once(limit: Limit, what: &str) -> (String, Vec<String>, Vec<String>) {
    let before: &[&str] = if limit == PAYMENT { &[] } else { &["paid", "shipped"] };
    let effects = before.iter().copied().chain((what != limit.waits && !before.contains(&what)).then_some(what));
    let notice = (what == limit.over).then(|| format!("o is {what}"));
    (what.to_owned(), effects.map(str::to_owned).collect(), notice.into_iter().collect())
}

async fn it_is_over_at_its_time_and_not_before(limit: Limit, time: Duration) {
    let world = World::new().await;
    let running = world.start();
    world.waits("o", limit, time).await;
    world.clock.advance(time - MILLI);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.state("o").await, once(limit, limit.waits));
    // The clock stays here from now on, so an order that needed a later time would never be changed.
    world.clock.advance(MILLI);
    until("its time is over", async || world.state("o").await == once(limit, limit.over)).await;
    assert!(!world.customer_acts("o", limit).await, "a customer who comes later is told so");
    world.settled().await;
    assert_eq!(world.state("o").await, once(limit, limit.over));
    running.ends().await;
}

async fn a_customer_who_acts_a_millisecond_before_is_first(limit: Limit, time: Duration) {
    let world = World::new().await;
    let running = world.start();
    world.waits("o", limit, time).await;
    world.clock.advance(time - MILLI);
    assert!(world.customer_acts("o", limit).await);
    world.clock.advance(2 * time);
    world.settled().await;
    assert_eq!(world.state("o").await, once(limit, limit.in_time));
    assert!(!world.customer_acts("o", limit).await, "the customer acts once");
    assert_eq!(world.state("o").await, once(limit, limit.in_time));
    running.ends().await;
}

async fn a_customer_between_delivery_and_handler_is_first(limit: Limit) {
    let world = World::new().await;
    world.waits("o", limit, LIMIT).await;
    world.clock.advance(LIMIT);
    let mut source = world.shop.limits.source();
    let Received::Deliveries(taken) = source.receive(1).await.unwrap() else { panic!() };
    assert_eq!(Limit::of_key(&taken[0].0.body).unwrap(), (limit, "o"), "it is on its way");
    assert!(world.customer_acts("o", limit).await);
    world.executor.scope(time_is_over(limit, "o", &world.shop)).await.unwrap();
    assert_eq!(world.state("o").await, once(limit, limit.in_time));
    assert!(world.shop.nothing_left().await.unwrap(), "no notice is to be sent");
}

async fn over_twice_it_has_one_effect_and_one_notice(limit: Limit) {
    let world = World::new().await;
    let running = world.start();
    world.waits("o", limit, LIMIT).await;
    world.clock.advance(LIMIT);
    until("its time is over", async || world.state("o").await == once(limit, limit.over)).await;
    world.settled().await;
    // As if it had been scheduled again, or not acknowledged; also by a process that remembers nothing of the first.
    let key = limit.key("o");
    for _ in 0..2 {
        world.shop.limits.put(&ScheduledTask::after(&*key, Duration::ZERO, &*key)).await.unwrap();
        world.settled().await;
    }
    running.ends().await;
    handle(&world, limit).await.unwrap();
    assert!(world.shop.nothing_left().await.unwrap(), "no other notice is to be sent");
    assert_eq!(world.state("o").await, once(limit, limit.over));
}

/// Runs the handler of an order's limit in a process of its own, which remembers nothing.
async fn handle(world: &World, limit: Limit) -> Result<(), Failed> {
    Executor::new(MemoryStore::new()).scope(time_is_over(limit, "o", &world.shop)).await
}

async fn an_order_and_its_notice_are_one_commit(limit: Limit) {
    let world = World::new().await;
    world.waits("o", limit, LIMIT).await;
    world.clock.advance(LIMIT);
    let sql = async |text: &'static str| sqlx::raw_sql(text).execute(&world.shop.orders).await.unwrap();
    for (refuse, allow) in [
        (
            "CREATE TRIGGER no_notice BEFORE INSERT ON idempotent_outbox BEGIN SELECT RAISE(ABORT, 'full'); END",
            "DROP TRIGGER no_notice",
        ),
        (
            "CREATE TRIGGER no_change BEFORE UPDATE ON orders BEGIN SELECT RAISE(ABORT, 'full'); END",
            "DROP TRIGGER no_change",
        ),
    ] {
        sql(refuse).await;
        assert!(matches!(handle(&world, limit).await, Err(Failed::Outbox(_) | Failed::Orders(_))), "{refuse}");
        assert_eq!(world.state("o").await, once(limit, limit.waits), "the order is not changed: {refuse}");
        let notices = world.shop.outbox.counts().await.unwrap();
        assert_eq!(notices.unsent + notices.unconfirmed, 0, "no notice is written: {refuse}");
        sql(allow).await;
    }
    handle(&world, limit).await.unwrap();
    let running = world.start();
    until("the customer is told", async || world.state("o").await == once(limit, limit.over)).await;
    running.ends().await;
}

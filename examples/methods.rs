//! Every shape of function that `#[idempotent]` takes; each is called twice, and what the duplicate got is printed.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::{Disposition, Executor, KeyPart, Lease, MemoryStore, Outcome, Rejection, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    id: String,
    amount: u64,
}

// 1. A free function, the shortest form. It finds the executor in scope, or the installed one; without either it is
//    refused. Here `anyhow` takes the rejection. The body may move what the key was made of.
#[idempotent(key = order.id)]
async fn charge(order: Order) -> anyhow::Result<u64> {
    ran();
    let fee: u64 = "2".parse()?;
    Ok(into_cents(order) + fee)
}

fn into_cents(order: Order) -> u64 {
    order.amount * 100
}

// 2. An error type of one's own needs one variant. It may be transparent: nothing is ever read out of the error.
#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("no stock")]
    NoStock,
}

struct Stock {
    idem: Executor,
    left: AtomicU32,
}

impl Stock {
    // 3. A method with the executor in a field, a key of two parts, a check on the payload, and a scope that a
    //    rename does not change.
    #[idempotent(key = (shop, &order.id), with = self.idem, fingerprint = order, scope = "reserve")]
    async fn reserve(&self, shop: u32, order: &Order) -> Result<String, StockError> {
        ran();
        if self.left.load(SeqCst) == 0 {
            return Err(StockError::NoStock);
        }
        self.left.fetch_sub(1, SeqCst);
        Ok(format!("{shop}/{}", order.id))
    }

    // 4. `Arc<Self>`, destructured arguments, `impl Trait` arguments.
    #[idempotent(scope = "count", key = (aisle, item.to_string()), with = self.idem)]
    async fn count(self: Arc<Self>, (aisle, _shelf): (u8, u8), item: impl Display) -> Result<u32, StockError> {
        ran();
        Ok(u32::from(aisle) + self.left.load(SeqCst))
    }
}

// 5. Generic, with the executor behind an `Arc`. What comes back need not be kept: a duplicate gets the default.
#[idempotent(key = id, with = executor, codec = idempotent::Discard, scope = "notify")]
async fn notify<K, T>(executor: Arc<Executor>, id: K, message: T) -> Result<Option<T>, Rejection>
where
    K: KeyPart + Send,
    T: Send,
{
    ran();
    Ok(Some(message))
}

// 6. In the impl of a native async trait. A `Disposition` says itself what becomes of the message.
trait Consume {
    async fn consume(&self, order: Order) -> Disposition;
}

impl Consume for Stock {
    #[idempotent(key = order.id, with = self.idem)]
    async fn consume(&self, order: Order) -> Disposition {
        ran();
        match order.amount {
            0 => Disposition::DeadLetter { reason: "nothing ordered".into() },
            _ => Disposition::Ack,
        }
    }
}

// 7. In the impl of an `#[async_trait]` (on the impl, not on the trait), above or below `#[tracing::instrument]`.
#[async_trait]
trait Ship: Send + Sync {
    async fn ship(&self, order: Order) -> anyhow::Result<String>;
}

#[async_trait]
impl Ship for Stock {
    #[idempotent(key = order.id, with = self.idem)]
    #[tracing::instrument(skip(self))]
    async fn ship(&self, order: Order) -> anyhow::Result<String> {
        ran();
        Ok(format!("parcel {}", order.id))
    }
}

// 8. A foreign error type takes no `From`: `reject` says how a rejection is told. `failed_if` marks a value as "not
//    done", `permanent` an error as not worth another run. All three capture nothing.
#[derive(Clone, Debug, PartialEq)]
struct Status(u16, String);

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Payment {
    declined: bool,
}

#[idempotent(
    key = id,
    with = executor,
    failed_if = |payment| payment.declined,
    permanent = |status| status.0 == 400,
    reject = |rejection| Err(Status(503, rejection.to_string())),
)]
async fn pay(executor: &Executor, id: &str, gateway: Result<Payment, Status>) -> Result<Payment, Status> {
    ran();
    gateway
}

// 9. A request handler: extractors, and a state that is `AsRef<Executor>`.
#[derive(Clone)]
struct App {
    idem: Executor,
}

impl AsRef<Executor> for App {
    fn as_ref(&self) -> &Executor {
        &self.idem
    }
}

struct State<T>(T);
struct Json<T>(T);

#[idempotent(scene = rest, key = key, tenant = user, with = app, fingerprint = order, retain = "24h")]
async fn create(State(app): State<App>, key: &str, user: u64, Json(order): Json<&Order>) -> Result<Order, StockError> {
    ran();
    Ok(order.clone())
}

// 10. `detach`: the run goes on where its caller is dropped, with scope and lease.
#[idempotent(key = id, detach)]
async fn outlives(id: u8, gate: Arc<Gate>) -> Result<u32, Rejection> {
    ran();
    gate.started.notify_one();
    gate.open.notified().await;
    Ok(Lease::current().map_or(0, |lease| lease.attempt()))
}

#[derive(Default)]
struct Gate {
    started: Notify,
    open: Notify,
}

// 11. A whole `impl`: each `async fn` gets the arguments of the block. A function overrides some of them, or opts out.
struct Parcels(Executor);

#[idempotent(key = parcel, with = self.0, scope = "parcels")]
impl Parcels {
    fn new(executor: &Executor) -> Self {
        Self(executor.clone())
    }

    async fn send(&self, parcel: u64) -> Result<String, Rejection> {
        ran();
        Ok(format!("{parcel} sent"))
    }

    #[idempotent(key = (parcel, day), retain = "2d")]
    async fn remind(&self, parcel: u64, day: &str) -> Result<String, Rejection> {
        ran();
        Ok(format!("{parcel} reminded on {day}"))
    }

    #[idempotent(skip)]
    async fn track(&self, parcel: u64) -> String {
        ran();
        format!("{parcel} is on its way")
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let executor = Executor::new(MemoryStore::new());
    let order = Order { id: "o-17".into(), amount: 5 };

    // Without an executor the handler does not run: never a silent pass-through.
    let (answer, outcome) = Outcome::capture(charge(order.clone())).await;
    assert_eq!((runs(), outcome), (0, Some(Outcome::NoExecutor)));
    println!("without an executor: {:#}", answer.unwrap_err());

    executor.scope(twice("a free function", async || charge(order.clone()).await.ok(), Some(502))).await;

    let stock = Arc::new(Stock { idem: executor.clone(), left: 0.into() });
    let failed = stock.reserve(1, &order).await;
    assert!(matches!(failed, Err(StockError::NoStock)) && runs() == 1);
    stock.left.store(3, SeqCst);
    // The failure freed the key, so this runs.
    twice("&self", async || stock.reserve(1, &order).await.ok(), Some("1/o-17".to_owned())).await;
    let changed = stock.reserve(1, &Order { amount: 6, ..order.clone() }).await;
    assert!(matches!(changed, Err(StockError::Idempotent(Rejection::Mismatch))) && runs() == 0);
    println!("the same key with another payload: {}", changed.unwrap_err());
    twice("Arc<Self>", async || stock.clone().count((1, 2), "nails").await.ok(), Some(3)).await;

    let shared = Arc::new(executor.clone());
    assert_eq!(notify(shared.clone(), "n-1", "hello").await?, Some("hello"));
    assert_eq!(notify(shared, "n-1", "hello").await?, None);
    assert_eq!(runs(), 1);
    println!("generic, value not kept: the duplicate got None");

    twice("a native trait", async || stock.consume(order.clone()).await, Disposition::Ack).await;
    let dynamic: &dyn Ship = &*stock;
    twice("an async_trait", async || dynamic.ship(order.clone()).await.ok(), Some("parcel o-17".to_owned())).await;

    let declined = Payment { declined: true };
    assert_eq!(pay(&executor, "p-1", Ok(declined.clone())).await, Ok(declined)); // handed on, not kept
    let paid = Ok(Payment { declined: false });
    assert_eq!(runs(), 1);
    twice("failed_if", async || pay(&executor, "p-1", paid.clone()).await, paid.clone()).await;
    let bad = Status(400, "no such card".into());
    assert_eq!(pay(&executor, "p-2", Err(bad.clone())).await, Err(bad));
    let Err(again) = pay(&executor, "p-2", paid).await else { anyhow::bail!("ran again") };
    assert_eq!((runs(), again.0), (1, 503));
    println!("permanent and reject: the duplicate got {}", again.1);

    let app = App { idem: executor.clone() };
    let post = async |user| create(State(app.clone()), "k", user, Json(&order)).await.ok();
    twice("a request handler", async || post(1).await, Some(order.clone())).await;
    assert!(post(2).await.is_some() && runs() == 1, "another tenant's key is another key");

    let parcels = Parcels::new(&executor);
    twice("an impl block", async || parcels.send(4).await.ok(), Some("4 sent".to_owned())).await;
    let remind = async || parcels.remind(4, "Monday").await.ok();
    twice("a key of its own in an impl block", remind, Some("4 reminded on Monday".to_owned())).await;
    assert_eq!((parcels.track(4).await, parcels.track(4).await).1, "4 is on its way");
    assert_eq!(runs(), 2, "skipped, so it runs each time");

    // An executor for the whole process serves whoever has no scope, in spawned tasks too. For `main` only.
    assert!(executor.install().is_ok());
    let gate = Arc::new(Gate::default());
    tokio::select! {
        biased;
        _ = outlives(1, gate.clone()) => anyhow::bail!("it waits at the gate"),
        () = gate.started.notified() => {} // the caller goes away
    }
    let (in_flight, outcome) = Outcome::capture(outlives(1, gate.clone())).await;
    assert!(matches!(outcome, Some(Outcome::InFlight { .. })));
    println!("detach, while it runs: {}", in_flight.unwrap_err());
    gate.open.notify_one();
    while outlives(1, gate.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await; // it is being recorded
    }
    assert_eq!(runs(), 1);
    println!("detach, when it has run: the result");
    Ok(())
}

static RUNS: AtomicU32 = AtomicU32::new(0);

fn ran() {
    RUNS.fetch_add(1, SeqCst);
}

/// Since it was last asked.
fn runs() -> u32 {
    RUNS.swap(0, SeqCst)
}

/// Calls once, and once more: both get the same answer, and one run has given it.
async fn twice<T: Debug + PartialEq>(shape: &str, call: impl AsyncFn() -> T, wanted: T) {
    let (first, duplicate) = (call().await, call().await);
    assert_eq!((&first, &duplicate, runs()), (&wanted, &wanted, 1));
    println!("{shape}: the duplicate got {duplicate:?}");
}

#[test]
fn every_shape_works() {
    main().unwrap();
}

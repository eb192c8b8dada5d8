//! Shows `#[idempotent]` on trait methods and on a whole `impl` block; a duplicate of each call gets the result of the first.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent::{Disposition, Executor, MemoryStore, Rejection, idempotent};

#[derive(Clone, Debug)]
struct Order {
    id: String,
    amount: u64,
}

struct Stock {
    idem: Executor,
}

// The impl of a native async trait. A `Disposition` says how to settle the message.
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

// The impl of an `#[async_trait]`: on the impl, not on the trait, above or below `#[tracing::instrument]`.
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

// A whole `impl`: each `async fn` gets the arguments of the block. A function overrides some of them, or opts out.
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
    let stock = Stock { idem: executor.clone() };
    twice("a native trait", async || stock.consume(order.clone()).await, Disposition::Ack).await;
    let dynamic: &dyn Ship = &stock;
    twice("an async_trait", async || dynamic.ship(order.clone()).await.ok(), Some("parcel o-17".to_owned())).await;

    let parcels = Parcels::new(&executor);
    twice("an impl block", async || parcels.send(4).await.ok(), Some("4 sent".to_owned())).await;
    let remind = async || parcels.remind(4, "Monday").await.ok();
    twice("a key of its own in an impl block", remind, Some("4 reminded on Monday".to_owned())).await;
    assert_eq!((parcels.track(4).await, parcels.track(4).await).1, "4 is on its way");
    assert_eq!(runs(), 2, "skipped, so it runs each time");
    Ok(())
}

static RUNS: AtomicU32 = AtomicU32::new(0);

fn ran() {
    RUNS.fetch_add(1, SeqCst);
}

/// Returns the number of runs since the last call.
fn runs() -> u32 {
    RUNS.swap(0, SeqCst)
}

/// Calls twice: both calls return the same value, from one run.
async fn twice<T: Debug + PartialEq>(form: &str, call: impl AsyncFn() -> T, wanted: T) {
    let (first, duplicate) = (call().await, call().await);
    assert_eq!((&first, &duplicate, runs()), (&wanted, &wanted, 1));
    println!("{form}: the duplicate got {duplicate:?}");
}

#[test]
fn every_form_works() {
    main().unwrap();
}

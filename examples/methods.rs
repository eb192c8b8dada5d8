//! Shows the methods that `#[idempotent]` accepts; a duplicate of each call gets the result of the first.
//!
//! The program calls each method twice, and prints the result of the duplicate. The examples `traits` and `handler_options` show
//! trait methods, `impl` blocks and options.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent::{Executor, MemoryStore, Outcome, Rejection, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    id: String,
    amount: u64,
}

// A free function. It uses the executor in scope, or the installed one, and is rejected without either. The body may move
// the arguments that the key consists of.
#[idempotent(key = order.id)]
async fn charge(order: Order) -> anyhow::Result<u64> {
    ran();
    let fee: u64 = "2".parse()?;
    Ok(into_cents(order) + fee)
}

fn into_cents(order: Order) -> u64 {
    order.amount * 100
}

// A custom error type needs one variant for rejections. The variant may be transparent.
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
    // The executor is a field, the key has two parts, the fingerprint compares payloads, and the scope survives a rename.
    #[idempotent(key = (shop, &order.id), with = self.idem, fingerprint = order, scope = "reserve")]
    async fn reserve(&self, shop: u32, order: &Order) -> Result<String, StockError> {
        ran();
        if self.left.load(SeqCst) == 0 {
            return Err(StockError::NoStock);
        }
        self.left.fetch_sub(1, SeqCst);
        Ok(format!("{shop}/{}", order.id))
    }

    // `Arc<Self>`, destructured arguments, and `impl Trait` arguments.
    #[idempotent(scope = "count", key = (aisle, item.to_string()), with = self.idem)]
    async fn count(self: Arc<Self>, (aisle, _shelf): (u8, u8), item: impl Display) -> Result<u32, StockError> {
        ran();
        Ok(u32::from(aisle) + self.left.load(SeqCst))
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

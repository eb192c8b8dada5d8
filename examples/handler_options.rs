//! Shows the options of `#[idempotent]`: values that are not stored, foreign errors, extractors, and detached runs.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent::{Executor, KeyPart, Lease, MemoryStore, Outcome, Rejection, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

// A generic function with the executor in an `Arc`. The value is not stored: a duplicate gets the default value.
#[idempotent(key = id, with = executor, codec = idempotent::Discard, scope = "notify")]
async fn notify<K, T>(executor: Arc<Executor>, id: K, message: T) -> Result<Option<T>, Rejection>
where
    K: KeyPart + Send,
    T: Send,
{
    ran();
    Ok(Some(message))
}

// An error type without `From<Rejection>`: `reject` converts a rejection. `failed_if` marks a value as a failure, and
// `permanent` marks an error as not worth a retry. None of the three closures captures anything.
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

// A request handler with extractors, and a state that implements `AsRef<Executor>`.
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
async fn create(State(app): State<App>, key: &str, user: u64, Json(order): Json<&u64>) -> Result<u64, Rejection> {
    ran();
    Ok(*order)
}

// `detach`: the run continues with its scope and lease after its caller is dropped.
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let executor = Executor::new(MemoryStore::new());
    let shared = Arc::new(executor.clone());
    assert_eq!(notify(shared.clone(), "n-1", "hello").await?, Some("hello"));
    assert_eq!(notify(shared, "n-1", "hello").await?, None);
    assert_eq!(runs(), 1);
    println!("generic, value not kept: the duplicate got None");

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
    let post = async |user| create(State(app.clone()), "k", user, Json(&17)).await.ok();
    twice("a request handler", async || post(1).await, Some(17)).await;
    assert!(post(2).await.is_some() && runs() == 1, "another tenant's key is another key");

    // An executor for the whole process serves calls without a scope, in spawned tasks too. For `main` only.
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

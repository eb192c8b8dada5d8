//! Every argument at once, and what some of them do.
#![deny(warnings)]
use idempotent::{Executor, MemoryStore, Outcome, Rejection, idempotent};

const ONE: u8 = 1;
const RETRIES: u32 = 2;
const SCOPE: &str = "charges";

#[derive(Debug, PartialEq)]
struct Foreign(String);

#[idempotent(
    key = (order.id, "part"),
    by = key,
    scene = "billing",
    scope = SCOPE,
    prefix = "shop",
    tenant = order.tenant,
    with = e,
    lease = "30s",
    max_run = "1h 30m",
    retain = forever,
    max_retries = RETRIES + 1,
    on_in_flight = wait("2s"),
    on_lease_lost = finish,
    on_expiry = park,
    on_store_error = fail,
    fingerprint = order.amount,
    codec = idempotent::Json,
    reply = idempotent::reply::DefaultReply,
    reject = |rejection| Err(Foreign(rejection.to_string())),
    failed_if = |declined| *declined,
    permanent = |error| error.0 == "gone",
    describe = |error| error.0.clone(),
    max_result = "1MiB",
    release_on_cancel,
    message = "on its way",
    crate = ::idempotent,
)]
async fn pay(e: &Executor, order: Order, answer: Result<bool, Foreign>) -> Result<bool, Foreign> {
    answer
}

#[derive(Clone, Copy)]
struct Order {
    id: u64,
    tenant: &'static str,
    amount: u64,
}

#[idempotent(key = const { ONE }, detach, max_retries = 0, on_in_flight = retry, on_expiry = takeover, on_lease_lost = abort)]
async fn detached() -> Result<u8, Rejection> {
    Ok(Executor::current().is_some().into())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    let order = Order { id: 1, tenant: "t", amount: 5 };
    assert_eq!(pay(&e, order, Ok(true)).await, Ok(true)); // declined: not done
    assert_eq!(pay(&e, order, Ok(false)).await, Ok(false));
    assert_eq!(pay(&e, order, Ok(true)).await, Ok(false)); // replayed
    let Err(Foreign(text)) = pay(&e, Order { amount: 6, ..order }, Ok(true)).await else { panic!("ran") };
    assert!(text.contains("payload"), "{text}");
    let other = Order { tenant: "u", ..order };
    let gone = || Err(Foreign("gone".into()));
    let (answer, outcome) = Outcome::capture(pay(&e, other, gone())).await;
    assert_eq!((answer, outcome), (gone(), Some(Outcome::Failed)));
    assert_eq!(e.scope(detached()).await.unwrap(), 1);
}

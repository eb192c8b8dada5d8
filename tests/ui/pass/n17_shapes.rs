//! Every shape of handler; each is called twice and runs once.
#![deny(warnings)]
#![allow(clippy::needless_lifetimes)]
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent::{Codec, CodecError, Disposition, Executor, KeyPart, Lease, MemoryStore, Rejection, idempotent};

const ONE: u8 = 1;
static RUNS: AtomicU32 = AtomicU32::new(0);

fn ran() {
    RUNS.fetch_add(1, SeqCst);
}

struct Order {
    id: String,
    amount: u64,
}

fn order(id: &str) -> Order {
    Order { id: id.into(), amount: 41 }
}

/// Free, with the executor in scope; `?` on a foreign error; the body moves what the key was made of.
#[idempotent(scene = mq, key = order.id)]
async fn free(order: Order) -> anyhow::Result<u64> {
    ran();
    let one: u64 = "1".parse()?;
    Ok(moved(order) + one)
}

fn moved(order: Order) -> u64 {
    order.amount
}

#[idempotent(key = id, with = executor, codec = idempotent::Discard)]
async fn generic<K, T>(executor: Arc<Executor>, id: K, value: T) -> anyhow::Result<Option<T>>
where
    K: KeyPart + Clone,
    T: Send,
{
    ran();
    Ok(Some(value))
}

struct Service {
    idem: Executor,
    calls: u32,
}

impl Service {
    #[idempotent(scene = "stock", key = (tenant, &order.id), with = self.idem)]
    async fn by_ref(&self, tenant: u32, order: &Order) -> Result<String, Rejection> {
        ran();
        Ok(format!("{tenant}:{}", order.id))
    }

    /// Docs and visibility stay.
    #[must_use = "the answer may be a rejection"]
    #[idempotent(key = text, with = self.idem)]
    pub(crate) async fn by_mut<'a>(&mut self, text: &'a str) -> Result<u32, Rejection> {
        ran();
        self.calls += 1;
        Ok(self.calls)
    }

    #[idempotent(key = (a, b.to_string()), with = self.idem)]
    async fn by_arc(self: Arc<Self>, (a, _): (u8, u8), b: impl Display + Send + Sync) -> Result<String, Rejection> {
        ran();
        Ok(format!("{a}{b}{}", self.calls))
    }

    #[idempotent(key = ONE, with = self.idem)]
    async fn by_value(mut self, mut n: u32) -> Result<u32, Rejection> {
        ran();
        n += 1;
        self.calls += n;
        Ok(self.calls)
    }

    #[idempotent(key = id, with = executor)]
    async fn associated(executor: &Executor, id: u8) -> Result<u8, Rejection> {
        ran();
        Ok(id)
    }
}

struct Other;

impl Other {
    #[idempotent(key = id, with = executor)]
    async fn associated(executor: &Executor, id: u8) -> Result<u8, Rejection> {
        ran();
        Ok(id)
    }
}

trait Native {
    async fn native(&self, order: Order) -> Disposition;
}

impl Native for Service {
    #[idempotent(key = order.id, with = self.idem)]
    async fn native(&self, order: Order) -> Disposition {
        ran();
        if order.amount == 0 {
            return Disposition::DeadLetter { reason: "zero".into() };
        }
        Disposition::Ack
    }
}

trait WithDefault: Sync {
    fn executor(&self) -> &Executor;

    #[idempotent(key = key, with = self.executor())]
    async fn by_default<K: KeyPart + Send + Sync>(&self, key: K) -> Result<(), Rejection> {
        ran();
        Ok(())
    }
}

impl WithDefault for Service {
    fn executor(&self) -> &Executor {
        &self.idem
    }
}

#[async_trait::async_trait]
trait Dyn: Send + Sync {
    async fn boxed(&self, order: Order) -> anyhow::Result<String>;
    async fn patterns(&self, pair: (u8, u8), mut n: u32) -> Result<u32, Rejection>;
    async fn nothing(self: Arc<Self>, id: u8) -> Result<(), Rejection>;
}

#[async_trait::async_trait]
impl Dyn for Service {
    #[idempotent(key = order.id, with = self.idem, fingerprint = order.amount)]
    async fn boxed(&self, order: Order) -> anyhow::Result<String> {
        ran();
        let one: u32 = "1".parse()?;
        Ok(format!("{}{}", order.id, one + self.calls))
    }

    #[idempotent(key = (a, b), with = self.idem)]
    async fn patterns(&self, (a, b): (u8, u8), mut n: u32) -> Result<u32, Rejection> {
        ran();
        n += u32::from(a) + u32::from(b);
        Ok(n)
    }

    #[idempotent(key = id, with = self.idem)]
    async fn nothing(self: Arc<Self>, id: u8) -> Result<(), Rejection> {
        ran();
        assert_eq!(Lease::current().map(|lease| lease.attempt()), Some(1), "{id}");
        Ok(())
    }
}

/// A coercion to a trait object in the return value.
#[idempotent(key = id, with = executor, codec = Kept)]
async fn coerced(executor: &Executor, id: u64) -> Result<Box<dyn Fn() -> u32 + Send + Sync>, anyhow::Error> {
    ran();
    Ok(Box::new(|| 7))
}

struct Kept;

impl Codec<Box<dyn Fn() -> u32 + Send + Sync>> for Kept {
    fn encode(_: &Box<dyn Fn() -> u32 + Send + Sync>) -> Result<Option<Vec<u8>>, CodecError> {
        Ok(None)
    }
    fn decode(_: Option<&[u8]>) -> Result<Box<dyn Fn() -> u32 + Send + Sync>, CodecError> {
        Ok(Box::new(|| 7))
    }
}

// A glob import in the body that hides the return type's name.
type Foo = Result<u8, Rejection>;

#[allow(dead_code)]
enum Bar {
    Foo,
}

#[idempotent(key = ONE, with = e)]
async fn shadowed(e: &Executor) -> Foo {
    #![allow(unused_imports)]
    use Bar::*;
    ran();
    Ok(1)
}

/// What `#[async_trait]` writes, by hand.
#[idempotent(key = id, with = e)]
fn boxed_by_hand(e: &Executor, id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Rejection>> + Send + '_>> {
    Box::pin(async move {
        ran();
        Ok(id)
    })
}

fn is_send<T: Send>(value: T) -> T {
    value
}

fn once() {
    assert_eq!(RUNS.swap(0, SeqCst), 1);
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    let service = || Service { idem: e.clone(), calls: 0 };

    assert!(free(order("a")).await.is_err(), "no executor");
    for _ in 0..2 {
        assert_eq!(e.scope(is_send(free(order("a")))).await.unwrap(), 42);
    }
    once();
    let shared = Arc::new(e.clone());
    assert_eq!(generic(shared.clone(), "g", 7).await.unwrap(), Some(7));
    assert_eq!(generic(shared, "g", 7).await.unwrap(), None);
    once();
    let mut one = service();
    for _ in 0..2 {
        assert_eq!(one.by_ref(1, &order("a")).await.unwrap(), "1:a");
    }
    once();
    for _ in 0..2 {
        assert_eq!(one.by_mut("x").await.unwrap(), 1);
    }
    once();
    for _ in 0..2 {
        assert_eq!(Arc::new(service()).by_arc((1, 2), 'z').await.unwrap(), "1z0");
    }
    once();
    for _ in 0..2 {
        assert_eq!(service().by_value(1).await.unwrap(), 2);
    }
    once();
    for _ in 0..2 {
        assert_eq!(Service::associated(&e, 1).await.unwrap(), 1);
    }
    once();
    assert_eq!(Other::associated(&e, 1).await.unwrap(), 1);
    once();
    for _ in 0..2 {
        assert_eq!(one.native(order("a")).await, Disposition::Ack);
    }
    once();
    for _ in 0..2 {
        one.by_default(3u8).await.unwrap();
    }
    once();
    let dynamic: Arc<dyn Dyn> = Arc::new(service());
    for _ in 0..2 {
        assert_eq!(dynamic.boxed(order("a")).await.unwrap(), "a1");
    }
    once();
    for _ in 0..2 {
        assert_eq!(dynamic.patterns((1, 2), 3).await.unwrap(), 6);
    }
    once();
    for _ in 0..2 {
        dynamic.clone().nothing(1).await.unwrap();
    }
    once();
    for _ in 0..2 {
        assert_eq!(coerced(&e, 1).await.unwrap()(), 7);
    }
    once();
    for _ in 0..2 {
        assert_eq!(shadowed(&e).await.unwrap(), 1);
    }
    once();
    for _ in 0..2 {
        assert_eq!(boxed_by_hand(&e, 1).await.unwrap(), 1);
    }
    once();
}

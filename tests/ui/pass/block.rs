//! The attribute on an `impl` or a trait. Each handler returns how often a handler has run.
#![deny(warnings)]
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent::store::StateKind;
use idempotent::{Executor, Identity, KeyPart, MemoryStore, Rejection, Scene, idempotent};

struct Orders<T> {
    idem: Executor,
    runs: AtomicU32,
    unit: T,
}

type Answer = Result<u32, Rejection>;

#[idempotent(key = order, with = self.idem, scope = "orders")]
impl<T: Send + Sync> Orders<T> {
    const LIMIT: u32 = 100;

    /// A function that is not `async` is left alone.
    fn new(unit: T) -> Self {
        Self { idem: Executor::new(MemoryStore::new()), runs: AtomicU32::new(0), unit }
    }

    fn ran(&self) -> u32 {
        (self.runs.fetch_add(1, SeqCst) + 1).min(Self::LIMIT)
    }

    async fn charge(&self, order: u32) -> Answer {
        assert!(order < 1000);
        Ok(self.ran())
    }

    /// The name is part of the scope: the same key is another call.
    async fn cancel(&self, order: u32) -> Answer {
        let _ = order;
        Ok(self.ran())
    }

    #[idempotent(key = (order, line))]
    async fn ship(&self, order: u32, line: u32) -> Answer {
        let _ = (order, line);
        Ok(self.ran())
    }

    #[idempotent(scope = "all returns", scene = rest, fingerprint = amount)]
    async fn r#return(&self, order: u32, amount: u32) -> Answer {
        let _ = (order, amount);
        Ok(self.ran())
    }

    #[idempotent(by = param, replay)]
    async fn search(&self, text: &str, page: u32) -> Answer {
        let _ = (text, page);
        Ok(self.ran())
    }

    #[idempotent]
    #[must_use = "the answer says what happened"]
    async fn with_attributes(&self, order: u32) -> Answer {
        let _ = order;
        Ok(self.ran())
    }

    #[idempotent(skip)]
    async fn count(&self, order: u32) -> u32 {
        let _ = (order, &self.unit);
        self.ran()
    }

    #[idempotent(skip)]
    fn future(&self) -> impl Future<Output = u32> {
        std::future::ready(self.ran())
    }
}

trait Native {
    type Key: KeyPart;
    async fn handle(&self, id: Self::Key) -> Answer;
}

#[idempotent(key = id, with = self.idem)]
impl<T: Send + Sync> Native for Orders<T> {
    type Key = u32;

    async fn handle(&self, id: u32) -> Answer {
        let _ = id;
        Ok(self.ran())
    }
}

#[idempotent(key = id, with = self.executor())]
trait Provided {
    fn executor(&self) -> &Executor;

    fn ran(&self) -> u32;

    #[idempotent(skip)]
    async fn declared(&self, id: u32) -> Answer;

    async fn provided(&self, id: u32) -> Answer {
        let _ = id;
        Ok(self.ran())
    }
}

impl<T: Send + Sync> Provided for Orders<T> {
    fn executor(&self) -> &Executor {
        &self.idem
    }

    fn ran(&self) -> u32 {
        self.ran()
    }

    async fn declared(&self, id: u32) -> Answer {
        self.provided(id).await
    }
}

#[async_trait]
trait Dyn {
    async fn above(&self, id: u32) -> Answer;
    fn written_out<'a>(&'a self, id: u32) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
}

#[async_trait]
#[idempotent(key = id, with = self.idem)]
impl<T: Send + Sync> Dyn for Orders<T> {
    async fn above(&self, id: u32) -> Answer {
        let _ = id;
        Ok(self.ran())
    }

    fn written_out<'a>(&'a self, id: u32) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let _ = id;
            Ok(self.ran())
        })
    }
}

#[async_trait]
trait Below {
    async fn below(&self, pair: (u32, u32)) -> Answer;
}

#[idempotent(key = id, with = self.idem)]
#[async_trait]
impl<T: Send + Sync> Below for Orders<T> {
    async fn below(&self, (id, other): (u32, u32)) -> Answer {
        let _ = other;
        if id == 7 {
            return Ok(self.ran());
        }
        Ok(0)
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let orders = Orders::new("kg");
    for _ in 0..2 {
        assert_eq!(orders.charge(7).await.unwrap(), 1);
        assert_eq!(orders.cancel(7).await.unwrap(), 2);
        assert_eq!(orders.ship(7, 1).await.unwrap(), 3);
        assert_eq!(orders.ship(7, 2).await.unwrap(), 4);
        assert_eq!(orders.r#return(7, 1).await.unwrap(), 5);
        assert_eq!(orders.search("tea", 1).await.unwrap(), 6);
        assert_eq!(orders.search("tea", 2).await.unwrap(), 7);
        assert_eq!(orders.with_attributes(7).await.unwrap(), 8);
        assert_eq!(orders.handle(7).await.unwrap(), 9);
        assert_eq!(orders.provided(7).await.unwrap(), 10);
        assert_eq!(orders.declared(7).await.unwrap(), 10);
        assert_eq!(orders.above(7).await.unwrap(), 11);
        assert_eq!(orders.written_out(7).await.unwrap(), 12);
        assert_eq!(orders.below((7, 8)).await.unwrap(), 13);
    }
    assert!(matches!(orders.r#return(7, 2).await, Err(Rejection::Mismatch)));
    assert_eq!((orders.count(7).await, orders.count(7).await, orders.future().await), (14, 15, 16));

    for (scene, scope) in [(Scene::Mq, "orders.charge"), (Scene::Mq, "orders.cancel"), (Scene::Rest, "all returns")] {
        let key = Identity::new(scene, scope, &7_u32).key(orders.idem.namespace()).unwrap();
        let record = orders.idem.store().peek(&key).await.unwrap().unwrap();
        assert_eq!(record.state.kind(), StateKind::Consumed, "{scope}");
    }
}

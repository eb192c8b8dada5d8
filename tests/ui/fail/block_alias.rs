// expect: a function of this annotated block returns a future and is no `async fn`
use std::future::Future;
use std::pin::Pin;

use idempotent::{Rejection, idempotent};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Rejection>> + Send + 'a>>;
type Id = u64;

struct Orders;

struct Ready;

impl Future for Ready {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<u64> {
        std::task::Poll::Ready(1)
    }
}

#[idempotent(key = id)]
impl Orders {
    async fn charge(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    fn cancel(&self, id: u64) -> Answer<'_, u64> {
        self.later(id)
    }

    #[idempotent(skip)]
    fn later(&self, id: u64) -> Answer<'_, u64> {
        Box::pin(std::future::ready(Ok(id)))
    }

    fn refund<T: Send + 'static>(&self, id: T) -> Option<Answer<'static, T>> {
        Some(Box::pin(std::future::ready(Ok(id))))
    }

    fn ready(&self, _id: u64) -> Ready {
        Ready
    }

    fn same(&self, id: Id) -> Id {
        id
    }
}

#[idempotent(key = id)]
trait Handle {
    fn declared(&self, id: u64) -> Answer<'_, u64>;

    fn plain(&self, id: u64) -> Result<Id, Rejection>;

    async fn by_default(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

fn main() {
    let orders = Orders;
    let _ = (orders.charge(1), orders.cancel(1), orders.refund(1), orders.ready(1), orders.same(1));
}

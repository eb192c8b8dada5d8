// expect: no argument named `order`
use std::future::Future;
use std::pin::Pin;

use idempotent::{Executor, Rejection, idempotent};

struct Orders {
    idem: Executor,
}

// What the block gives does not fit each function.
#[idempotent(key = order.id, with = self.idem, retain = "1h")]
impl Orders {
    async fn cancel(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    #[idempotent(key = order)]
    async fn connect(order: u64) -> Result<u64, Rejection> {
        Ok(order)
    }

    async fn refund(&self, order: &str) -> Result<usize, Rejection> {
        Ok(order.len())
    }

    #[idempotent(key = id, lease = "2h")]
    async fn ship(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    #[idempotent(key = idd)]
    async fn slip(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    #[idempotent(key = id, leese = "1s")]
    async fn typo(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    #[idempotent(skip, lease = "1s")]
    async fn half(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    #[idempotent(key = id)]
    fn count(&self, id: u64) -> u64 {
        id
    }

    fn future(&self, id: u64) -> impl Future<Output = Result<u64, Rejection>> {
        std::future::ready(Ok(id))
    }

    fn boxed(&self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Rejection>>>> {
        Box::pin(std::future::ready(Ok(id)))
    }

    #[idempotent(key = id)]
    #[idempotent(key = id)]
    async fn twice(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

// One mistake of the block is one error.
#[idempotent(key = id, scene = rset)]
impl Orders {
    async fn one(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }

    async fn two(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

#[idempotent(scene = mq)]
impl Orders {
    async fn keyless(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

#[idempotent(key = id, skip)]
impl Orders {
    async fn skipped(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

#[idempotent(key = id)]
trait Handle {
    type Error;

    async fn handle(&self, id: u64) -> Result<u64, Rejection>;

    async fn by_default(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

macro_rules! functions {
    () => {
        async fn hidden(&self, id: u64) -> Result<u64, Rejection> {
            Ok(id)
        }
    };
}

#[idempotent(key = id)]
impl Orders {
    functions!();
}

#[idempotent(key = id)]
impl Orders {
    #[idempotent(skip)]
    const LIMIT: u64 = 1;
}

use idempotent::idempotent as once;

#[idempotent(key = id)]
impl Orders {
    #[once(key = id)]
    async fn renamed(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id)
    }
}

#[idempotent(skip)]
async fn free(id: u64) -> Result<u64, Rejection> {
    Ok(id)
}

fn main() {
    let _ = free(1);
}

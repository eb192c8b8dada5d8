//! Above or below `#[tracing::instrument]`.
#![deny(warnings)]
use idempotent::{Executor, MemoryStore, Rejection, idempotent};
use tracing::instrument;

#[instrument(skip(e))]
#[idempotent(key = id, with = e)]
async fn span_outside(e: &Executor, id: u64) -> anyhow::Result<u64> {
    Ok(id + 1)
}

#[idempotent(key = id, with = e)]
#[instrument(skip(e), err)]
async fn span_inside(e: &Executor, id: u64) -> anyhow::Result<u64> {
    Ok(id + 1)
}

struct Service(Executor);

#[async_trait::async_trait]
trait Handle {
    async fn outside(&self, id: u64) -> Result<u64, Rejection>;
    async fn inside(&self, id: u64) -> Result<u64, Rejection>;
}

#[async_trait::async_trait]
impl Handle for Service {
    #[instrument(skip(self))]
    #[idempotent(key = id, with = self.0)]
    async fn outside(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id + 1)
    }

    #[idempotent(key = id, with = self.0)]
    #[instrument(skip(self))]
    async fn inside(&self, id: u64) -> Result<u64, Rejection> {
        Ok(id + 1)
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    let service = Service(e.clone());
    for _ in 0..2 {
        assert_eq!(span_outside(&e, 1).await.unwrap(), 2);
        assert_eq!(span_inside(&e, 1).await.unwrap(), 2);
        assert_eq!(service.outside(1).await.unwrap(), 2);
        assert_eq!(service.inside(1).await.unwrap(), 2);
    }
}

//! A store without order tables.
use super::sequence::numbered;
use super::*;
use async_trait::async_trait;
use idempotent::{
    Abilities, Claim, ClaimRequest, Completion, Held, Key, MemoryStore, Record, Release, Settled, Store, StoreError,
};

/// Everything a store must do, and no more.
#[derive(Debug)]
struct Plain(MemoryStore);

#[async_trait]
impl Store for Plain {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }
    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        self.0.renew(held, lease).await
    }
    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        self.0.complete(held, done).await
    }
    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }
    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }
}

#[test]
fn a_store_without_order_tables_is_refused_with_the_remedy() {
    common::runtime().block_on(async {
        let clock = idempotent_testkit::VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let world = World::over(Plain(store), clock);
        let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
        let (outcome, answer) = worker.deliver_call(numbered("ann", 1), &job).await;
        assert_eq!((outcome, job.runs()), (Outcome::Misconfigured, 0));
        let told = answer.unwrap_err().to_string();
        assert!(told.contains("the ability `order`") && told.contains("`after = …`"), "{told}");
        let refused = worker.executor.register(&id("ann"), [1]).await.unwrap_err();
        assert!(refused.to_string().contains("the ability `order`"), "{refused}");
    });
}

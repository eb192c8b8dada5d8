//! A store without order tables.
use super::sequence::numbered;
use super::*;
use crate::bare::Bare;
use idempotent::MemoryStore;

#[test]
fn a_store_without_order_tables_is_refused_with_the_remedy() {
    crate::common::runtime().block_on(async {
        let clock = idempotent_testkit::VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let world = World::over(Bare::of(store), clock);
        let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
        let (outcome, answer) = worker.deliver_call(numbered("ann", 1), &job).await;
        assert_eq!((outcome, job.runs()), (Outcome::Misconfigured, 0));
        let told = answer.unwrap_err().to_string();
        assert!(told.contains("the ability `order`") && told.contains("`after = …`"), "{told}");
        let refused = worker.executor.register(&id("ann"), [1]).await.unwrap_err();
        assert!(refused.to_string().contains("the ability `order`"), "{refused}");
    });
}

//! A store without order tables, and one without room for another table.
use super::sequence::numbered;
use super::*;
use crate::without_capabilities::Bare;
use idempotent::{MemoryStore, Store, StoreErrorKind};

#[test]
fn a_store_without_order_tables_is_refused_with_the_remedy() {
    crate::common::runtime().block_on(async {
        let clock = idempotent_testkit::VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let world = World::over(Bare(store), clock);
        let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
        let (outcome, answer) = worker.deliver_call(numbered("ann", 1), &job).await;
        assert_eq!((outcome, job.runs()), (Outcome::Misconfigured, 0));
        let told = answer.unwrap_err().to_string();
        assert!(told.contains("the capability `order`") && told.contains("`after = …`"), "{told}");
        let refused = worker.executor.register(&id("ann"), [1]).await.unwrap_err();
        assert!(refused.to_string().contains("the capability `order`"), "{refused}");
    });
}

/// Its callers choose the streams: without a bound they would fill the process's memory.
#[test]
fn a_memory_store_keeps_at_most_as_many_order_tables_as_records_and_evicts_expired_ones() {
    crate::common::runtime().block_on(async {
        let clock = idempotent_testkit::VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).max_entries(10).build();
        let order = store.capabilities().order.unwrap();
        let draw = async |stream: String, seen: Option<&[u8]>, keep: u64| {
            order.compare_and_swap(&key_of(&stream), seen, b"line", Duration::from_secs(keep)).await
        };
        for n in 0..10 {
            assert!(draw(format!("{n}"), None, 60 + n).await.unwrap());
        }
        let refused = draw("more".to_owned(), None, 60).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::NotApplied);
        assert!(refused.to_string().contains("full with 10 ordered streams; raise max_entries"), "{refused}");
        assert!(draw("9".to_owned(), Some(b"line"), 69).await.unwrap(), "one that has a table goes on");
        assert!(!draw("more".to_owned(), Some(b"line"), 60).await.unwrap(), "not as seen, which needs no room");
        // Two are past their time.
        clock.advance(Duration::from_millis(61_500)).await;
        for n in 10..12 {
            assert!(draw(format!("{n}"), None, 60).await.unwrap());
        }
        assert!(draw("12".to_owned(), None, 60).await.is_err());
        // Nothing but new streams: the old ones go without a purge.
        for n in 0..2_000 {
            clock.advance(Duration::from_secs(61)).await;
            assert!(draw(format!("new {n}"), None, 60).await.unwrap());
        }
    });
}

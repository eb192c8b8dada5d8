//! Members with a local tier each, over a store that they share.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore, SystemClock, TieredStore};
use idempotent_mq::{KeyFrom, Message, MessageHandler, Messages};
use idempotent_sqlx::SqliteTier;
use idempotent_testkit::FaultStore;
use rdkafka::message::OwnedHeaders;
use tokio::time::timeout;

use crate::world::{LIMIT, Running, World};

/// A group that reads two partitions, with one key in each of them.
struct Group {
    world: World,
    /// The shared store, which logs its calls.
    shared: FaultStore,
    runs: Arc<AtomicU32>,
}

struct Member {
    store: TieredStore,
    running: Running,
}

impl Group {
    async fn new() -> Self {
        let shared = FaultStore::on_clock(MemoryStore::new(), Arc::new(SystemClock::new()));
        Self { world: World::new(2).await, shared, runs: Arc::default() }
    }

    /// Starts a member with a local tier in this file.
    async fn member(&self, file: &Path) -> Member {
        let local = SqliteTier::open(file.display().to_string()).await.unwrap();
        let store = TieredStore::builder(self.shared.clone(), local);
        let store = store.max_age(Duration::from_secs(3600)).patience(LIMIT).build();
        let executor = Executor::new(store.clone());
        let running = self.world.run_on(self.world.source().await, &executor, self.handling());
        Member { store, running }
    }

    fn handling(&self) -> MessageHandler {
        let runs = self.runs.clone();
        Messages::raw().keyed(KeyFrom::business_key()).run(move |_: Message<()>| {
            runs.fetch_add(1, SeqCst);
            async { Ok::<_, String>(()) }
        })
    }

    /// Sends the message of each partition, and waits until both are settled.
    async fn send_all(&self) {
        let mut sent = Vec::new();
        for partition in [0, 1] {
            let key = format!("order-{partition}");
            let offset = self.world.send_to(partition, Some(key.as_bytes()), Some(b"x"), OwnedHeaders::new()).await;
            sent.push((partition, offset));
        }
        for (partition, offset) in sent {
            self.world.until_committed(partition, offset + 1).await;
        }
    }

    /// Returns the number of calls that the shared store has received.
    fn calls(&self) -> usize {
        self.shared.log().len()
    }
}

#[tokio::test]
async fn a_member_answers_duplicates_from_its_file_and_a_new_owner_asks_the_shared_store() {
    let folder = tempfile::tempdir().unwrap();
    let [of_first, of_second] = ["first.db", "second.db"].map(|name| folder.path().join(name));
    let group = Group::new().await;
    let first = group.member(&of_first).await;
    group.send_all().await;
    let calls = group.calls();
    group.send_all().await;
    assert_eq!((group.calls(), first.store.counts().hits), (calls, 2), "the first member answers");

    let second = group.member(&of_second).await;
    // Duplicates, until the second member has received one of them.
    let moving = async {
        while second.store.counts().misses == 0 {
            group.send_all().await;
        }
    };
    timeout(LIMIT, moving).await.unwrap();
    let counts = second.store.counts();
    assert_eq!(counts.repaired, counts.misses, "the shared store knows the keys");
    assert!(group.calls() > calls);

    second.running.ended().await.unwrap();
    let (calls, hits) = (group.calls(), first.store.counts().hits);
    group.send_all().await;
    assert_eq!((group.calls(), first.store.counts().hits), (calls, hits + 2), "the first member still knows both keys");

    first.running.ended().await.unwrap();
    let first = group.member(&of_first).await;
    group.send_all().await;
    assert_eq!((group.calls(), first.store.counts().hits), (calls, 2), "the facts survive a restart");
    first.running.ended().await.unwrap();
    assert_eq!(group.runs.load(SeqCst), 2, "each key ran once");
}

//! The consumer on several threads and the machine's own clock: what a virtual clock in one thread cannot show.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Executor, MemoryStore};
use idempotent_mq::{
    Consumer, DeadLetter, DelaySupport, Delivery, HandlerResult, KeyFrom, Message, Messages, Position, Received,
    Settle, Settlement, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::sync::mpsc;

include!("../../src/docs/queue.rs");

const MESSAGES: u64 = 2_000;

/// The queue of the guide, with a count of acknowledgements.
struct Counting(QueueSource, Arc<AtomicU64>);
struct CountingSettler(Arc<dyn Settle<()>>, Arc<AtomicU64>);

#[async_trait]
impl Source for Counting {
    type Tag = ();
    fn capabilities(&self) -> SourceCapabilities {
        // Kept alive all the time: that must not get in anybody's way.
        self.0.capabilities().keep_alive(Duration::from_millis(1))
    }
    fn settler(&self) -> Arc<dyn Settle<()>> {
        Arc::new(CountingSettler(self.0.settler(), self.1.clone()))
    }
    async fn receive(&mut self, room: usize) -> Result<Received<()>, SourceError> {
        self.0.receive(room).await
    }
    async fn close(&mut self) {
        self.0.close().await;
    }
}

#[async_trait]
impl Settle<()> for CountingSettler {
    async fn settle(&self, delivery: &Delivery, tag: &(), settlement: &Settlement) -> Result<(), SourceError> {
        if *settlement == Settlement::Ack {
            self.1.fetch_add(1, SeqCst);
            return Ok(());
        }
        self.0.settle(delivery, tag, settlement).await
    }
    async fn keep_alive(&self, held: &[&()]) -> Result<(), SourceError> {
        self.0.keep_alive(held).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_each_message_runs_once_in_its_keys_order_and_all_are_acknowledged() {
    let (queue, source) = queue();
    let acked = Arc::new(AtomicU64::new(0));
    let executor = Executor::new(MemoryStore::new());
    let runs = Arc::new(AtomicU64::new(0));
    let last: Arc<Vec<AtomicU64>> = Arc::new((0..16).map(|_| AtomicU64::new(0)).collect());
    let (counted, lasts) = (runs.clone(), last.clone());
    let handling = Messages::json()
        .ordered_by(KeyFrom::body("lane", |number: &u64| number % 16))
        .keyed(KeyFrom::body("number", |number: &u64| *number))
        .run(move |message: Message<u64>| {
            let (runs, last) = (counted.clone(), lasts.clone());
            async move {
                tokio::task::yield_now().await;
                runs.fetch_add(1, SeqCst);
                let lane = usize::try_from(message.body % 16).unwrap();
                // In order: nothing of this lane that came later has run.
                let before = last[lane].fetch_max(message.body, SeqCst);
                if before > message.body {
                    return HandlerResult::Never { reason: "out of order".into() };
                }
                HandlerResult::Done
            }
        });
    let consumer = Consumer::builder(Counting(source, acked.clone()), "threads", &executor)
        .concurrency(32)
        .prefetch(200)
        .build(handling)
        .unwrap();
    for number in 1..=MESSAGES {
        for _ in 0..2 {
            queue.messages.send(Delivery::new(Position::of("numbers"), number.to_string().into())).unwrap();
        }
    }
    let all = acked.clone();
    let done = async move {
        while all.load(SeqCst) < 2 * MESSAGES {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let counts = tokio::time::timeout(Duration::from_secs(60), consumer.run(done)).await.unwrap().unwrap();
    assert_eq!((runs.load(SeqCst), counts.acked, counts.ended()), (MESSAGES, 2 * MESSAGES, counts.received));
    assert_eq!((counts.dead_lettered, counts.unsettled), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_delay_the_end() {
    let (queue, source) = queue();
    let executor = Executor::new(MemoryStore::new());
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let blocks = wait.clone();
    let handling = Messages::raw().unprotected(move |_| {
        let wait = blocks.clone();
        async move {
            let _ = wait.lock().unwrap().recv();
            HandlerResult::Done
        }
    });
    let consumer =
        Consumer::builder(source, "threads", &executor).grace(Duration::from_millis(10)).build(handling).unwrap();
    queue.messages.send(Delivery::new(Position::of("numbers"), Vec::new())).unwrap();
    let blocked = async move {
        // The lock is taken while the handler runs.
        while wait.try_lock().is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let counts = tokio::time::timeout(Duration::from_secs(30), consumer.run(blocked)).await;
    drop(go_on);
    let counts = counts.unwrap().unwrap();
    assert_eq!((counts.received, counts.ended(), counts.acked), (1, 0, 0));
}

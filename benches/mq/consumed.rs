//! A consumer that handles a filled queue, and the time that it takes.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use idempotent::Executor;
use idempotent::mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, MessageHandler, Messages, Source};

use crate::cpu;

/// The time from the first delivery to the last acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Consumed {
    pub wall: Duration,
    /// The processor time of this process.
    pub here: Duration,
}

/// The start time, and the processor time until then.
pub struct Begun(Instant, Duration);

impl Begun {
    pub fn now() -> Self {
        Self(Instant::now(), cpu::spent(std::process::id()))
    }

    pub fn ended(&self) -> Consumed {
        Consumed { wall: self.0.elapsed(), here: cpu::spent(std::process::id()).saturating_sub(self.1) }
    }
}

/// A handler that does nothing, and the time of its first call.
pub struct TimedHandler {
    handler: MessageHandler,
    begun: Arc<OnceLock<Begun>>,
}

type Handler = Box<dyn Fn(Message<()>) -> std::future::Ready<HandlerResult> + Send + Sync>;

impl TimedHandler {
    /// Creates a handler without keys.
    pub fn unprotected() -> Self {
        Self::new(|handler| Messages::raw().unprotected(handler))
    }

    /// Creates a handler with the message id as the key.
    pub fn keyed() -> Self {
        Self::new(|handler| Messages::raw().keyed(KeyFrom::message_id()).run(handler))
    }

    fn new(with: impl FnOnce(Handler) -> MessageHandler) -> Self {
        let begun = Arc::new(OnceLock::new());
        let noted = begun.clone();
        let handler: Handler = Box::new(move |_| {
            noted.get_or_init(Begun::now);
            std::future::ready(HandlerResult::Done)
        });
        Self { handler: with(handler), begun }
    }

    /// Consumes `messages` existing messages, of which the consumer holds at most `prefetch`.
    pub async fn consume(self, source: impl Source, executor: &Executor, prefetch: usize, messages: u64) -> Consumed {
        let consumer = Consumer::builder(source, "orders", executor).concurrency(prefetch).prefetch(prefetch);
        let consumer = consumer.build(self.handler).unwrap();
        let (counters, begun) = (consumer.counters(), self.begun);
        let mut consumed = None;
        let counts = consumer.run(async { consumed = Some(all(&counters, &begun, messages).await) }).await.unwrap();
        assert_eq!((counts.acked, counts.received), (messages, messages), "{counts:?}");
        consumed.unwrap()
    }
}

async fn all(counters: &ConsumerCounters, begun: &OnceLock<Begun>, messages: u64) -> Consumed {
    while counters.counts().acked < messages {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begun.get().unwrap().ended()
}

/// Returns new numbers for messages.
pub fn numbers(messages: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(messages, Relaxed)
}

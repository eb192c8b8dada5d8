//! A source as RocketMQ's client would have it: a listener on a thread of its own, which must return its answer, and
//! knows only "done" and "later".

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Executor, MemoryStore, Policy, Redelivery, Scene};
use idempotent_mq::{
    Consumer, DelaySupport, Delivery, HandlerResult, KeyFrom, Messages, Position, Received, Settle, Settlement, Source,
    SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::sync::mpsc as channel;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Success,
    Later,
}

/// An item of the source's channel: a message, and the channel for the result.
type Asked = (Delivery, Tag);

/// A settlement may fail and be tried again, so tags are lent: the answer is taken out once.
type Tag = Mutex<Option<mpsc::Sender<Status>>>;

struct Listener {
    messages: channel::UnboundedReceiver<Asked>,
}

struct Answers;

#[async_trait]
impl Source for Listener {
    type Tag = Tag;

    fn capabilities(&self) -> SourceCapabilities {
        let steps = [10, 10, 10, 10, 10].map(Duration::from_millis);
        SourceCapabilities::new(DelaySupport::ByBroker)
            .counts()
            .redelivery(Redelivery::after(steps).deferrals_are_free())
    }

    fn settler(&self) -> Arc<dyn Settle<Tag>> {
        Arc::new(Answers)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<Tag>, SourceError> {
        let mut taken = Vec::new();
        match self.messages.recv_many(&mut taken, room).await {
            0 => Err(SourceError::new(SourceErrorKind::Fatal, "the client has stopped")),
            _ => Ok(Received::Deliveries(taken)),
        }
    }

    async fn close(&mut self) {
        self.messages.close();
        // What was not handed over: its sender is dropped, and its listener answers "later".
        while self.messages.recv().await.is_some() {}
    }
}

#[async_trait]
impl Settle<Tag> for Answers {
    async fn settle(&self, _: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError> {
        let status = match settlement {
            Settlement::Ack => Status::Success,
            Settlement::Retry(_) | Settlement::GiveBack => Status::Later,
            // A real adapter publishes the letter first.
            _ => Status::Success,
        };
        let gone = || SourceError::new(SourceErrorKind::Gone, "its listener does not wait any more");
        tag.lock().unwrap().take().ok_or_else(gone)?.send(status).map_err(|_| gone())
    }

    async fn keep_alive(&self, _: &[&Tag]) -> Result<(), SourceError> {
        Ok(())
    }
}

/// The client's side: calls the listener in a thread, again while it says "later".
fn deliver(messages: channel::UnboundedSender<Asked>, id: &'static str, said: Arc<Mutex<HashMap<&str, Vec<Status>>>>) {
    let listen = move |times: u32| {
        let (answer, answered) = mpsc::channel();
        let mut delivery = Delivery::new(Position::of("orders"), Vec::new()).id(id);
        delivery.delivered = Some(times);
        match messages.send((delivery, Mutex::new(Some(answer)))) {
            // Dropped unsettled, the message must come again.
            Ok(()) => answered.recv().unwrap_or(Status::Later),
            Err(_) => Status::Later,
        }
    };
    for times in 1..=6 {
        let status = listen(times);
        said.lock().unwrap().entry(id).or_default().push(status);
        if status == Status::Success {
            return;
        }
        thread::sleep(Duration::from_millis(10)); // the broker's own delay
    }
}

#[tokio::test]
async fn a_listener_that_blocks_its_thread_is_answered_for_each_message_by_itself() {
    let executor = Executor::builder(MemoryStore::new())
        .policy(Scene::Mq, Policy::new().retry_delay(Duration::from_millis(1)))
        .build()
        .unwrap();
    let (messages, listener) = channel::unbounded_channel();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        let runs = counted.clone();
        async move {
            let run = runs.fetch_add(1, SeqCst);
            match message.delivery.id.as_deref() {
                Some("fails") if run < 4 => HandlerResult::Again { after: None, error: "no stock".into() },
                Some("panics") if message.delivery.delivered == Some(1) => panic!("as told"),
                _ => HandlerResult::Done,
            }
        }
    });
    let consumer = Consumer::builder(Listener { messages: listener }, "listener", &executor).build(handling).unwrap();
    let said = Arc::<Mutex<HashMap<&str, Vec<Status>>>>::default();
    let threads: Vec<_> = ["good", "fails", "panics", "other"]
        .map(|id| {
            let (messages, said) = (messages.clone(), said.clone());
            thread::spawn(move || deliver(messages, id, said))
        })
        .into();
    let answered = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| thread.join().unwrap()));
    let stop = async {
        answered.await.unwrap();
    };
    let counts = tokio::time::timeout(Duration::from_secs(30), consumer.run(stop)).await.unwrap().unwrap();
    let said = said.lock().unwrap();
    assert_eq!((&said["good"][..], &said["other"][..]), (&[Status::Success][..], &[Status::Success][..]));
    assert_eq!(said["panics"], [Status::Later, Status::Success]);
    assert_eq!(said["fails"].last(), Some(&Status::Success));
    assert_eq!((counts.acked, counts.unsettled, counts.received), (4, 0, counts.ended()));
}

#[tokio::test]
async fn a_listener_whose_consumer_is_dropped_answers_later() {
    let executor = Executor::new(MemoryStore::new());
    let (messages, listener) = channel::unbounded_channel();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(|_| std::future::pending::<HandlerResult>());
    let consumer = Consumer::builder(Listener { messages: listener }, "listener", &executor).build(handling).unwrap();
    let consuming = tokio::spawn(consumer.run(std::future::pending()));
    let (answer, answered) = mpsc::channel();
    let delivery = Delivery::new(Position::of("orders"), Vec::new()).id("m1");
    messages.send((delivery, Mutex::new(Some(answer)))).unwrap();
    while executor.counts().deliveries() == 0 {
        tokio::task::yield_now().await;
    }
    consuming.abort();
    let status = tokio::task::spawn_blocking(move || answered.recv_timeout(Duration::from_secs(30)));
    assert_eq!(status.await.unwrap(), Err(mpsc::RecvTimeoutError::Disconnected));
}

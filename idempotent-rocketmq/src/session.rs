//! One client of a source: from its start to its end.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::{Delivery, SourceError};
use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, DefaultMQPushConsumer,
    MQPushConsumer, MessageListenerConcurrently,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_queue::MessageQueue;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::call_queue::{Announcer, Call, Stock, Told};
use crate::client::{Outbound, Sender, config, live};
use crate::drain::Ends;
use crate::error::{failed, transient};
use crate::queues::Place;
use crate::retry_headers::{Marked, TAGS};
use crate::settings::Settings;
use crate::tag::{Answer, RocketTag};
use crate::topics::provide;

/// A client that consumes, and what was taken from it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    pub(crate) sender: Arc<Sender>,
    pub(crate) ends: Ends,
    stock: Stock<Arrived>,
}

/// A message that was brought and not taken.
#[derive(Debug)]
struct Arrived {
    delivery: Delivery,
    marked: Marked,
    answer: oneshot::Sender<Answer>,
}

/// The consuming end of a session. Dropped, the session ends once all is answered that was taken.
#[derive(Debug)]
pub(crate) struct Intake(Arc<Session>);

/// Who has which queue is looked at this often. The client does so every 20 s, and when it is told that the group has
/// changed, which the broker's release 1.0 does not tell it.
const REBALANCE: Duration = Duration::from_secs(2);
/// What the client waits for calls that have been answered, and in vain for those that never will be.
const ANSWERED_MS: u64 = 500;
/// What the broker would give up after this many is only ever sent back to it where no copy could be stored.
const MOST_RETURNS: i32 = i32::MAX;

impl Intake {
    /// One try.
    pub(crate) async fn open(settings: &Arc<Settings>, prefetch: usize) -> Result<Self, SourceError> {
        let (ready, opened) = oneshot::channel();
        let settings = settings.clone();
        let listeners = prefetch.div_ceil(settings.batch);
        live(listeners, move |runtime| async move {
            match Life::begin(&runtime, settings, listeners).await {
                Ok(life) => {
                    // Where nobody waits any more this drops the intake, and so ends the session.
                    drop(ready.send(Ok(Self(life.session.clone()))));
                    life.last().await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        opened.await.unwrap_or_else(|_| Err(transient("the client could not be started; its log says why")))
    }

    /// At least one delivery, at most `room`.
    pub(crate) async fn next(&self, room: usize) -> Vec<(Delivery, RocketTag)> {
        let session = &self.0;
        let taken = session.stock.take(room).await;
        session.ends.took(taken.len());
        let tag = |Arrived { delivery, marked, answer }| (delivery, RocketTag::new(session.clone(), marked, answer));
        taken.into_iter().map(tag).collect()
    }

    pub(crate) async fn close(&self) {
        self.end();
        if self.0.ends.all_answered() {
            self.0.ends.over().await;
        }
    }

    fn end(&self) {
        self.0.ends.close();
        self.0.stock.close();
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is there while it lasts.
struct Life {
    session: Arc<Session>,
    consumer: DefaultMQPushConsumer,
}

impl Life {
    async fn begin(
        runtime: &Arc<ClientRuntime>,
        settings: Arc<Settings>,
        listeners: usize,
    ) -> Result<Self, SourceError> {
        let started = Sender::start(runtime, &settings.name_servers, &settings.group).await;
        let sender = Arc::new(started.map_err(|error| failed("no producer for copies", error))?);
        provide(&sender, &settings).await?;
        let (ends, stock) = (Ends::default(), Stock::default());
        let session = Arc::new(Session { settings, sender, ends, stock });
        let mut consumer = session.consumer(runtime, listeners).map_err(|error| failed("no consumer", error))?;
        let Settings { topic, retry_topic, .. } = &*session.settings;
        let subscribe = async {
            // Not by tags: see `wants`.
            consumer.subscribe(topic.as_str(), "*").await?;
            consumer.subscribe(retry_topic.as_str(), "*").await?;
            consumer.start().await
        };
        match subscribe.await {
            Ok(()) => Ok(Self { session, consumer }),
            Err(error) => {
                session.sender.end().await;
                Err(failed("the topic cannot be consumed", error))
            }
        }
    }

    /// Until all is answered that was taken.
    async fn last(mut self) {
        let Self { session, consumer } = &mut self;
        let Session { settings, ends, .. } = &**session;
        info!(target: "idempotent", topic = settings.topic, group = settings.group, "consuming");
        let mut suspended = false;
        loop {
            if ends.is_closing() {
                if ends.all_done() {
                    break;
                }
                if !std::mem::replace(&mut suspended, true) {
                    consumer.suspend().await;
                }
            }
            // A client that is not suspended has nothing to resume, but looks who has which queue.
            if tokio::time::timeout(REBALANCE, ends.changed()).await.is_err() && !suspended {
                consumer.resume().await;
            }
        }
        // Tells the broker how far it came, and that it goes.
        consumer.shutdown().await;
        ends.leave();
        session.sender.end().await;
        ends.finish();
        info!(target: "idempotent", topic = settings.topic, group = settings.group, "consumed");
    }
}

/// However a session ends, nobody waits for it.
impl Drop for Life {
    fn drop(&mut self) {
        self.session.ends.leave();
        self.session.ends.finish();
    }
}

impl Session {
    fn consumer(
        self: &Arc<Self>,
        runtime: &Arc<ClientRuntime>,
        listeners: usize,
    ) -> ClientResult<DefaultMQPushConsumer> {
        let settings = &self.settings;
        let threads = u32::try_from(listeners).unwrap_or(u32::MAX);
        let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
            .client_config(config(&settings.name_servers))
            .name_server_addr(settings.name_servers.as_str())
            .consumer_group(settings.group.as_str())
            // A group that is new begins with what is there: what was published before it came is not lost.
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .consume_thread_min(threads)
            .consume_thread_max(threads)
            .consume_message_batch_max_size(u32::try_from(settings.batch).unwrap_or(1))
            .max_reconsume_times(MOST_RETURNS)
            .await_termination_millis_when_shutdown(ANSWERED_MS)
            .build();
        let told = self.clone();
        consumer.register_consume_message_hook(Announcer(move |what| match what {
            Told::Begins(call) => told.stock.announce(call),
            Told::Ended(call) => told.stock.forget(&call),
        }))?;
        consumer.register_message_listener_concurrently(Listener(self.clone()));
        Ok(consumer)
    }

    /// By its tag. Looked at here: the broker of release 1.0 hands nothing over where it is asked for tags.
    fn wants(&self, message: &MessageExt) -> bool {
        self.settings.wants(message.properties().get(TAGS).map(|tag| tag.as_str()))
    }

    /// As it came by this queue.
    fn read(&self, message: &MessageExt, queue: &MessageQueue) -> (Delivery, Marked) {
        let properties = message.properties().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut marked = Marked::read(properties, message.flag());
        let settings = &self.settings;
        if queue.topic().as_str() == settings.topic {
            marked.place = Place::of(queue, message.queue_offset());
        }
        // The same on each trip: a copy says where the message itself lies, or nobody knows.
        let position = marked.place.as_ref().map(|place| place.position(&settings.topic));
        let body = message.body().filter(|_| !marked.is_empty());
        let position = position.unwrap_or_else(|| settings.position());
        let mut delivery = Delivery::new(position, body.map(|body| body.to_vec()).unwrap_or_default());
        delivery.id = marked.id().map(str::to_owned);
        delivery.business_key = marked.business_key().map(str::to_owned);
        delivery.headers = marked.headers();
        delivery.attempt = Some(marked.attempt.unwrap_or(1));
        delivery.redelivered = message.reconsume_times() > 0 || marked.attempt.is_some();
        delivery.expires_at = marked.expires_at(settings.expires_at_header.as_deref());
        delivery.first_at = marked.first_at;
        delivery.deaths = marked.deaths;
        (delivery, marked)
    }

    /// On the way back to the group as it was.
    pub(crate) fn returned(&self, marked: &Marked, body: &[u8], after: Duration) -> Outbound {
        Outbound {
            topic: self.settings.retry_topic.clone(),
            properties: marked.as_it_was(),
            flag: marked.flag,
            level: self.settings.ladder.level(after),
            body: body.to_vec(),
        }
    }
}

/// Called on threads that have nothing else to do.
struct Listener(Arc<Session>);

/// After which what was dropped comes again.
const SOON: Duration = Duration::from_secs(1);

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let session = &self.0;
        let (mut arrived, mut told) = (VecDeque::new(), Vec::new());
        // Copies were wanted once, whatever they look like.
        let queue = context.get_message_queue();
        let is_retry = queue.topic().as_str() == session.settings.retry_topic;
        for message in messages.iter().filter(|message| is_retry || session.wants(message)) {
            let (answer, when) = oneshot::channel();
            let (delivery, marked) = session.read(message, queue);
            arrived.push_back(Arrived { delivery, marked, answer });
            told.push((message, when));
        }
        let Some(first) = messages.first().filter(|_| !told.is_empty()) else {
            return Ok(ConsumeConcurrentlyStatus::ConsumeSuccess);
        };
        session.stock.bring(Call::new(queue, first.queue_offset()), arrived);
        let settled: Vec<bool> = told.into_iter().map(|(message, when)| self.wait(message, queue, when)).collect();
        Ok(match settled.into_iter().all(|settled| settled) {
            true => ConsumeConcurrentlyStatus::ConsumeSuccess,
            false => ConsumeConcurrentlyStatus::ReconsumeLater,
        })
    }
}

impl Listener {
    /// Until it is settled. `false`: nobody will, so that it has to come again by the broker.
    fn wait(&self, message: &MessageExt, queue: &MessageQueue, when: oneshot::Receiver<Answer>) -> bool {
        let Session { ends, sender, .. } = &*self.0;
        match when.blocking_recv() {
            Ok(Answer::Done) => {
                ends.done();
                true
            }
            // Taken, and dropped unsettled.
            Ok(Answer::Dropped) => {
                let (delivery, marked) = self.0.read(message, queue);
                let sent = sender.send_blocking(self.0.returned(&marked, &delivery.body, SOON));
                if let Err(unsent) = &sent {
                    let group = &self.0.settings.group;
                    warn!(target: "idempotent", group, ?unsent, "no copy of what was not settled: the client sends it back");
                }
                ends.done();
                sent.is_ok()
            }
            // Never taken: the session ends, and the broker is not told that this one was there.
            Err(_) => {
                ends.wait_to_leave();
                false
            }
        }
    }
}

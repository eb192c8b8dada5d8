//! The log of the dead letters on a real broker.
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::{Entropy, OsEntropy};
use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::{ClientError, ClientInstanceHandle, ClientResult, ClientRuntime};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::sys_flag::pull_sys_flag::PullSysFlag;
use rocketmq_protocol::code::request_code::RequestCode;
use rocketmq_protocol::code::response_code::ResponseCode;
use rocketmq_protocol::common::message::message_decoder::decodes_batch;
use rocketmq_protocol::protocol::body::request::lock_batch_request_body::LockBatchRequestBody;
use rocketmq_protocol::protocol::body::unlock_batch_request_body::UnlockBatchRequestBody;
use rocketmq_protocol::protocol::header::pull_message_request_header::PullMessageRequestHeader;
use rocketmq_protocol::protocol::header::pull_message_response_header::PullMessageResponseHeader;
use rocketmq_protocol::protocol::header::query_consumer_offset_request_header::QueryConsumerOffsetRequestHeader;
use rocketmq_protocol::protocol::header::update_consumer_offset_header::UpdateConsumerOffsetRequestHeader;
use rocketmq_protocol::protocol::remoting_command::RemotingCommand;
use tokio::sync::RwLock;

use super::log::{LetterBatch, LetterLog, StoredLetter};
use crate::access::MASTER;
use crate::body::read_body;
use crate::client::{ClientSettings, client_config};
use crate::error::{QUERY_NOT_FOUND, failure, group_missing, is_denied, is_missing_group, is_unknown_topic, transient};
use crate::name_servers::{NoAnswer, look_up};
use crate::producer::{MessageProducer, PreparedMessage, SEND_TIMEOUT_MS};
use crate::properties::is_of_one_delivery;
use crate::queue_position::QueuePosition;
use crate::settler::not_stored;

/// The log of one topic, read by one group. Its methods must be called on the client's runtime.
pub(crate) struct BrokerLog {
    client: ClientInstanceHandle,
    producer: Arc<MessageProducer>,
    servers: ClientSettings,
    topic: String,
    group: String,
    /// The owner of locks, unique among all sessions.
    session: String,
    /// The addresses of the brokers, by name.
    brokers: RwLock<HashMap<String, String>>,
}

/// Maximum number of messages of a pull. The broker also limits their size.
const BATCH: i32 = 32;
/// Timeout of a request in ms.
const TIMEOUT_MS: u64 = SEND_TIMEOUT_MS;
const READABLE: u32 = 4;

impl BrokerLog {
    /// Starts the client. Must be called on the client's runtime.
    pub(crate) async fn start(
        runtime: &Arc<ClientRuntime>,
        settings: &ClientSettings,
        topic: &str,
        group: &str,
    ) -> Result<Self, ClientError> {
        let config = client_config(settings);
        let random = OsEntropy.bits().unwrap_or_default();
        let session = format!("{}@{random:016x}", config.build_mq_client_id());
        let signer = settings.signer().map(|signer| signer as _);
        let client = ClientInstanceHandle::get_or_create(runtime, 0, config, signer)?;
        client.start().await?;
        let producer = match MessageProducer::start(runtime, settings, group).await {
            Ok(producer) => Arc::new(producer),
            Err(error) => {
                client.shutdown_owned().await;
                return Err(error);
            }
        };
        let (servers, topic, group) = (settings.clone(), topic.to_owned(), group.to_owned());
        Ok(Self { client, producer, servers, topic, group, session, brokers: RwLock::default() })
    }

    /// Ends the client.
    pub(crate) async fn shut_down(&self) {
        self.producer.shut_down().await;
        self.client.shutdown_owned().await;
    }

    async fn broker(&self, queue: &MessageQueue) -> Result<String, SourceError> {
        let brokers = self.brokers.read().await;
        let address = brokers.get(queue.broker_name().as_str()).cloned();
        address.ok_or_else(|| transient("the broker of a queue is unknown to the name server; start the broker"))
    }

    fn lock_of(&self, queue: &MessageQueue) -> LockBatchRequestBody {
        LockBatchRequestBody {
            consumer_group: Some(self.group.as_str().into()),
            client_id: Some(self.session.as_str().into()),
            only_this_broker: false,
            mq_set: HashSet::from([queue.clone()]),
        }
    }

    /// Pulls messages with their bodies as they are stored. The method of the client would drop a message that it cannot decompress. Returns
    /// the offset after the messages, too.
    async fn pull(&self, broker: &str, pull: PullMessageRequestHeader) -> Result<(Vec<MessageExt>, u64), ClientError> {
        let request = RemotingCommand::create_request_command(RequestCode::PullMessage, pull);
        let mut response = self.client.invoke_remoting(&broker.into(), request, TIMEOUT_MS).await?;
        let body = response.take_body().unwrap_or_default();
        let mut stored = match ResponseCode::from(response.code()) {
            ResponseCode::Success => body,
            ResponseCode::PullNotFound | ResponseCode::PullRetryImmediately | ResponseCode::PullOffsetMoved => {
                Default::default()
            }
            _ => return Err(ClientError::broker_operation_failed("pull", response.code(), "")),
        };
        let header: PullMessageResponseHeader = response.decode_command_custom_header()?;
        Ok((decodes_batch(&mut stored, true, false), positive(header.next_begin_offset)))
    }

    /// Checks that a topic exists, since a broker may otherwise create a topic without consumers.
    async fn check_topic(&self, topic: &str) -> Result<(), SourceError> {
        let unknown = look_up(&self.producer, &self.servers, topic).await?.err();
        unknown.map_or(Ok(()), |error| {
            let text =
                format!("the topic `{topic}` of the message does not exist; create the topic, or start its broker");
            Err(SourceError::new(SourceErrorKind::Fatal, text).with_cause(error))
        })
    }
}

#[async_trait]
impl LetterLog for BrokerLog {
    async fn queues(&self) -> Result<Vec<MessageQueue>, SourceError> {
        let route = match self.client.topic_route(&self.topic, TIMEOUT_MS).await {
            Ok(route) => route.ok_or_else(|| unknown_topic(&self.topic))?,
            Err(error) if is_unknown_topic(&error) => return Err(unknown_topic(&self.topic).with_cause(error)),
            Err(error) => return Err(NoAnswer::of(&self.servers, Some(error)).await.into()),
        };
        let masters = route.broker_datas.iter().filter_map(|broker| {
            Some((broker.broker_name().to_string(), broker.broker_addrs().get(&MASTER)?.to_string()))
        });
        *self.brokers.write().await = masters.collect();
        let mut queues = Vec::new();
        for some in route.queue_datas.iter().filter(|some| some.perm & READABLE != 0) {
            let numbers = 0..i32::try_from(some.read_queue_nums).unwrap_or_default();
            let broker = some.broker_name();
            queues.extend(numbers.map(|number| MessageQueue::from_parts(self.topic.as_str(), broker.as_str(), number)));
        }
        queues.sort_by(|one, two| (one.broker_name(), one.queue_id()).cmp(&(two.broker_name(), two.queue_id())));
        Ok(queues)
    }

    async fn bounds(&self, queue: &MessageQueue) -> Result<(u64, u64), SourceError> {
        let broker = self.broker(queue).await?;
        let first =
            self.client.min_offset(&broker, queue, TIMEOUT_MS).await.map_err(|error| not_read(&self.group, error))?;
        let end =
            self.client.max_offset(&broker, queue, TIMEOUT_MS).await.map_err(|error| not_read(&self.group, error))?;
        Ok((positive(first), positive(end)))
    }

    async fn committed(&self, queue: &MessageQueue) -> Result<u64, SourceError> {
        let broker = self.broker(queue).await?;
        let of = QueryConsumerOffsetRequestHeader::new(self.group.as_str(), self.topic.as_str(), queue.queue_id());
        match self.client.query_consumer_offset(&broker, of, TIMEOUT_MS).await {
            Ok(offset) => Ok(positive(offset)),
            Err(error) if error.broker_response_code() == Some(QUERY_NOT_FOUND) => Ok(0),
            Err(error) => Err(not_read(&self.group, error)),
        }
    }

    async fn read(&self, queue: &MessageQueue, from: u64) -> Result<LetterBatch, SourceError> {
        let broker = self.broker(queue).await?;
        let pull = PullMessageRequestHeader {
            consumer_group: self.group.as_str().into(),
            topic: self.topic.as_str().into(),
            queue_id: queue.queue_id(),
            queue_offset: i64::try_from(from).unwrap_or(i64::MAX),
            max_msg_nums: BATCH,
            // With the subscription in the request, the broker needs no registered consumer. The request commits nothing.
            sys_flag: i32::try_from(PullSysFlag::build_sys_flag(false, false, true, false)).unwrap_or_default(),
            subscription: Some("*".into()),
            expression_type: Some("TAG".into()),
            ..Default::default()
        };
        let (messages, next) = self.pull(&broker, pull).await.map_err(|error| not_read(&self.group, error))?;
        let letters = messages.iter().filter_map(|message| stored(queue, message));
        let letters: Vec<_> = letters.filter(|letter| letter.offset() >= from).collect();
        let next = letters.last().map_or(next, |last| last.offset() + 1);
        if next <= from {
            return Err(transient("reading the dead letters: the broker does not return a letter that it has; retry"));
        }
        Ok(LetterBatch { letters, next })
    }

    async fn send(&self, message: PreparedMessage) -> Result<(), SourceError> {
        if message.topic != self.topic {
            self.check_topic(&message.topic).await?;
        }
        let topic = message.topic.clone();
        self.producer.send(message).await.map_err(|reason| not_stored(&topic, reason))
    }

    async fn commit(&self, queue: &MessageQueue, offset: u64) -> Result<(), SourceError> {
        let broker = self.broker(queue).await?;
        let offset = UpdateConsumerOffsetRequestHeader {
            consumer_group: self.group.as_str().into(),
            topic: self.topic.as_str().into(),
            queue_id: queue.queue_id(),
            commit_offset: i64::try_from(offset).unwrap_or(i64::MAX),
            ..Default::default()
        };
        let committed = self.client.update_consumer_offset(&broker.into(), offset, TIMEOUT_MS).await;
        committed.map_err(|error| failure("committing the offset failed; see the cause", error))
    }

    async fn lock(&self, queue: &MessageQueue) -> Result<bool, SourceError> {
        let broker = self.broker(queue).await?;
        let locked = self.client.lock_batch_mq(&broker, self.lock_of(queue), TIMEOUT_MS).await;
        let locked = locked.map_err(|error| failure("locking the queue failed; see the cause", error))?;
        Ok(locked.contains(queue))
    }

    async fn unlock(&self, queue: &MessageQueue) {
        let LockBatchRequestBody { consumer_group, client_id, only_this_broker, mq_set } = self.lock_of(queue);
        let lock = UnlockBatchRequestBody { consumer_group, client_id, only_this_broker, mq_set };
        if let Ok(broker) = self.broker(queue).await {
            // If this fails, the lock expires.
            let _: ClientResult<()> = self.client.unlock_batch_mq(&broker.into(), lock, TIMEOUT_MS).await;
        }
    }
}

fn stored(queue: &MessageQueue, message: &MessageExt) -> Option<StoredLetter> {
    let all = message.properties().iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let mut properties = all.filter(|(name, _)| !is_of_one_delivery(name)).collect();
    Some(StoredLetter {
        position: QueuePosition::new(queue, message.queue_offset())?,
        stored_at: message.store_timestamp(),
        body: read_body(message, &mut properties),
        properties,
        flag: message.flag(),
    })
}

fn positive(offset: i64) -> u64 {
    offset.try_into().unwrap_or_default()
}

fn not_read(group: &str, error: ClientError) -> SourceError {
    if is_missing_group(&error) {
        return group_missing("reading the dead letters", group, error);
    }
    let remedy = match is_denied(&error) {
        true => {
            "the broker denies access; check the access key and the secret key in the URL, or grant the permissions"
        }
        false => "no answer of the broker; check that it is running, and the network",
    };
    failure(&format!("reading the dead letters: {remedy}"), error)
}

fn unknown_topic(topic: &str) -> SourceError {
    transient(&format!(
        "the name server does not know the topic `{topic}` of the dead letters; check the group, or start the broker. The first \
         consumer of the group creates the topic"
    ))
}

impl fmt::Debug for BrokerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerLog").field("topic", &self.topic).finish_non_exhaustive()
    }
}

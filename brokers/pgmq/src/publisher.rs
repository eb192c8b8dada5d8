//! Publishing of messages, e.g. for the relay of an outbox.
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, publish_each};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use tokio::sync::OnceCell;

use crate::connections::Connections;
use crate::error::{Failure, QueryError, in_transaction};
use crate::options::Server;
use crate::statements::SEND;
use crate::{body, carrier, pooler};

/// A publisher that sends messages to queues and returns their ids. The topic of a message is the name of a queue.
///
/// | message | PGMQ |
/// |---|---|
/// | `topic` | the queue, which must exist |
/// | `body` | the column `message`: JSON is stored as it is, which PostgreSQL normalises. Any other body is a string in Base64, with the mark `"body": "base64"` |
/// | `id`, `business_key` | `id` and `key` of the object `idempotent` in the column `headers` |
/// | headers | members of the column `headers`: a string, or a list of strings for a repeated name. Values that are not UTF-8 are in Base64 in the object `idempotent` |
/// | `deliver_at` | the column `vt`, by the clock of the server |
/// | `aggregate` | not stored: messages of one aggregate are sent one after another, and PGMQ reads messages in the order of their ids |
///
/// PGMQ does not deduplicate: a message that is sent again with its id is another message. Its consumers recognize the id.
///
/// The [position](Published::position) is the queue with the id of the message in the queue.
///
/// # Results
/// - [`Unconfirmed`](PublishErrorKind::Unconfirmed): the connection was lost, or the server did not answer within 5 s.
/// - [`Unsent`](PublishErrorKind::Unsent): the server cannot be reached, or cannot run the statement now.
/// - [`Refused`](PublishErrorKind::Refused): the queue or PGMQ is missing, privileges are missing, a pooler loses prepared
///   statements or refuses `options` of the URL, or PostgreSQL cannot store the message.
#[must_use]
pub struct PgmqPublisher {
    server: Server,
    connections: OnceCell<Arc<Connections>>,
    exact: bool,
}

impl PgmqPublisher {
    /// Creates a publisher, which connects at its first message.
    pub fn new(server: impl Into<Server>) -> Self {
        Self { server: server.into(), connections: OnceCell::new(), exact: false }
    }

    /// Stores each body in Base64, so that each byte of a JSON body arrives as it was sent, for example for a signature. Other
    /// clients of PGMQ then see a string.
    ///
    /// # Default
    /// A JSON body is stored as jsonb, which keeps its value: white space and the order of members change, and of several members
    /// with one name the last one remains
    pub fn exact_bodies(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Sends a message in the transaction of the caller: the message exists if the transaction commits, and is delivered after the
    /// commit. The queue must be in the database of the transaction.
    ///
    /// ```no_run
    /// use idempotent_mq::{OutboundMessage, PublishError};
    /// use idempotent_pgmq::PgmqPublisher;
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let publisher = PgmqPublisher::new("pgmq://app@db.internal/shop");
    /// let mut transaction = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders (number) VALUES (17)").execute(&mut *transaction).await?;
    /// let message = OutboundMessage::new("orders", "order-17", r#"{"number": 17}"#);
    /// publisher.send_in(&mut transaction, &message).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The message was not sent, and PostgreSQL has aborted the transaction.
    ///
    /// # Cancellation
    /// The message may be part of the transaction.
    pub async fn send_in(
        &self,
        transaction: &mut PgConnection,
        message: &OutboundMessage,
    ) -> Result<Published, PublishError> {
        let sent = self.statement(message)?.fetch_all(transaction).await;
        let failed = |error| in_transaction(&doing(message), error).publish();
        published(message, &sent.map_err(failed)?)
    }

    async fn connect(&self) -> Result<Arc<Connections>, PublishError> {
        let connections = Connections::new(&self.server)
            .map_err(|error| PublishError::new(PublishErrorKind::Refused, error.to_string()).with_cause(error))?;
        pooler::check(&connections).await.map_err(|error| Failure::of("connecting", &error).publish())?;
        Ok(Arc::new(connections))
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        let connections = self.connections.get_or_try_init(|| self.connect()).await?;
        let sent = connections.rows(self.statement(message)?).await;
        published(message, &sent.map_err(|error| Failure::of(&doing(message), &error).publish())?)
    }

    /// Returns the statement that sends a message.
    ///
    /// # Errors
    /// jsonb cannot store the message.
    fn statement(&self, message: &OutboundMessage) -> Result<Query<'static, Postgres, PgArguments>, PublishError> {
        let stored = body::store(&message.body, self.exact);
        let headers = carrier::sent(message, stored.is_encoded).map_err(|part| {
            let text =
                format!("{}: its `{part}` contains U+0000, which jsonb cannot store; use another", doing(message));
            PublishError::new(PublishErrorKind::Refused, text)
        })?;
        let at = message.deliver_at.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX));
        Ok(sqlx::query(SEND).bind(message.topic.clone()).bind(stored.json).bind(headers).bind(at))
    }
}

fn doing(message: &OutboundMessage) -> String {
    format!("sending to the queue `{}`", message.topic)
}

fn published(message: &OutboundMessage, rows: &[PgRow]) -> Result<Published, PublishError> {
    let id = rows.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get::<i64, _>("msg_id"));
    let id = id.map_err(|error| Failure::of(&doing(message), &QueryError::Failed(error)).publish())?;
    Ok(Published::at(Position::of(&*message.topic).offset(id)))
}

#[async_trait]
impl Publish for PgmqPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        publish_each(messages, |message| self.send(message)).await
    }

    fn delays(&self) -> bool {
        true
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for PgmqPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmqPublisher").field("server", &self.server).finish_non_exhaustive()
    }
}

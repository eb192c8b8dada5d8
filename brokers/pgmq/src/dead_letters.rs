//! Listing, redriving and removing the dead letters of a queue.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_mq::{LetterBox, Position, SourceError, SourceErrorKind, StoredLetter};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row};

use crate::connections::Connections;
use crate::error::{failure, fatal, unreadable};
use crate::message::StoredMessage;
use crate::options::Server;
use crate::pooler;
use crate::queue_name::QueueName;
use crate::setup::check;
use crate::statements::LetterStatements;

/// The dead letters of a queue, for [`Redrive`](idempotent_mq::Redrive).
///
/// One statement moves a letter back to its queue, so a letter is always in exactly one of both queues. Reading a
/// letter does not hide it. A letter without the data of a consumer, which another program sent to the queue of the dead letters,
/// is put back into the queue of this handle. A letter that names another queue is [`Refused`](SourceErrorKind::Refused), unless
/// [`putting_back_to`](Self::putting_back_to) names a queue.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_pgmq::PgmqDeadLetters;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = PgmqDeadLetters::new("pgmq://app@localhost/shop", "orders");
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct PgmqDeadLetters {
    server: Server,
    queue: String,
    dead: String,
    opened: Option<Arc<OpenLetters>>,
    /// The letter that was read last, after which the search continues.
    after: i64,
    /// The newest letter at the count, at which the listing ends.
    end: i64,
    /// The queue for all letters.
    target: Option<String>,
    listed: Option<ListedLetter>,
}

/// A letter that was read.
#[derive(Debug)]
pub struct ListedLetter {
    id: i64,
    /// False if the letter names another queue than that of the handle.
    is_of_queue: bool,
}

#[derive(Debug)]
struct OpenLetters {
    connections: Connections,
    queue: QueueName,
    dead: QueueName,
    statements: LetterStatements,
}

const COUNTING: &str = "counting the dead letters";
const READING: &str = "reading the dead letters";
const PUTTING_BACK: &str = "putting a dead letter back";
const REMOVING: &str = "removing a dead letter";

impl PgmqDeadLetters {
    /// Creates a handle to the dead letters in `QUEUE_dead`.
    pub fn new(server: impl Into<Server>, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        Self {
            server: server.into(),
            dead: format!("{queue}_dead"),
            queue,
            opened: None,
            after: 0,
            end: i64::MAX,
            target: None,
            listed: None,
        }
    }

    /// Sets the queue of the dead letters, as in [`PgmqSourceBuilder::dead_letters`](crate::PgmqSourceBuilder::dead_letters).
    ///
    /// # Default
    /// `QUEUE_dead`
    pub fn stored_in(mut self, queue: impl Into<String>) -> Self {
        self.dead = queue.into();
        self
    }

    /// Sets the queue into which all letters are put back, whichever queue they name.
    ///
    /// # Default
    /// The queue of this handle
    pub fn putting_back_to(mut self, queue: impl Into<String>) -> Self {
        self.target = Some(queue.into());
        self
    }

    async fn open(&mut self) -> Result<Arc<OpenLetters>, SourceError> {
        if let Some(opened) = &self.opened {
            return Ok(opened.clone());
        }
        let (queue, dead) = (QueueName::new("queue", &self.queue)?, QueueName::new("dead_letters", &self.dead)?);
        let connections = Connections::new(&self.server)?;
        let opening = |error| failure(&format!("opening the queue `{dead}`"), &error);
        pooler::check(&connections).await.map_err(opening)?;
        check(&connections, &dead).await?;
        let statements = LetterStatements::new(&dead);
        Ok(self.opened.insert(Arc::new(OpenLetters { connections, queue, dead, statements })).clone())
    }
}

impl OpenLetters {
    async fn rows(&self, query: Query<'_, Postgres, PgArguments>, doing: &str) -> Result<Vec<PgRow>, SourceError> {
        self.connections.rows(query).await.map_err(|error| failure(doing, &error))
    }
}

fn statement(sql: &Arc<str>) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

#[async_trait]
impl LetterBox for PgmqDeadLetters {
    type Letter = ListedLetter;

    fn listed(&mut self) -> &mut Option<ListedLetter> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let opened = self.open().await?;
        let rows = opened.rows(statement(&opened.statements.count), COUNTING).await?;
        let row = rows.first().ok_or_else(|| fatal(COUNTING, "the server returns no row"))?;
        let number = |name: &str| row.try_get::<i64, _>(name).map_err(|error| unreadable(COUNTING, &error));
        self.end = number("newest")?;
        Ok(u64::try_from(number("letters")?).unwrap_or_default())
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, ListedLetter)>, SourceError> {
        let opened = self.open().await?;
        let next = statement(&opened.statements.next).bind(self.after).bind(self.end);
        let rows = opened.rows(next, READING).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let StoredMessage { mut delivery, tag, headers } = StoredMessage::read(&opened.dead, row)?;
        let named = headers.queue().map(|queue| QueueName::new("queue", &queue));
        let is_of_queue =
            named.as_ref().is_none_or(|named| named.as_ref().is_ok_and(|named| named.is_same_table(&opened.queue)));
        let queue = named.and_then(Result::ok).unwrap_or_else(|| opened.queue.clone());
        self.after = tag.id;
        delivery.position = Position::of(queue.shared()).offset(tag.id);
        let stored = StoredLetter::at(tag.id, delivery, headers.letter());
        Ok(Some((stored, ListedLetter { id: tag.id, is_of_queue })))
    }

    async fn revive(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let opened = self.open().await?;
        let target = match &self.target {
            Some(target) => QueueName::new("putting_back_to", target)?,
            None if letter.is_of_queue => opened.queue.clone(),
            None => {
                let text = format!(
                    "{PUTTING_BACK}: it names another queue than `{}`; open the letters of its queue, name a queue by \
                     `putting_back_to`, or discard the letter",
                    opened.queue
                );
                return Err(SourceError::new(SourceErrorKind::Refused, text));
            }
        };
        let put_back = statement(&opened.statements.put_back).bind(letter.id).bind(target.as_str());
        Ok(!opened.rows(put_back, PUTTING_BACK).await?.is_empty())
    }

    async fn remove(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let opened = self.open().await?;
        Ok(!opened.rows(statement(&opened.statements.discard).bind(letter.id), REMOVING).await?.is_empty())
    }

    async fn leave(&mut self) {
        self.opened = None;
    }
}

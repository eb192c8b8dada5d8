//! Settlement of messages.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row};

use crate::PgmqTag;
use crate::acks::{AckQueue, columns};
use crate::carrier::{letter_marks, release_marks};
use crate::connections::Connections;
use crate::error::{failure, gone, unreadable};
use crate::queue_name::QueueName;
use crate::statements::Statements;

/// The settling half of a source.
#[derive(Debug)]
pub(crate) struct PgmqSettler {
    pub(crate) connections: Arc<Connections>,
    pub(crate) statements: Statements,
    pub(crate) acks: AckQueue,
    pub(crate) queue: QueueName,
    pub(crate) dead: QueueName,
    pub(crate) visibility: Duration,
}

const DEAD_LETTERING: &str = "dead-lettering a message";

#[async_trait]
impl Settle<PgmqTag> for PgmqSettler {
    async fn settle(&self, delivery: &Delivery, tag: &PgmqTag, settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => self.acks.ack(*tag).await,
            Settlement::Retry(retry) => {
                self.release(tag, retry.after, release_marks(tag, Some(retry)), "retrying a message").await
            }
            Settlement::DeadLetter(letter) => self.dead_letter(delivery, tag, letter).await,
            Settlement::GiveBack => self.give_back(tag).await,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&PgmqTag]) -> Result<(), SourceError> {
        let (ids, reads, settled) = columns(held.iter().copied());
        let keep = sqlx::query(AssertSqlSafe(self.statements.keep.clone())).bind(ids).bind(reads).bind(settled);
        // A message that is already lost is no error.
        self.rows(keep.bind(micros(self.visibility)), "extending messages").await.map(drop)
    }
}

impl PgmqSettler {
    async fn rows(&self, query: Query<'_, Postgres, PgArguments>, doing: &str) -> Result<Vec<PgRow>, SourceError> {
        self.connections.rows(query).await.map_err(|error| failure(doing, &error))
    }

    /// Makes a message available to all consumers now.
    pub(crate) async fn give_back(&self, tag: &PgmqTag) -> Result<(), SourceError> {
        self.release(tag, Duration::ZERO, release_marks(tag, None), "returning a message").await
    }

    /// Makes a message available to all consumers after this time.
    async fn release(
        &self,
        tag: &PgmqTag,
        after: Duration,
        marks: String,
        doing: &'static str,
    ) -> Result<(), SourceError> {
        // The number of settlements is not compared: a repeated call after a lost answer has the same effect.
        let release = sqlx::query(AssertSqlSafe(self.statements.release.clone())).bind(tag.id).bind(tag.reads);
        match self.rows(release.bind(micros(after)).bind(marks), doing).await?.is_empty() {
            true => Err(gone(doing)),
            false => Ok(()),
        }
    }

    async fn dead_letter(&self, delivery: &Delivery, tag: &PgmqTag, letter: &DeadLetter) -> Result<(), SourceError> {
        let origin = delivery.id.as_deref().unwrap_or_default();
        let death = format!("{}/{}/{origin}", tag.id, letter.deaths);
        let bury = sqlx::query(AssertSqlSafe(self.statements.dead_letter.clone()))
            .bind(tag.id)
            .bind(tag.reads)
            .bind(tag.settled)
            .bind(self.dead.as_str())
            .bind(letter_marks(delivery, letter, &death));
        if !self.rows(bury, DEAD_LETTERING).await?.is_empty() {
            return Ok(());
        }
        // The statement may have been confirmed over a connection that was lost.
        let died = sqlx::query(AssertSqlSafe(self.statements.died.clone())).bind(death);
        let rows = self.rows(died, DEAD_LETTERING).await?;
        let row = rows.first().ok_or_else(|| gone(DEAD_LETTERING))?;
        match row.try_get(0).map_err(|error| unreadable(DEAD_LETTERING, &error))? {
            true => Ok(()),
            false => Err(gone(DEAD_LETTERING)),
        }
    }
}

/// Returns a time in microseconds, at most a thousand years.
fn micros(time: Duration) -> i64 {
    const LONGEST: i64 = 1_000 * 365 * 86_400 * 1_000_000;
    i64::try_from(time.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

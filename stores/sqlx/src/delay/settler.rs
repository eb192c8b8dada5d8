//! Settling deliveries.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{StoreError, Timestamp};
use idempotent_mq::{DeadLetter, Delivery, Retry, Settle, Settlement, SourceError, SourceErrorKind};
use tracing::warn;

use super::DelayTable;
use super::database::DelayDb;
use super::error::source_error;
use super::taken_task::{HolderToken, TakenTask};
use crate::sql_database::SqlValue;

/// The tag of a held delivery, which settles it. A delivery that is dropped without settling is delivered again after
/// its visibility timeout.
pub struct DelayTableTag {
    seq: i64,
    holder: HolderToken,
}

impl DelayTableTag {
    /// Returns the tag of a task, or `None` if the task has no holder.
    pub(super) fn of(taken: &TakenTask) -> Option<Self> {
        taken.holder.map(|holder| Self { seq: taken.seq, holder })
    }

    fn args(&self) -> [SqlValue; 2] {
        [SqlValue::from(self.seq), SqlValue::from(&self.holder[..])]
    }
}

/// Omits the content of the task.
impl fmt::Debug for DelayTableTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayTableTag").field("seq", &self.seq).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct DelayTableSettler<Db: DelayDb>(pub(super) DelayTable<Db>);

/// The maximum number of rows in one statement.
const MOST: usize = 400;

#[async_trait]
impl<Db: DelayDb> Settle<DelayTableTag> for DelayTableSettler<Db> {
    async fn settle(&self, _: &Delivery, tag: &DelayTableTag, settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => {
                settled("acknowledging", self.0.execute(self.0.0.statements.done(), tag.args().into()).await)
            }
            Settlement::Retry(retry) => self.put_off(tag, retry).await,
            Settlement::DeadLetter(letter) => self.dead_letter(tag, letter).await,
            Settlement::GiveBack => self.give_back(tag).await,
            other => {
                let text = format!("`{}` is not supported by this adapter", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&DelayTableTag]) -> Result<(), SourceError> {
        for part in held.chunks(MOST) {
            let mut args = vec![self.0.now()];
            args.extend(part.iter().map(|tag| SqlValue::from(tag.seq)));
            args.extend(part.iter().map(|tag| SqlValue::from(&tag.holder[..])));
            // Deliveries that are already lost are no error.
            let kept = self.0.execute(self.0.0.statements.keep(part.len()), args).await;
            kept.map_err(|error| source_error("keeping deliveries alive", error))?;
        }
        Ok(())
    }
}

impl<Db: DelayDb> DelayTableSettler<Db> {
    pub(super) async fn give_back(&self, tag: &DelayTableTag) -> Result<(), SourceError> {
        let args = [self.0.now()].into_iter().chain(tag.args()).collect();
        let done = settled("giving a delivery back", self.0.execute(self.0.0.statements.give_back(), args).await);
        self.0.notify(self.0.wakeup_after(Duration::ZERO, false));
        done
    }

    async fn put_off(&self, tag: &DelayTableTag, retry: &Retry) -> Result<(), SourceError> {
        let marks = [
            self.0.now(),
            self.0.later_by(retry.after),
            SqlValue::from(i64::from(retry.attempt)),
            time(retry.first_at),
        ];
        let reason = SqlValue::from(retry.reason.as_bytes());
        let args = marks.into_iter().chain([reason]).chain(tag.args()).collect();
        let done = settled("putting a delivery off", self.0.execute(self.0.0.statements.put_off(), args).await);
        self.0.notify(self.0.wakeup_after(retry.after, false));
        done
    }

    async fn dead_letter(&self, tag: &DelayTableTag, letter: &DeadLetter) -> Result<(), SourceError> {
        let DeadLetter { reason, id, attempts, first_at, last_at, deaths, .. } = letter;
        let marks = [
            time(*last_at),
            SqlValue::from(i64::from(*attempts)),
            time(*first_at),
            SqlValue::from(i64::from(*deaths)),
            SqlValue::from(id.as_ref().map(|id| id.as_bytes())),
            SqlValue::from(reason.as_bytes()),
        ];
        let args = marks.into_iter().chain(tag.args()).collect();
        settled("burying a delivery", self.0.execute(self.0.0.statements.dead_letter(), args).await)
    }

    /// Dead-letters the tasks whose rows cannot be read, and returns the others.
    pub(super) async fn dead_letter_unreadable(&self, taken: Vec<TakenTask>) -> Vec<TakenTask> {
        let (readable, unreadable): (Vec<_>, Vec<_>) = taken.into_iter().partition(|taken| taken.headers.is_some());
        for taken in unreadable {
            let Some(tag) = DelayTableTag::of(&taken) else { continue };
            let died = taken.first_at.unwrap_or(Timestamp(0));
            let mut letter = DeadLetter::because("its row cannot be read: was it written by another program?", died);
            letter.deaths = taken.deaths.saturating_add(1);
            if let Err(error) = self.dead_letter(&tag, &letter).await {
                warn!(target: "idempotent", table = self.0.0.table,
                    error = &error as &(dyn std::error::Error + 'static),
                    "dead-lettering an unreadable task failed; the source delivers it again");
            }
        }
        readable
    }
}

fn time(time: Timestamp) -> SqlValue {
    SqlValue::from(i64::try_from(time.0).unwrap_or(i64::MAX))
}

fn settled(doing: &str, written: Result<u64, StoreError>) -> Result<(), SourceError> {
    match written {
        Ok(0) => Err(SourceError::new(
            SourceErrorKind::Gone,
            format!("{doing}: the delivery has expired, was cancelled, or is already settled"),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(source_error(doing, error)),
    }
}

//! Settlement of entries.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use redis::Value;
use tokio::time::Instant;

use crate::carrier::{Fields, add, encode_letter, fits_into_script};
use crate::connection::Connection;
use crate::due_times::DueTimes;
use crate::held_entries::HeldEntries;
use crate::options::TrimPolicy;
use crate::reply::StreamEntry;
use crate::retry_mark::RetryMark;
use crate::scripts::{BURY, DONE, KEEP, LATER};

/// The handle that settles an entry.
pub struct StreamsTag {
    id: String,
    fields: Fields,
    held: HeldEntries,
    /// Number of the delivery.
    number: u64,
    /// True if the entry has a retry mark, which its settlement removes.
    is_marked: bool,
    /// True while the entry is being delayed or returned. Keeping it alive would undo that.
    leaving: AtomicBool,
}

impl StreamsTag {
    pub(crate) fn new(entry: StreamEntry, held: &HeldEntries) -> Self {
        let StreamEntry { id, fields, mark, .. } = entry;
        let number = held.hold(&id);
        Self { id, fields, held: held.clone(), number, is_marked: mark.is_some(), leaving: AtomicBool::new(false) }
    }
}

/// An entry whose tag is dropped unsettled is redelivered after `min_idle`.
impl Drop for StreamsTag {
    fn drop(&mut self) {
        self.held.release(&self.id, self.number);
    }
}

/// Shows nothing of the payload.
impl fmt::Debug for StreamsTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsTag").field("id", &self.id).field("fields", &self.fields.len()).finish_non_exhaustive()
    }
}

/// The settings of a consumer.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerSettings {
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
    pub(crate) dead: Arc<str>,
    pub(crate) min_idle: Duration,
    pub(crate) keep: TrimPolicy,
}

impl ConsumerSettings {
    /// Returns the key of the group's retry marks.
    pub(crate) fn marks(&self) -> String {
        format!("{}:attempts:{}", self.stream, self.group)
    }
}

#[derive(Debug)]
pub(crate) struct StreamsSettler {
    pub(crate) settings: ConsumerSettings,
    pub(crate) connection: Connection,
    pub(crate) due: DueTimes,
    /// True if an entry was acknowledged since the stream was last trimmed.
    pub(crate) acked: AtomicBool,
}

#[async_trait]
impl Settle<StreamsTag> for StreamsSettler {
    async fn settle(&self, _: &Delivery, tag: &StreamsTag, settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => self.ack(tag).await,
            Settlement::Retry(retry) => {
                let after = retry.after.min(self.settings.min_idle);
                self.release_after(tag, after, RetryMark::of(retry), "retrying an entry").await
            }
            Settlement::DeadLetter(letter) => self.dead_letter(tag, letter).await,
            Settlement::GiveBack => self.release_after(tag, Duration::ZERO, None, "returning an entry").await,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&StreamsTag]) -> Result<(), SourceError> {
        let mut keep = KEEP.key(&*self.settings.stream);
        keep.arg(&*self.settings.group).arg(&*self.settings.consumer);
        for tag in held.iter().filter(|tag| !tag.leaving.load(Ordering::Acquire)) {
            keep.arg(&tag.id);
        }
        self.connection.run_script("extending entries", &keep).await.map(drop)
    }
}

impl StreamsSettler {
    /// Acknowledges an entry, whichever consumer holds it now.
    async fn ack(&self, tag: &StreamsTag) -> Result<(), SourceError> {
        let settings = &self.settings;
        let deletes = settings.keep == TrimPolicy::Unacknowledged;
        if deletes || tag.is_marked {
            let mut done = DONE.key(&*settings.stream);
            if tag.is_marked {
                done.key(settings.marks());
            }
            done.arg(&*settings.group).arg(&tag.id).arg(if deletes { "delete" } else { "keep" });
            self.connection.run_script("acknowledging", &done).await?;
        } else {
            let mut ack = redis::cmd("XACK");
            ack.arg(&*settings.stream).arg(&*settings.group).arg(&tag.id);
            self.connection.query("acknowledging", &ack).await?;
        }
        self.acked.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes an entry available to all consumers after this time.
    async fn release_after(
        &self,
        tag: &StreamsTag,
        after: Duration,
        mark: Option<RetryMark>,
        doing: &str,
    ) -> Result<(), SourceError> {
        tag.leaving.store(true, Ordering::Release);
        // The entry may be redelivered before the tag is dropped.
        tag.held.release(&tag.id, tag.number);
        let left = self.requeue_after(&tag.id, after, mark, doing).await;
        if left.is_err() {
            tag.leaving.store(false, Ordering::Release);
        }
        left
    }

    pub(crate) async fn requeue_after(
        &self,
        id: &str,
        after: Duration,
        mark: Option<RetryMark>,
        doing: &str,
    ) -> Result<(), SourceError> {
        let settings = &self.settings;
        let mut later = LATER.key(&*settings.stream);
        if mark.is_some() {
            later.key(settings.marks());
        }
        let idle = millis_down(settings.min_idle.saturating_sub(after));
        later.arg(&*settings.group).arg(&*settings.consumer).arg(id).arg(idle);
        if let Some(mark) = mark {
            later.arg(mark.to_string()).arg(RetryMark::lifetime(settings.min_idle));
        }
        let moved = self.connection.run_script(doing, &later).await?;
        if moved == Value::Int(0) {
            return Err(gone(doing));
        }
        if after > Duration::ZERO {
            // The server's clock has a resolution of one ms.
            self.due.at(Instant::now() + after + Duration::from_millis(1));
        }
        Ok(())
    }

    async fn dead_letter(&self, tag: &StreamsTag, letter: &DeadLetter) -> Result<(), SourceError> {
        let settings = &self.settings;
        let doing = "dead-lettering an entry";
        let mut bury = BURY.key(&*settings.stream);
        bury.key(&*settings.dead);
        if tag.is_marked {
            bury.key(settings.marks());
        }
        bury.arg(&*settings.group).arg(&*settings.consumer).arg(&tag.id);
        bury.arg(if settings.keep == TrimPolicy::Unacknowledged { "delete" } else { "keep" });
        let fields = encode_letter(&tag.fields, &tag.id, letter);
        let in_one_step = fits_into_script(&fields);
        if in_one_step {
            for (name, value) in &fields {
                bury.arg(name).arg(value);
            }
        }
        match self.connection.run_script(doing, &bury).await? {
            Value::Int(0) => return Err(gone(doing)),
            Value::Int(1) if !in_one_step => {
                // In this order: if the process dies in between, the entry stays pending and the dead letter is written
                // twice.
                self.connection.query(doing, &add(&settings.dead, false, &fields)).await?;
                self.ack(tag).await?;
            }
            _ => {}
        }
        self.acked.store(true, Ordering::Release);
        Ok(())
    }
}

/// Converts to whole ms, rounded down, so that the delay is rounded up.
fn millis_down(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn gone(doing: &str) -> SourceError {
    let text = format!("{doing}: another consumer of the group has taken the entry over or settled it");
    SourceError::new(SourceErrorKind::Gone, text)
}

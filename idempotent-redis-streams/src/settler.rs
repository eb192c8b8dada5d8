//! What becomes of an entry.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetter, Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use redis::Value;
use tokio::time::Instant;

use crate::connection::Link;
use crate::due_times::Due;
use crate::headers::{Fields, add, dead_fields, fits_a_script};
use crate::held_entries::Held;
use crate::options::Keep;
use crate::reply::Entry;
use crate::scripts::{BURY, DONE, KEEP, LATER};

/// An entry that is held: what settling it takes.
pub struct Tag {
    id: String,
    fields: Fields,
    held: Held,
    /// Under which it is held.
    number: u64,
    /// It is being put off or given back: to keep it alive would undo that.
    leaving: AtomicBool,
}

impl Tag {
    pub(crate) fn new(entry: Entry, held: &Held) -> Self {
        let Entry { id, fields, .. } = entry;
        let number = held.hold(&id);
        Self { id, fields, held: held.clone(), number, leaving: AtomicBool::new(false) }
    }
}

/// Dropped unsettled, it comes again when it has been idle for long enough.
impl Drop for Tag {
    fn drop(&mut self) {
        self.held.release(&self.id, self.number);
    }
}

/// Nothing of the payload.
impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tag").field("id", &self.id).field("fields", &self.fields.len()).finish_non_exhaustive()
    }
}

/// Who reads which stream, and how.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
    pub(crate) dead: Arc<str>,
    pub(crate) min_idle: Duration,
    pub(crate) keep: Keep,
}

#[derive(Debug)]
pub(crate) struct Settler {
    pub(crate) place: Place,
    pub(crate) link: Link,
    pub(crate) due: Due,
    /// Something was acknowledged since the stream was last trimmed.
    pub(crate) acked: AtomicBool,
}

#[async_trait]
impl Settle<Tag> for Settler {
    async fn settle(&self, _: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => self.ack(tag).await,
            Settlement::Retry(retry) => {
                let after = retry.after.min(self.place.min_idle);
                self.leave(tag, after, "putting an entry off").await
            }
            Settlement::DeadLetter(letter) => self.bury(tag, letter).await,
            Settlement::GiveBack => self.leave(tag, Duration::ZERO, "giving an entry back").await,
            other => {
                let text = format!("`{}` is not known to this adapter", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&Tag]) -> Result<(), SourceError> {
        let mut keep = KEEP.key(&*self.place.stream);
        keep.arg(&*self.place.group).arg(&*self.place.consumer);
        for tag in held.iter().filter(|tag| !tag.leaving.load(Ordering::Acquire)) {
            keep.arg(&tag.id);
        }
        self.link.run("keeping entries alive", &keep).await.map(drop)
    }
}

impl Settler {
    /// Whoever has it now: it is done.
    async fn ack(&self, tag: &Tag) -> Result<(), SourceError> {
        let place = &self.place;
        if place.keep == Keep::Unacknowledged {
            let mut done = DONE.key(&*place.stream);
            done.arg(&*place.group).arg(&tag.id);
            return self.link.run("acknowledging", &done).await.map(drop);
        }
        let mut ack = redis::cmd("XACK");
        ack.arg(&*place.stream).arg(&*place.group).arg(&tag.id);
        self.link.ask("acknowledging", &ack).await?;
        self.acked.store(true, Ordering::Release);
        Ok(())
    }

    /// It is found by anybody after this time.
    async fn leave(&self, tag: &Tag, after: Duration, doing: &str) -> Result<(), SourceError> {
        tag.leaving.store(true, Ordering::Release);
        // It may come again before the tag is dropped.
        tag.held.release(&tag.id, tag.number);
        let left = self.put_off(&tag.id, after, doing).await;
        if left.is_err() {
            tag.leaving.store(false, Ordering::Release);
        }
        left
    }

    pub(crate) async fn put_off(&self, id: &str, after: Duration, doing: &str) -> Result<(), SourceError> {
        let place = &self.place;
        let mut later = LATER.key(&*place.stream);
        let idle = millis_down(place.min_idle.saturating_sub(after));
        later.arg(&*place.group).arg(&*place.consumer).arg(id).arg(idle);
        let moved = self.link.run(doing, &later).await?;
        if moved == Value::Int(0) {
            return Err(gone(doing));
        }
        if after > Duration::ZERO {
            // The server's clock goes by whole milliseconds.
            self.due.at(Instant::now() + after + Duration::from_millis(1));
        }
        Ok(())
    }

    async fn bury(&self, tag: &Tag, letter: &DeadLetter) -> Result<(), SourceError> {
        let place = &self.place;
        let doing = "putting an entry aside";
        let mut bury = BURY.key(&*place.stream);
        bury.key(&*place.dead).arg(&*place.group).arg(&*place.consumer).arg(&tag.id);
        bury.arg(if place.keep == Keep::Unacknowledged { "delete" } else { "keep" });
        let fields = dead_fields(&tag.fields, &tag.id, letter);
        let in_one_step = fits_a_script(&fields);
        if in_one_step {
            for (name, value) in &fields {
                bury.arg(name).arg(value);
            }
        }
        match self.link.run(doing, &bury).await? {
            Value::Int(0) => return Err(gone(doing)),
            Value::Int(1) if !in_one_step => {
                // In this order: a process that dies in between leaves the entry pending, and the letter is written twice.
                self.link.ask(doing, &add(&place.dead, false, &fields)).await?;
                self.ack(tag).await?;
            }
            _ => {}
        }
        self.acked.store(true, Ordering::Release);
        Ok(())
    }
}

/// Rounded down, so that the delay is rounded up.
fn millis_down(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn gone(doing: &str) -> SourceError {
    let text = format!("{doing}: another consumer of the group has taken it over, or has settled it");
    SourceError::new(SourceErrorKind::Gone, text)
}

//! A session of an operator: it reads letters in turn, and handles some of them.
//!
//! A log removes nothing from its middle. The committed offset therefore separates the letters that are handled from the dead
//! letters. Before the offset passes a letter that the session has skipped, a copy of this letter is stored at the end.
use std::collections::VecDeque;
use std::time::Duration;

use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_model::common::message::message_queue::MessageQueue;

use super::log::{LetterLog, StoredLetter};
use crate::carrier::{original_topic, place_of_body};
use crate::error::transient;

/// The progress of a session.
#[derive(Debug)]
pub(crate) struct LetterSession<L> {
    log: L,
    /// The topic of the dead letters.
    topic: String,
    /// The queues, or none before the first count.
    queues: Vec<LetterQueue>,
    /// The letter that was read last and is not handled, with the number of its queue.
    last: Option<(usize, StoredLetter)>,
}

/// The progress in one queue.
#[derive(Debug)]
struct LetterQueue {
    queue: MessageQueue,
    /// Letters that were fetched and not yet returned.
    fetched: VecDeque<StoredLetter>,
    /// The offset of the next letter to fetch.
    next: u64,
    /// The offset at which the listing ends.
    end: u64,
    /// The offset below which each letter is handled, or has a copy.
    settled: u64,
}

/// The way in which a letter is handled.
#[derive(Debug)]
pub(crate) enum Handling {
    /// The letter is sent to this topic, unless it names another one.
    PutBack { topic: String },
    /// The letter is sent to this topic, whatever topic it names.
    PutAllBack { topic: String },
    /// The letter is removed.
    Discard,
}

/// Number of attempts to lock a queue, and the pause between them. Together they are shorter than the lifetime of a lock.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });

impl<L: LetterLog> LetterSession<L> {
    pub(crate) fn new(log: L, topic: String) -> Self {
        Self { log, topic, queues: Vec::new(), last: None }
    }

    pub(crate) fn into_log(self) -> L {
        self.log
    }

    /// Returns the number of dead letters. The listing ends at the newest of them.
    pub(crate) async fn count(&mut self) -> Result<u64, SourceError> {
        let mut count = 0;
        for queue in self.log.queues().await? {
            let committed = self.log.committed(&queue).await?;
            let (first, end) = self.log.bounds(&queue).await?;
            if committed > end {
                return Err(ahead());
            }
            let first = first.max(committed);
            count += end.saturating_sub(first);
            match self.queues.iter_mut().find(|known| known.queue == queue) {
                Some(known) => {
                    (known.next, known.settled) = (known.next.max(first), known.settled.max(first));
                    known.end = end;
                }
                None => {
                    let fetched = VecDeque::new();
                    self.queues.push(LetterQueue { queue, fetched, next: first, end, settled: first });
                }
            }
        }
        Ok(count)
    }

    /// Returns the next letter: the oldest one of the first letters of all queues.
    pub(crate) async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        self.last = None;
        if self.queues.is_empty() {
            self.count().await?;
        }
        for queue in &mut self.queues {
            queue.fetch(&self.log).await?;
        }
        let firsts = self.queues.iter().enumerate();
        let firsts = firsts.filter_map(|(number, queue)| Some((queue.fetched.front()?.stored_at, number)));
        let Some((_, number)) = firsts.min() else { return Ok(None) };
        self.last = self.queues[number].fetched.pop_front().map(|letter| (number, letter));
        Ok(self.last.as_ref().map(|(_, letter)| letter.clone()))
    }

    /// Handles the letter that was read last. Returns false if another session has handled the letter or moved it to the end.
    pub(crate) async fn handle(&mut self, handling: &Handling) -> Result<bool, SourceError> {
        let Some((number, letter)) = &self.last else { return Err(nothing_read()) };
        let queue = &mut self.queues[*number];
        // Two sessions at once could commit past letters that the other one is about to skip or to handle.
        lock(&self.log, &queue.queue).await?;
        let handled = queue.handle(&self.log, &self.topic, letter, handling).await;
        self.log.unlock(&queue.queue).await;
        let handled = handled?;
        self.last = None;
        Ok(handled)
    }
}

impl LetterQueue {
    /// Fetches letters if there are none.
    async fn fetch<L: LetterLog>(&mut self, log: &L) -> Result<(), SourceError> {
        while self.fetched.is_empty() && self.next < self.end {
            let batch = log.read(&self.queue, self.next).await?;
            // Letters that were stored after the count are not a part of the listing.
            let end = self.end;
            self.fetched = batch.letters.into_iter().filter(|letter| letter.offset() < end).collect();
            self.next = batch.next.min(end);
        }
        Ok(())
    }

    /// Sends the letter if it is put back, copies the skipped letters before it, and commits the offset after it.
    ///
    /// Each step is confirmed before the next one begins, so an end between two steps leaves a letter in two places.
    async fn handle<L: LetterLog>(
        &mut self,
        log: &L,
        topic: &str,
        letter: &StoredLetter,
        handling: &Handling,
    ) -> Result<bool, SourceError> {
        self.settled = self.settled.max(log.committed(&self.queue).await?);
        if letter.offset() < self.settled {
            return Ok(false);
        }
        if let Some(topic) = handling.topic(letter)? {
            log.send(letter.copy_to(topic)).await.map_err(|error| {
                wrapped(
                    "putting a letter back: sending failed; the letter is still a dead letter, and possibly in its topic",
                    error,
                )
            })?;
        }
        self.copy_skipped(log, topic, letter.offset()).await.map_err(|error| {
            let text = "copying a skipped letter failed; both letters are still dead letters";
            wrapped(handling.unfinished(text), error)
        })?;
        let after = letter.offset() + 1;
        log.commit(&self.queue, after).await.map_err(|error| {
            let text = "committing the offset failed; the letter is possibly still a dead letter";
            wrapped(handling.unfinished(text), error)
        })?;
        self.settled = after;
        Ok(true)
    }

    /// Copies the letters before this offset to the end of the topic.
    async fn copy_skipped<L: LetterLog>(&mut self, log: &L, topic: &str, end: u64) -> Result<(), SourceError> {
        while self.settled < end {
            let batch = log.read(&self.queue, self.settled).await?;
            for skipped in batch.letters.iter().filter(|skipped| skipped.offset() < end) {
                log.send(skipped.copy_to(topic)).await?;
                self.settled = skipped.offset() + 1;
            }
            self.settled = self.settled.max(batch.next.min(end));
            lock(log, &self.queue).await?;
        }
        Ok(())
    }
}

impl Handling {
    /// Returns the topic to which a letter is sent.
    ///
    /// # Errors
    /// `Refused`: the letter names another topic than the one of the handle, or lacks its body.
    fn topic(&self, letter: &StoredLetter) -> Result<Option<&str>, SourceError> {
        let place = place_of_body(&letter.properties).filter(|_| !matches!(self, Self::Discard));
        if let Some(place) = place {
            let text = format!(
                "putting a letter back: it lacks its body, which was too large for a broker; publish the message at {place} \
                 again, and discard the letter"
            );
            return Err(SourceError::new(SourceErrorKind::Refused, text));
        }
        match self {
            Self::Discard => Ok(None),
            Self::PutAllBack { topic } => Ok(Some(topic)),
            Self::PutBack { topic } => match original_topic(&letter.properties).filter(|of| of != topic) {
                None => Ok(Some(topic)),
                Some(of) => {
                    let text = format!(
                        "putting a letter back: it is of the topic `{of}`; open the dead letters of that topic, or name a \
                         topic by `putting_back_to`"
                    );
                    Err(SourceError::new(SourceErrorKind::Refused, text))
                }
            },
        }
    }

    /// Returns the text of an error that occurs after the first step.
    fn unfinished(&self, text: &'static str) -> String {
        match self {
            Self::PutBack { .. } | Self::PutAllBack { .. } => {
                format!("putting a letter back: the message is in its topic, but {text}")
            }
            Self::Discard => format!("removing a letter: {text}"),
        }
    }
}

/// Waits for the lock of a queue.
async fn lock<L: LetterLog>(log: &L, queue: &MessageQueue) -> Result<(), SourceError> {
    for _ in 0..LOCK_ATTEMPTS {
        if log.lock(queue).await? {
            return Ok(());
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(transient("another session is changing the dead letters; retry after its end, or a minute after it was killed"))
}

fn wrapped(text: impl Into<Box<str>>, error: SourceError) -> SourceError {
    SourceError::new(error.kind(), text).with_cause(error)
}

fn nothing_read() -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, "no dead letter was read; call `next` first")
}

fn ahead() -> SourceError {
    SourceError::new(
        SourceErrorKind::Fatal,
        "the committed offset of the operators' group is after the end of the topic, which was created again; reset the \
         offset with the broker's tools",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

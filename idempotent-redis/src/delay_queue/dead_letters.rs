//! Listing, redriving and removing dead letters.
use async_trait::async_trait;
use idempotent_mq::{DelayError, LetterBox, LetterId, SourceError, SourceErrorKind, StoredLetter};
use redis::Value;

use super::queue::DelayQueue;
use super::received::{DeliveryReceipt, RawDelivery};
use super::replies::{ReplyItems, count, delay_error, source_error, unexpected_reply};
use super::scripts::DelayScript;
use super::servers::ScriptArgs;
use super::settler::decode_letter;
use super::source::delivery;

/// The dead letters of a topic, for [`Redrive`](idempotent_mq::Redrive) and for inspection.
///
/// Dead letters are listed slot by slot, the oldest of a slot first. Each one is put back by one script call, as a
/// first attempt with one more death.
#[derive(Debug)]
#[must_use]
pub struct DelayDeadLetters {
    queue: DelayQueue,
    slot: u16,
    /// Time of death and member of the last listed letter.
    cursor: (String, String),
    listed: Option<ListedLetter>,
    /// The server's time of the count of each slot in µs, at which its listing ends.
    ends: Vec<u64>,
}

/// A letter that was read.
#[derive(Debug)]
pub struct ListedLetter {
    slot: u16,
    died: String,
    member: String,
}

impl DelayDeadLetters {
    /// Returns a handle to the dead letters of `queue`.
    pub fn new(queue: &DelayQueue) -> Self {
        let cursor = (String::from("0"), String::new());
        Self { queue: queue.clone(), slot: 0, cursor, listed: None, ends: Vec::new() }
    }

    async fn next_of_slot(&mut self) -> Result<Option<(StoredLetter, ListedLetter)>, SourceError> {
        let doing = READING;
        let args = ScriptArgs::new().text(&self.cursor.0).text(&self.cursor.1).number(1_u64);
        let keys = self.queue.keys(self.slot).clone();
        let reply = self.queue.0.servers.call(DelayScript::Letters, &keys, &args).await;
        let mut items = reply.map(ReplyItems::of).map_err(|error| source_error(doing, error))?;
        let unexpected_reply = || source_error(doing, unexpected_reply(doing));
        let items = items.as_mut().ok_or_else(unexpected_reply)?;
        if items.is_empty() {
            return Ok(None);
        }
        let parts = (|| Some((items.text()?, items.text()?, items.bytes()?, items.bytes()?, items.bytes()?)))();
        let (member, died, state, letter, value) = parts.ok_or_else(unexpected_reply)?;
        let end = self.ends.get(usize::from(self.slot)).copied().unwrap_or(u64::MAX);
        if died.parse().is_ok_and(|died: u64| died > end) {
            return Ok(None);
        }
        let id = LetterId::new(format_args!("{}/{member}", self.slot), &died);
        self.cursor = (died.clone(), member.clone());
        let listed = ListedLetter { slot: self.slot, died, member: member.clone() };
        let number = |at: usize| String::from_utf8_lossy(&state).split(' ').nth(at)?.parse().ok();
        let receipt = DeliveryReceipt { keys, member, name: String::new(), number: number(0).unwrap_or(0), mark: 1 };
        let letter = decode_letter(&String::from_utf8_lossy(&letter));
        let taken = RawDelivery::dead(receipt, self.slot, letter.as_ref(), value)
            .decode()
            .unwrap_or_else(|unread| unread.undecoded());
        let (mut delivery, _) = delivery(&self.queue.topic().into(), taken);
        delivery.delivered = None;
        Ok(Some((StoredLetter::new(id, delivery, letter), listed)))
    }
}

impl DelayDeadLetters {
    /// Calls a script for a letter. Returns whether the letter was there.
    async fn change(
        &self,
        doing: &'static str,
        script: DelayScript,
        letter: &ListedLetter,
        args: &ScriptArgs,
    ) -> Result<bool, SourceError> {
        match self.queue.0.servers.call(script, self.queue.keys(letter.slot), args).await {
            Ok(Value::Int(there)) => Ok(there == 1),
            Ok(_) => Err(source_error(doing, unexpected_reply(doing))),
            Err(error) => Err(source_error(doing, error)),
        }
    }
}

const READING: &str = "reading the dead letters";

#[async_trait]
impl LetterBox for DelayDeadLetters {
    type Letter = ListedLetter;

    fn listed(&mut self) -> &mut Option<ListedLetter> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let counts = self.queue.counts_by_slot().await.map_err(|error| {
            let kind = match error.kind() {
                idempotent_mq::DelayErrorKind::Refused => SourceErrorKind::Fatal,
                _ => SourceErrorKind::Transient,
            };
            SourceError::new(kind, error.to_string()).with_cause(error)
        })?;
        self.ends = counts.iter().map(|(_, now)| *now).collect();
        Ok(counts.iter().map(|(counts, _)| counts.dead).sum())
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, ListedLetter)>, SourceError> {
        while self.slot < self.queue.0.settings.slots {
            if let Some(letter) = self.next_of_slot().await? {
                return Ok(Some(letter));
            }
            self.slot += 1;
            self.cursor = (String::from("0"), String::new());
        }
        Ok(None)
    }

    async fn revive(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let args = ScriptArgs::new().text(&letter.member);
        self.change("putting back", DelayScript::Redrive, letter, &args).await
    }

    async fn remove(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let args = ScriptArgs::new().text(&letter.member).text(&letter.died);
        self.change("removing a dead letter", DelayScript::Discard, letter, &args).await
    }
}

impl DelayQueue {
    /// Removes up to `limit` dead letters permanently, the oldest of each slot first. Returns the number of removed
    /// letters.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). Some letters may have been removed.
    ///
    /// # Cancellation
    /// Some letters may have been removed.
    pub async fn purge_dead(&self, limit: u64) -> Result<u64, DelayError> {
        let mut purged = 0;
        for slot in self.slots() {
            while purged < limit {
                let some = (limit - purged).min(super::slot_calls::MAX_BATCH as u64);
                let reply =
                    self.0.servers.call(DelayScript::Purge, self.keys(slot), &ScriptArgs::new().number(some)).await;
                let reply = reply.map_err(|error| delay_error("purging", error))?;
                let gone = count(&reply, "purging")?;
                purged += gone;
                if gone < some {
                    break;
                }
            }
        }
        Ok(purged)
    }
}

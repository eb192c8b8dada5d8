//! Dead letters: listed, put back, removed.
use async_trait::async_trait;
use idempotent_mq::{DeadLetter, DeadLetters, DelayError, Delivery, SourceError, SourceErrorKind};
use redis::Value;

use super::queue::DelayQueue;
use super::received::{Handed, Receipt, Taken};
use super::replies::count;
use super::reply_items::Items;
use super::scripts::Which;
use super::servers::{Args, delay_error, source_error, strange};
use super::settler::read;
use super::source::delivery;

/// The dead letters of a topic, for [`Redrive`](idempotent_mq::Redrive) and for whoever looks at them: each is put back
/// in one step on the server, as a first attempt that has died. Slot by slot, the oldest of a slot first.
#[derive(Debug)]
#[must_use]
pub struct DelayDeadLetters {
    queue: DelayQueue,
    slot: u16,
    /// When the one died that was brought last, and its member.
    behind: (String, String),
    /// It has not been put back.
    brought: bool,
}

impl DelayDeadLetters {
    /// Those of this queue.
    pub fn new(queue: &DelayQueue) -> Self {
        Self { queue: queue.clone(), slot: 0, behind: (String::from("0"), String::new()), brought: false }
    }

    async fn next_of_slot(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        let doing = "reading the dead letters";
        let args = Args::new().text(&self.behind.0).text(&self.behind.1).number(1_u64);
        let keys = self.queue.keys(self.slot).clone();
        let said = self.queue.0.servers.ask(Which::Letters, &keys, &args).await;
        let mut items = said.map(Items::of).map_err(|error| source_error(doing, error))?;
        let strange = || source_error(doing, strange(doing));
        let items = items.as_mut().ok_or_else(strange)?;
        if items.is_empty() {
            return Ok(None);
        }
        let parts = (|| Some((items.text()?, items.text()?, items.bytes()?, items.bytes()?, items.bytes()?)))();
        let (member, died, state, letter, value) = parts.ok_or_else(strange)?;
        self.behind = (died, member.clone());
        self.brought = true;
        let number = |at: usize| String::from_utf8_lossy(&state).split(' ').nth(at)?.parse().ok();
        let receipt = Receipt { keys, member, name: String::new(), number: number(0).unwrap_or(0), mark: 1 };
        let letter = read(&String::from_utf8_lossy(&letter));
        let taken = Handed::dead(receipt, self.slot, letter.as_ref(), value)
            .decode()
            .unwrap_or_else(|unread| Taken::raw(*unread));
        let (mut delivery, _) = delivery(&self.queue.topic().into(), taken);
        delivery.delivered = None;
        Ok(Some((delivery, letter)))
    }
}

#[async_trait]
impl DeadLetters for DelayDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        let counts = self.queue.counts().await;
        counts.map(|counts| counts.dead).map_err(|error| {
            let kind = match error.kind() {
                idempotent_mq::DelayErrorKind::Refused => SourceErrorKind::Fatal,
                _ => SourceErrorKind::Transient,
            };
            SourceError::new(kind, error.to_string()).with_cause(error)
        })
    }

    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        while self.slot < self.queue.0.settings.slots {
            if let Some(letter) = self.next_of_slot().await? {
                return Ok(Some(letter));
            }
            self.slot += 1;
            self.behind = (String::from("0"), String::new());
            self.brought = false;
        }
        Ok(None)
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        if !self.brought {
            let text = "`next` brought no letter that could be put back";
            return Err(SourceError::new(SourceErrorKind::Fatal, text));
        }
        let args = Args::new().text(&self.behind.1);
        let said = self.queue.0.servers.ask(Which::Redrive, self.queue.keys(self.slot), &args).await;
        let there = match said {
            Ok(Value::Int(there)) => there == 1,
            Ok(_) => return Err(source_error("putting back", strange("putting back"))),
            Err(error) => return Err(source_error("putting back", error)),
        };
        self.brought = false;
        Ok(there)
    }
}

impl DelayQueue {
    /// Removes dead letters for good, the oldest of each slot first, no more than `limit`. Says how many.
    ///
    /// # Errors
    /// By [`kind`](DelayError::kind). Some may be removed by then.
    ///
    /// # Cancellation
    /// Some may be removed.
    pub async fn purge_dead(&self, limit: u64) -> Result<u64, DelayError> {
        let mut purged = 0;
        for slot in self.slots() {
            while purged < limit {
                let some = (limit - purged).min(super::slot_calls::MOST as u64);
                let said = self.0.servers.ask(Which::Purge, self.keys(slot), &Args::new().number(some)).await;
                let said = said.map_err(|error| delay_error("purging", error))?;
                let gone = count(&said, "purging")?;
                purged += gone;
                if gone < some {
                    break;
                }
            }
        }
        Ok(purged)
    }
}

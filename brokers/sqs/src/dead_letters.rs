//! Listing, redriving and removing the dead letters of a queue.
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::Message;
use idempotent_mq::{Delivery, LetterBox, MessagePlace, Position, SourceError, StoredLetter};
use tokio::time::Instant;

use crate::SqsTag;
use crate::address::QueueAddress;
use crate::body::{self, StoredBody};
use crate::error::{Failure, fatal, refused_message};
use crate::fifo::identifier;
use crate::message::delivery;
use crate::polls::give_back;
use crate::queue::{BATCH, FifoIds, NewMessage, Queue};
use crate::setup::{count, open, open_checked};

/// The dead letters of a queue, for [`Redrive`](idempotent_mq::Redrive).
///
/// SQS cannot read a letter without hiding it: letters that were read are hidden from other readers until
/// [`close`](idempotent_mq::DeadLetters::close), or for 2 min after the last call. Each read is a receive, so the queue of the dead letters must not
/// have a `RedrivePolicy` of its own.
///
/// A letter is sent to its queue, and then deleted. If the process dies in between, the message is in both places, with one id. A FIFO
/// queue drops the second copy within 5 min. All letters go to the queue of this handle. A letter of another queue is refused.
///
/// The number of letters is an estimate of SQS, which may be a minute old.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_sqs::SqsDeadLetters;
///
/// # async fn example(client: aws_sdk_sqs::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = SqsDeadLetters::new(client, "orders");
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
#[must_use]
pub struct SqsDeadLetters {
    client: Client,
    queue: String,
    dead: Option<String>,
    /// The queue that the operator names.
    to: Option<String>,
    opened: Option<OpenLetters>,
    listed: Option<Listed>,
}

#[derive(Debug)]
struct OpenLetters {
    /// The address of the queue of this handle.
    address: QueueAddress,
    /// The address of the queue that the operator names.
    to: Option<QueueAddress>,
    dead: Queue,
    /// The queue that gets letters, once it is opened.
    queue: Option<Queue>,
    /// Letters that were received and not read yet.
    arrived: VecDeque<Message>,
    /// The receipt handles of letters that were read, and stay hidden.
    read: Vec<String>,
    /// The time at which the hidden letters were hidden.
    hidden_at: Instant,
}

/// A letter that was read.
#[derive(Debug)]
pub struct Listed {
    delivery: Delivery,
    tag: SqsTag,
}

const READING: &str = "reading the dead letters";
const PUTTING_BACK: &str = "putting a dead letter back";
const REMOVING: &str = "removing a dead letter";

/// The time for which letters are hidden, in seconds.
const HIDDEN: i32 = 120;
/// The time after which the hidden letters are hidden again.
const REFRESH: Duration = Duration::from_secs(40);
/// The wait for further letters, in seconds. Without a wait, SQS asks only some of its servers.
const WAIT: u64 = 1;

impl SqsDeadLetters {
    /// Creates a handle to the dead letters of this queue in `QUEUE-dead`, or in `QUEUE-dead.fifo` for a FIFO queue.
    pub fn new(client: Client, queue: impl Into<String>) -> Self {
        Self { client, queue: queue.into(), dead: None, to: None, opened: None, listed: None }
    }

    /// Sets the queue of the dead letters, as in [`SqsSourceBuilder::dead_letters`](crate::SqsSourceBuilder::dead_letters).
    ///
    /// # Default
    /// `QUEUE-dead`, or `QUEUE-dead.fifo` for a FIFO queue
    pub fn stored_in(mut self, queue: impl Into<String>) -> Self {
        self.dead = Some(queue.into());
        self
    }

    /// Puts all letters back to this queue, by its name or its URL, whatever queue they name.
    ///
    /// # Default
    /// The queue of this handle. A letter of another queue is [`Refused`](idempotent_mq::SourceErrorKind::Refused)
    pub fn putting_back_to(mut self, queue: impl Into<String>) -> Self {
        self.to = Some(queue.into());
        self
    }

    async fn open(&mut self) -> Result<&mut OpenLetters, SourceError> {
        if self.opened.is_none() {
            let address = QueueAddress::parse("queue", &self.queue)?;
            let dead = match &self.dead {
                Some(dead) => QueueAddress::parse("dead_letters", dead)?,
                None => address.dead(),
            };
            dead.check_region(&self.client)?;
            let dead = open(&self.client, &dead).await.map_err(|failure| failure.source())?;
            self.opened = Some(OpenLetters {
                address,
                to: self.to.as_deref().map(|to| QueueAddress::parse("putting_back_to", to)).transpose()?,
                dead,
                queue: None,
                arrived: VecDeque::new(),
                read: Vec::new(),
                hidden_at: Instant::now(),
            });
        }
        self.opened.as_mut().ok_or_else(|| fatal(READING, "the dead letters are closed"))
    }
}

impl OpenLetters {
    /// Hides the letters that were received for longer.
    async fn keep_hidden(&mut self) -> Result<(), SourceError> {
        if self.hidden_at.elapsed() < REFRESH {
            return Ok(());
        }
        let all: Vec<_> = self.receipts().map(|receipt| (receipt, HIDDEN)).collect();
        for chunk in all.chunks(BATCH) {
            // A letter that is gone is noticed when it is put back or removed.
            let changed = self.dead.change_batch(chunk.iter().copied(), READING).await;
            changed.map_err(|failure| failure.source())?;
        }
        self.hidden_at = Instant::now();
        Ok(())
    }

    /// Returns the receipt handles of all letters that are hidden.
    fn receipts(&self) -> impl Iterator<Item = &str> {
        let arrived = self.arrived.iter().filter_map(Message::receipt_handle);
        self.read.iter().map(String::as_str).chain(arrived)
    }

    /// Forgets a letter, which is gone.
    fn forget(&mut self, letter: &Listed) {
        self.read.retain(|receipt| *receipt != letter.tag.receipt);
    }

    /// Opens the queue of this handle, or the one that the operator names.
    ///
    /// # Errors
    /// `Refused`: the letter is of another queue.
    async fn queue(&mut self, client: &Client, letter: &Listed) -> Result<Queue, SourceError> {
        let origin = &*letter.delivery.position.source;
        if self.to.is_none() && origin != &*self.address.name {
            let text = format!(
                "the letter is of the queue `{origin}`; open the dead letters of that queue, or name a queue by `putting_back_to`"
            );
            return Err(refused_message(PUTTING_BACK, &text));
        }
        if let Some(queue) = &self.queue {
            return Ok(queue.clone());
        }
        // `revived` compares the message with the limit of the queue, which only `open_checked` reads.
        let (queue, _) = open_checked(client, self.to.as_ref().unwrap_or(&self.address), None).await?;
        Ok(self.queue.insert(queue).clone())
    }

    /// Hides a letter for longer. Returns false if another operator has put it back or removed it: SQS deletes a letter that is gone
    /// without an error, so the deletion does not show that.
    async fn hold(&mut self, letter: &Listed, doing: &str) -> Result<bool, SourceError> {
        let is_there = still_there(self.dead.change(&letter.tag.receipt, HIDDEN, doing).await)?;
        if !is_there {
            self.forget(letter);
        }
        Ok(is_there)
    }

    /// Deletes a letter.
    async fn delete(&mut self, letter: &Listed, doing: &str) -> Result<(), SourceError> {
        still_there(self.dead.delete(&letter.tag.receipt, doing).await)?;
        self.forget(letter);
        Ok(())
    }
}

#[async_trait]
impl LetterBox for SqsDeadLetters {
    type Letter = Listed;

    fn listed(&mut self) -> &mut Option<Listed> {
        &mut self.listed
    }

    /// Returns `None`: each request has a time limit, and their number depends on the number of letters.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let client = self.client.clone();
        let opened = self.open().await?;
        count(&client, &opened.dead, "counting the dead letters").await
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, Listed)>, SourceError> {
        let opened = self.open().await?;
        opened.keep_hidden().await?;
        if opened.arrived.is_empty() {
            let received = opened.dead.receive(BATCH, WAIT, HIDDEN).await.map_err(|failure| failure.source())?;
            opened.arrived.extend(received);
        }
        let Some(message) = opened.arrived.pop_front() else { return Ok(None) };
        let (mut delivery, tag) = delivery(&opened.dead, message, MessagePlace::DeadLetters);
        opened.read.push(tag.receipt.clone());
        let letter = tag.attributes.envelope().letter;
        let named = tag.attributes.origin().0;
        let origin = tag.moved_from.as_deref().or(named.as_deref()).unwrap_or(&opened.address.name);
        // The receives of the letter are reads of operators.
        delivery.delivered = None;
        delivery.position = Position::of(origin).offset(&tag.message);
        let stored = StoredLetter::at(&tag.message, delivery.clone(), letter);
        Ok(Some((stored, Listed { delivery, tag })))
    }

    async fn revive(&mut self, letter: &Listed) -> Result<bool, SourceError> {
        let client = self.client.clone();
        let opened = self.open().await?;
        if !opened.hold(letter, PUTTING_BACK).await? {
            return Ok(false);
        }
        let queue = opened.queue(&client, letter).await?;
        queue.send(revived(&queue, letter), PUTTING_BACK).await.map_err(|failure| failure.source())?;
        opened.delete(letter, PUTTING_BACK).await?;
        Ok(true)
    }

    async fn remove(&mut self, letter: &Listed) -> Result<bool, SourceError> {
        let opened = self.open().await?;
        let is_there = opened.hold(letter, REMOVING).await?;
        if is_there {
            opened.delete(letter, REMOVING).await?;
        }
        Ok(is_there)
    }

    async fn leave(&mut self) {
        if let Some(opened) = self.opened.take() {
            give_back(&opened.dead, opened.receipts()).await;
        }
    }
}

/// Returns whether SQS still had the letter of a request.
fn still_there(answer: Result<(), Failure>) -> Result<bool, SourceError> {
    match answer {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_gone() => Ok(false),
        Err(failure) => Err(failure.source()),
    }
}

/// Returns the message that is put back for a letter.
fn revived(queue: &Queue, Listed { delivery, tag }: &Listed) -> NewMessage {
    let StoredBody { text, mark } = body::store(&delivery.body);
    let id = delivery.id.as_deref().unwrap_or(&tag.message);
    let group = tag.attributes.origin().1;
    let group = group.as_deref().or(tag.group.as_deref()).unwrap_or(id);
    // Not the id of the message, which the queue may have received within the last 5 min.
    let deduplication = tag.message.clone();
    let fifo = queue.is_fifo().then(|| FifoIds { group: identifier(group), deduplication });
    let mut message = NewMessage { body: text, attributes: tag.attributes.revived(id, mark), fifo, delay: None };
    if message.size() > queue.largest {
        // The message arrived in this form.
        message.attributes = tag.attributes.bare(mark);
    }
    message
}

impl fmt::Debug for SqsDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsDeadLetters").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_sdk_sqs::types::BatchResultErrorEntry;

    use super::*;

    #[test]
    fn a_letter_is_gone_only_if_sqs_answers_that() {
        let failure = |code: &str| {
            let entry = BatchResultErrorEntry::builder().id("0").code(code).sender_fault(true);
            Err(Failure::of_entry(REMOVING, &entry.build().unwrap()))
        };
        assert!(still_there(Ok(())).unwrap());
        assert!(!still_there(failure("ReceiptHandleIsInvalid")).unwrap());
        assert!(still_there(failure("AccessDenied")).is_err());
    }
}

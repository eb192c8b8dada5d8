//! The dead letters of a queue, and the names by which operators select them.
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::{DeadLetter, Delivery, SourceError, SourceErrorKind};

/// The dead letters of a queue, implemented by an adapter for [`Redrive`](crate::Redrive) and for inspection.
///
/// Each call ends within a time limit, as with a [`LetterBox`], so that a silent broker does not block an operator.
#[async_trait]
pub trait DeadLetters: Send {
    /// Returns the number of dead letters, and begins to read them. Without this call, the first [`next`](Self::next) begins.
    ///
    /// An adapter that can tell them apart then returns no letter that arrives after this call. [`Redrive`](crate::Redrive) reads at most as
    /// many letters as there were. A broker that hides a letter while another reader holds it, such as RabbitMQ, does not count
    /// that letter.
    ///
    /// # Errors
    /// Same as [`Source::receive`](crate::Source::receive).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    async fn count(&mut self) -> Result<u64, SourceError>;

    /// Returns the next dead letter, from the oldest on, or `None` at the end. After the end, a call may return earlier letters
    /// again.
    ///
    /// A letter that is not put back stays among the dead letters. Others can read the letter again when `self` is dropped, or
    /// earlier.
    ///
    /// # Errors
    /// Same as [`Source::receive`](crate::Source::receive). Later calls may return earlier letters again.
    ///
    /// # Cancellation
    /// One letter may be skipped.
    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError>;

    /// Puts the letter that `next` returned last back into its queue, with unchanged body and headers, including those of the
    /// adapter. Returns false if the letter is gone because another operator put it back.
    ///
    /// The adapter removes the letter only after the queue has confirmed the message. The message is then a first attempt with
    /// an increased [`deaths`](Delivery::deaths).
    ///
    /// A letter returns only to the queue of this handle, or to one that the operator names. Data of a letter that another program
    /// wrote does not choose the queue.
    ///
    /// # Errors
    /// The letter stays unchanged. If the queue did not confirm, the message may be in both places, with one id.
    /// [`Refused`](crate::SourceErrorKind::Refused) concerns this letter only.
    ///
    /// # Cancellation
    /// The message is in its queue, among the dead letters, or in both.
    async fn put_back(&mut self) -> Result<bool, SourceError>;

    /// Removes the letter that `next` returned last for good. Returns false if the letter is gone because another operator put
    /// it back or removed it.
    ///
    /// A letter that died again since `next` is another letter, and stays if the adapter can tell them apart.
    ///
    /// # Errors
    /// The letter stays, or is removed if only the broker's answer was lost. [`Refused`](crate::SourceErrorKind::Refused) concerns
    /// this letter only.
    ///
    /// # Cancellation
    /// The letter may be removed.
    async fn discard(&mut self) -> Result<bool, SourceError>;

    /// Returns the letters that were read and not put back to the dead letters, so that others can read them at once.
    ///
    /// The default does nothing, for a broker on which reading hides no letter.
    ///
    /// # Cancellation
    /// The letters return a moment later, when the broker notices the end of the connection.
    async fn close(&mut self) {}
}

/// The dead letters of one broker, from which a [`DeadLetters`] is made.
///
/// The `DeadLetters` keeps the letter that was read last, ends each call after 30 s, and refuses to put back or remove a letter before
/// one was read.
#[async_trait]
pub trait LetterBox: Send {
    /// A letter that was read, with the data to put it back and to remove it.
    type Letter: Send + Sync;

    /// Returns the letter that was read last.
    fn listed(&mut self) -> &mut Option<Self::Letter>;

    /// Returns the number of letters, as [`DeadLetters::count`].
    ///
    /// # Errors
    /// Same as [`DeadLetters::count`].
    ///
    /// # Cancellation
    /// Same as [`DeadLetters::count`].
    async fn number(&mut self) -> Result<u64, SourceError>;

    /// Reads the next letter, as [`DeadLetters::next`].
    ///
    /// # Errors
    /// Same as [`DeadLetters::next`].
    ///
    /// # Cancellation
    /// Same as [`DeadLetters::next`].
    async fn fetch(&mut self) -> Result<Option<(StoredLetter, Self::Letter)>, SourceError>;

    /// Puts a letter back, as [`DeadLetters::put_back`].
    ///
    /// # Errors
    /// Same as [`DeadLetters::put_back`].
    ///
    /// # Cancellation
    /// Same as [`DeadLetters::put_back`].
    async fn revive(&mut self, letter: &Self::Letter) -> Result<bool, SourceError>;

    /// Removes a letter, as [`DeadLetters::discard`].
    ///
    /// # Errors
    /// Same as [`DeadLetters::discard`].
    ///
    /// # Cancellation
    /// Same as [`DeadLetters::discard`].
    async fn remove(&mut self, letter: &Self::Letter) -> Result<bool, SourceError>;

    /// Notes that a call has failed or ended at its time limit, and may be half done.
    ///
    /// The default does nothing.
    fn failed(&mut self, _error: &SourceError) {}

    /// Returns letters to other readers, as [`DeadLetters::close`].
    ///
    /// # Cancellation
    /// Same as [`DeadLetters::close`].
    async fn leave(&mut self) {}
}

#[async_trait]
impl<B: LetterBox> DeadLetters for B {
    async fn count(&mut self) -> Result<u64, SourceError> {
        let counted = answer_within("counting the dead letters", self.number()).await;
        noted(self, counted)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let fetched = answer_within("reading a dead letter", self.fetch()).await;
        let Some((stored, letter)) = noted(self, fetched)? else { return Ok(None) };
        *self.listed() = Some(letter);
        Ok(Some(stored))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let letter = taken(self)?;
        let put_back = answer_within("putting a dead letter back", self.revive(&letter)).await;
        kept(self, letter, put_back)
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        let letter = taken(self)?;
        let removed = answer_within("removing a dead letter", self.remove(&letter)).await;
        kept(self, letter, removed)
    }

    async fn close(&mut self) {
        self.leave().await;
    }
}

fn noted<B: LetterBox, T>(letters: &mut B, result: Result<T, SourceError>) -> Result<T, SourceError> {
    result.inspect_err(|error| letters.failed(error))
}

/// Returns the letter that was read last.
fn taken<B: LetterBox>(letters: &mut B) -> Result<B::Letter, SourceError> {
    let text = "no dead letter was read, or it was put back or removed; call `next` first";
    letters.listed().take().ok_or_else(|| SourceError::new(SourceErrorKind::Fatal, text))
}

/// Keeps the letter after an error, so that the call can be repeated.
fn kept<B: LetterBox>(
    letters: &mut B,
    letter: B::Letter,
    result: Result<bool, SourceError>,
) -> Result<bool, SourceError> {
    if result.is_err() {
        *letters.listed() = Some(letter);
    }
    noted(letters, result)
}

/// A dead letter that was read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredLetter {
    /// The name of the letter.
    pub id: LetterId,
    /// The delivery as a consumer would receive it.
    pub delivery: Delivery,
    /// The stored data of the dead letter, or `None` if neither a consumer nor the broker stored a reason.
    pub letter: Option<DeadLetter>,
}

impl StoredLetter {
    /// Creates a letter.
    #[must_use]
    pub fn new(id: LetterId, delivery: Delivery, letter: Option<DeadLetter>) -> Self {
        Self { id, delivery, letter }
    }

    /// Creates a letter with the id of this place and of its stored death.
    #[must_use]
    pub fn at(place: impl fmt::Display, delivery: Delivery, letter: Option<DeadLetter>) -> Self {
        let died = letter.as_ref().map_or(0, |letter| letter.last_at.0);
        Self::new(LetterId::new(place, died), delivery, letter)
    }
}

/// The name of one dead letter: its place among the dead letters and its death.
///
/// The id of a message does not name a letter. A resent message, a second consumer group and a second death leave several letters with
/// the same message id.
///
/// A letter keeps its id while it stays among the dead letters. A letter that was put back and died again has another id.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LetterId(Box<str>);

impl LetterId {
    /// Creates the id of a letter at a place that no other letter has at the same time, such as an offset, a sequence number or a row.
    /// `death` distinguishes letters that have the place one after the other, such as the time of the death.
    #[must_use]
    pub fn new(place: impl fmt::Display, death: impl fmt::Display) -> Self {
        Self(format!("{place}@{death}").into())
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads an id that an operator copied from a listing. An id that names no letter selects none.
impl From<&str> for LetterId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// The ids of letters on a broker without stable places: a hash of the content, and the number of equal letters before.
///
/// Two letters with equal content are interchangeable. The number makes a selection of one of them remove one.
#[derive(Debug, Default)]
pub struct ContentIds(HashMap<[u8; 32], u32>);

impl ContentIds {
    /// Returns the id of the next letter of a listing.
    pub fn next(&mut self, delivery: &Delivery, letter: Option<&DeadLetter>) -> LetterId {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(delivery.id.as_deref().unwrap_or_default().as_bytes());
        add(delivery.business_key.as_deref().unwrap_or_default().as_bytes());
        add(&delivery.body);
        for (name, value) in delivery.headers.iter() {
            add(name.as_bytes());
            add(value);
        }
        if let Some(letter) = letter {
            add(letter.reason.as_bytes());
            add(letter.id.as_deref().unwrap_or_default().as_bytes());
        }
        let hash: [u8; 32] = hash.finalize().into();
        let before = self.0.entry(hash).or_default();
        *before += 1;
        let place: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let died = letter.map_or(0, |letter| letter.last_at.0);
        LetterId::new(format_args!("{place}.{before}"), died)
    }
}

/// The time limit of [`answer_within`].
const ANSWER: Duration = Duration::from_secs(30);

/// Waits up to 30 s for the answer to a call of an operator. `doing` names the call in the error.
///
/// # Errors
/// Returns the errors of the call, and [`Transient`](SourceErrorKind::Transient) after the time limit.
///
/// # Cancellation
/// That of the call, which is dropped at the time limit.
async fn answer_within<T>(doing: &str, call: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
    timeout(ANSWER, call).await.unwrap_or_else(|_| {
        let text =
            format!("{doing}: no answer within {} s; check the broker and the connection to it", ANSWER.as_secs());
        Err(SourceError::new(SourceErrorKind::Transient, text))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::Timestamp;

    use super::*;
    use crate::Position;

    fn letter(body: &str, died: u64) -> (Delivery, DeadLetter) {
        let delivery = Delivery::new(Position::of("orders.dead"), body.into()).id("m-1").header("a", "b");
        (delivery, DeadLetter::because("no stock", Timestamp(died)))
    }

    #[test]
    fn letters_with_one_message_id_have_ids_of_their_own_in_every_listing() {
        let all = [letter("1", 5), letter("1", 6), letter("2", 5), letter("1", 5)];
        let listing = || {
            let mut ids = ContentIds::default();
            all.iter().map(|(delivery, letter)| ids.next(delivery, Some(letter)).to_string()).collect::<Vec<_>>()
        };
        let ids = listing();
        assert_eq!(ids, listing());
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), all.len(), "{ids:?}");
        assert_eq!(LetterId::from(ids[0].as_str()).to_string(), ids[0]);
    }

    #[test]
    fn a_second_death_at_a_place_is_another_letter() {
        let at = |died| {
            let (delivery, letter) = letter("1", died);
            StoredLetter::at("0/17", delivery, Some(letter)).id
        };
        assert_eq!(at(5).to_string(), "0/17@5");
        assert_ne!(at(5), at(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_after_the_limit() {
        let silent = answer_within("counting the dead letters", std::future::pending::<Result<(), _>>()).await;
        let error = silent.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Transient);
        assert!(error.to_string().contains("counting the dead letters: no answer within 30 s"), "{error}");
    }
}

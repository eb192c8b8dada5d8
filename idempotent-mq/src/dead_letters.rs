//! The dead letters of a queue, and the names by which operators select them.
use std::collections::HashMap;
use std::fmt;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::{DeadLetter, Delivery, SourceError};

/// The dead letters of a queue, implemented by an adapter for [`Redrive`](crate::Redrive) and for inspection.
///
/// Each call ends within a time limit, as with a [`LetterBox`](crate::LetterBox), so that a silent broker does not block an operator.
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
}

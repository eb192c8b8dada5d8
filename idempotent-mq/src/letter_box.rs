//! The dead letters of one broker.
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use crate::{DeadLetters, SourceError, SourceErrorKind, StoredLetter};

/// The dead letters of one broker, from which a [`DeadLetters`] is made.
///
/// The `DeadLetters` keeps the letter that was read last, ends each call at its [time limit](Self::time_limit), and refuses to put back
/// or remove a letter before one was read.
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

    /// Returns the time limit of a call, or `None` if the adapter limits each of its requests: for a call that makes any number of them,
    /// or that goes on after its future is dropped.
    ///
    /// # Default
    /// 30 s
    fn time_limit(&self) -> Option<Duration> {
        Some(ANSWER)
    }

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
        let limit = self.time_limit();
        let counted = answer_within(limit, "counting the dead letters", self.number()).await;
        noted(self, counted)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        // After an error or a drop, the caller does not know which letter was read last.
        let (limit, last) = (self.time_limit(), self.listed().take());
        let fetched = answer_within(limit, "reading a dead letter", self.fetch()).await;
        let (stored, letter) = noted(self, fetched)?.unzip();
        *self.listed() = letter.or(last);
        Ok(stored)
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let (limit, letter) = (self.time_limit(), taken(self)?);
        let put_back = answer_within(limit, "putting a dead letter back", self.revive(&letter)).await;
        kept(self, letter, put_back)
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        let (limit, letter) = (self.time_limit(), taken(self)?);
        let removed = answer_within(limit, "removing a dead letter", self.remove(&letter)).await;
        kept(self, letter, removed)
    }

    async fn close(&mut self) {
        *self.listed() = None;
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

/// The time limit of a call, unless the adapter has another one.
const ANSWER: Duration = Duration::from_secs(30);

/// Waits for the answer to a call of an operator, up to the limit. `doing` names the call in the error.
///
/// # Errors
/// Returns the errors of the call, and [`Transient`](SourceErrorKind::Transient) after the time limit.
///
/// # Cancellation
/// The call is dropped, as at the time limit.
async fn answer_within<T>(
    limit: Option<Duration>,
    doing: &str,
    call: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let Some(limit) = limit else { return call.await };
    timeout(limit, call).await.unwrap_or_else(|_| {
        let text =
            format!("{doing}: no answer within {} s; check the broker and the connection to it", limit.as_secs());
        Err(SourceError::new(SourceErrorKind::Transient, text))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Delivery, Position};

    /// A letter box whose steps end as listed.
    struct Scripted {
        fetched: Vec<Result<Option<u8>, SourceErrorKind>>,
        revived: Vec<Result<bool, SourceErrorKind>>,
        listed: Option<u8>,
        handled: Vec<u8>,
    }

    #[async_trait]
    impl LetterBox for Scripted {
        type Letter = u8;

        fn listed(&mut self) -> &mut Option<u8> {
            &mut self.listed
        }

        async fn number(&mut self) -> Result<u64, SourceError> {
            Ok(0)
        }

        async fn fetch(&mut self) -> Result<Option<(StoredLetter, u8)>, SourceError> {
            let delivery = Delivery::new(Position::of("orders.dead"), Vec::new());
            let fetched = self.fetched.remove(0).map_err(|kind| SourceError::new(kind, "scripted"))?;
            Ok(fetched.map(|number| (StoredLetter::at(number, delivery, None), number)))
        }

        async fn revive(&mut self, letter: &u8) -> Result<bool, SourceError> {
            self.handled.push(*letter);
            self.revived.remove(0).map_err(|kind| SourceError::new(kind, "scripted"))
        }

        async fn remove(&mut self, letter: &u8) -> Result<bool, SourceError> {
            self.revive(letter).await
        }
    }

    #[tokio::test]
    async fn a_call_concerns_the_letter_that_was_returned_last_and_no_other() {
        let transient = SourceErrorKind::Transient;
        let fetched = vec![Ok(Some(1)), Err(transient), Ok(Some(2)), Ok(None), Ok(Some(3))];
        let revived = vec![Err(transient), Ok(true)];
        let mut letters = Scripted { fetched, revived, listed: None, handled: Vec::new() };
        let refused = |error: SourceError| {
            assert_eq!(error.kind(), SourceErrorKind::Fatal);
            assert!(error.to_string().contains("call `next` first"), "{error}");
        };
        refused(letters.put_back().await.unwrap_err());
        assert!(letters.next().await.unwrap().is_some());
        letters.next().await.unwrap_err();
        refused(letters.discard().await.unwrap_err());
        assert!(letters.next().await.unwrap().is_some());
        assert!(letters.next().await.unwrap().is_none());
        letters.put_back().await.unwrap_err();
        assert!(letters.discard().await.unwrap());
        refused(letters.put_back().await.unwrap_err());
        assert!(letters.next().await.unwrap().is_some());
        letters.close().await;
        refused(letters.put_back().await.unwrap_err());
        assert_eq!(letters.handled, [2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_after_the_limit() {
        let silent =
            answer_within(Some(ANSWER), "counting the dead letters", std::future::pending::<Result<(), _>>()).await;
        let error = silent.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Transient);
        assert!(error.to_string().contains("counting the dead letters: no answer within 30 s"), "{error}");
    }
}

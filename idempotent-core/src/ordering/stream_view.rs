//! The order of a stream, for operators.
use super::encoding::decode;
use super::order_table::{NumberRange, OrderTable, Precedence};
use super::position::table_key;
use crate::{Key, OrderStore, StoreError, Timestamp};

/// The order of the [numbered](crate::Call::sequence) calls of one stream, for operators.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamView {
    /// The largest number that was admitted. All smaller numbers are over.
    pub last: Option<AdmittedNumber>,
    /// The call that was admitted last, unless its run is known to have ended.
    pub running: Option<Key>,
    /// The numbers above the largest admitted one, ascending.
    pub waiting: Vec<WaitingNumbers>,
    /// The reason why the first delivered number waits, or `None` if no delivered number waits, or if the first one runs with its
    /// next delivery.
    pub blocker: Option<StreamBlocker>,
}

/// A number that was admitted, in a [`StreamView`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdmittedNumber {
    /// The number.
    pub number: u64,
    /// The key of its call.
    pub key: Key,
    /// True if the call is known to be consumed. Otherwise, its record decides.
    pub is_consumed: bool,
}

/// Consecutive numbers that wait or are expected, in a [`StreamView`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WaitingNumbers {
    /// The first number.
    pub from: u64,
    /// The last number.
    pub to: u64,
    /// The times of the first and of the last delivery of a number that waits; `None` for numbers that were registered and not
    /// delivered.
    pub delivered: Option<(Timestamp, Timestamp)>,
}

/// The reason why a number waits, in a [`StreamView`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StreamBlocker {
    /// This smaller number was registered, and was not delivered.
    Expected(u64),
    /// The call with this key was admitted before, and is not known to be consumed. Its record decides.
    LastAdmitted(Key),
}

impl StreamView {
    /// Reads the order of a stream, and the store's time of the read. Returns `None` for the order if the stream has none.
    /// Writes nothing.
    ///
    /// # Errors
    /// The error of [`OrderStore::load`], or that of [`decode`](Self::decode).
    ///
    /// # Cancellation
    /// The call only reads, so a drop has no effect.
    pub async fn load(order: &dyn OrderStore, stream: &Key) -> Result<(Option<Self>, Timestamp), StoreError> {
        let stored = order.load(&table_key(stream)).await?;
        Ok((stored.table.map(|bytes| Self::decode(&bytes)).transpose()?, stored.now))
    }

    /// Decodes a table of [`BrowseOrder`](crate::BrowseOrder).
    ///
    /// # Errors
    /// [`Foreign`](crate::StoreErrorKind::Foreign), [`UnknownVersion`](crate::StoreErrorKind::UnknownVersion) or
    /// [`Corrupt`](crate::StoreErrorKind::Corrupt) for bytes that are no table of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        Ok(decode(bytes)?.into())
    }

    /// Returns the first number that was delivered and waits, with the times of its first and of its last delivery.
    #[must_use]
    pub fn first_waiting(&self) -> Option<(u64, (Timestamp, Timestamp))> {
        self.waiting.iter().find_map(|numbers| Some((numbers.from, numbers.delivered?)))
    }
}

impl From<OrderTable> for StreamView {
    fn from(table: OrderTable) -> Self {
        let waiting = |NumberRange { from, to, wait_times }: &NumberRange| WaitingNumbers {
            from: *from,
            to: *to,
            delivered: wait_times.map(|times| (times.first, times.last)),
        };
        let first = table.waiting.iter().find(|range| range.wait_times.is_some()).map(|range| range.from);
        let blocker = first.and_then(|number| match table.precedence(number) {
            Precedence::Nothing => None,
            Precedence::LastAdmitted(key) => Some(StreamBlocker::LastAdmitted(key)),
            Precedence::Expected(_) => table.waiting.first().map(|range| StreamBlocker::Expected(range.from)),
        });
        Self {
            waiting: table.waiting.iter().map(waiting).collect(),
            last: table.last.map(|last| AdmittedNumber {
                number: last.number,
                key: last.key,
                is_consumed: last.is_consumed,
            }),
            running: table.admitted.map(|admitted| admitted.key),
            blocker,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::encoding::encode;
    use super::*;

    fn key(name: &str) -> Key {
        Key::from_parts(name, 7)
    }

    fn view(table: &OrderTable) -> StreamView {
        StreamView::decode(&encode(table)).unwrap()
    }

    #[test]
    fn a_delivered_number_is_blocked_by_an_expected_one_or_by_the_last_admitted_call() {
        let mut table = OrderTable::default();
        assert_eq!(view(&table).blocker, None);
        for number in [1, 2, 3] {
            table.expect_number(number).unwrap();
        }
        assert_eq!((view(&table).blocker, view(&table).first_waiting()), (None, None), "no delivered number waits");
        table.record_wait(2, Timestamp(5), false).unwrap();
        table.record_wait(2, Timestamp(9), false).unwrap();
        let waiting = view(&table);
        assert_eq!(waiting.blocker, Some(StreamBlocker::Expected(1)));
        assert_eq!(waiting.first_waiting(), Some((2, (Timestamp(5), Timestamp(9)))));
        let ranges: Vec<_> =
            waiting.waiting.iter().map(|range| (range.from, range.to, range.delivered.is_some())).collect();
        assert_eq!(ranges, [(1, 1, false), (2, 2, true), (3, 3, false)]);

        table.admit(1, &key("one"), Timestamp(20));
        let running = view(&table);
        assert_eq!(
            (running.blocker, running.running),
            (Some(StreamBlocker::LastAdmitted(key("one"))), Some(key("one")))
        );
        table.mark_consumed(1, &key("one"));
        let free = view(&table);
        assert_eq!((free.blocker, free.running, free.last.unwrap().is_consumed), (None, None, true));
    }

    #[test]
    fn bytes_of_another_program_are_no_view() {
        assert_eq!(StreamView::decode(b"x").unwrap_err().kind(), crate::StoreErrorKind::Foreign);
    }
}

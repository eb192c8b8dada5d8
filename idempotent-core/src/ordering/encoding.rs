//! The stored form of a [`OrderTable`].
//!
//! ```text
//! version 0x81 | 'L' | entries u64 | 1 if there is a last: number u64, done u8, its key | 1 if there is one admitted:
//!     until u64, its key | stretches u32 | of each: from u64, to u64, 1 if it was seen: first u64, last u64
//! a key: length of its name u8 | name | hash u128
//! ```
use super::order_table::{Admitted, LastAdmitted, MAX_LINE, NumberRange, OrderTable, WaitTimes};
use crate::{Key, Micros, StoreError, StoreErrorKind};

const VERSION: u8 = 0x81;
const KIND: u8 = b'L';

pub(crate) fn pack(line: &OrderTable) -> Vec<u8> {
    let mut out = vec![VERSION, KIND];
    out.extend(line.entries.to_be_bytes());
    out.push(line.last.is_some().into());
    if let Some(LastAdmitted { number, key, done }) = &line.last {
        out.extend(number.to_be_bytes());
        out.push((*done).into());
        pack_key(key, &mut out);
    }
    out.push(line.admitted.is_some().into());
    if let Some(Admitted { key, until }) = &line.admitted {
        out.extend(until.0.to_be_bytes());
        pack_key(key, &mut out);
    }
    // There are no more than `MAX_LINE`.
    out.extend((line.waiting.len() as u32).to_be_bytes());
    for NumberRange { from, to, seen } in &line.waiting {
        out.extend(from.to_be_bytes());
        out.extend(to.to_be_bytes());
        out.push(seen.is_some().into());
        if let Some(WaitTimes { first, last }) = seen {
            out.extend(first.0.to_be_bytes());
            out.extend(last.0.to_be_bytes());
        }
    }
    out
}

fn pack_key(key: &Key, out: &mut Vec<u8>) {
    // Names end after 120 bytes.
    out.push(key.name().len() as u8);
    out.extend(key.name().as_bytes());
    out.extend(key.hash().to_be_bytes());
}

/// Read strictly, as a record is: what cannot be read is left as it is.
pub(crate) fn unpack(bytes: &[u8]) -> Result<OrderTable, StoreError> {
    match bytes {
        [VERSION, KIND, ..] => {}
        [version, KIND, ..] if *version > VERSION => {
            return Err(StoreError::new(StoreErrorKind::UnknownVersion)
                .because("the order table of this stream was written by a newer version: update this program"));
        }
        _ => return Err(StoreError::new(StoreErrorKind::Foreign).because("it is not the order table of a stream")),
    }
    let mut rest = Rest(&bytes[2..]);
    let line = rest.line().filter(|_| rest.0.is_empty());
    line.ok_or_else(|| {
        StoreError::new(StoreErrorKind::Corrupt)
            .because("the order table of this stream cannot be read: restore it, or remove it to begin the stream anew")
    })
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn line(&mut self) -> Option<OrderTable> {
        let entries = self.number()?;
        let last = match self.flag()? {
            true => Some(LastAdmitted { number: self.number()?, done: self.flag()?, key: self.key()? }),
            false => None,
        };
        let admitted = match self.flag()? {
            true => Some(Admitted { until: Micros(self.number()?), key: self.key()? }),
            false => None,
        };
        let stretches = u32::from_be_bytes(*self.take()?) as usize;
        if stretches > MAX_LINE {
            return None;
        }
        let mut waiting: Vec<NumberRange> = Vec::new();
        let mut end = last.as_ref().map(|last| last.number);
        for _ in 0..stretches {
            let (from, to) = (self.number()?, self.number()?);
            let seen = match self.flag()? {
                true => Some(WaitTimes { first: Micros(self.number()?), last: Micros(self.number()?) }),
                false => None,
            };
            if from > to || seen.is_some() && from != to || end.is_some_and(|end| end >= from) {
                return None;
            }
            end = Some(to);
            waiting.push(NumberRange { from, to, seen });
        }
        Some(OrderTable { entries, last, admitted, waiting })
    }

    fn take<const N: usize>(&mut self) -> Option<&[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.take()?))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn key(&mut self) -> Option<Key> {
        let [length] = *self.take()?;
        let (name, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        let name = std::str::from_utf8(name).ok()?;
        let key = Key::from_parts(name, u128::from_be_bytes(*self.take()?));
        (key.name() == name).then_some(key)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::from_parts(name, 7 << 100)
    }

    fn full() -> OrderTable {
        let seen = Some(WaitTimes { first: Micros(1), last: Micros(2) });
        OrderTable {
            entries: 3,
            last: Some(LastAdmitted { number: 4, key: key("shop:mq:points"), done: true }),
            admitted: Some(Admitted { key: key("é"), until: Micros(u64::MAX) }),
            waiting: vec![
                NumberRange { from: 5, to: 9, seen: None },
                NumberRange { from: 10, to: 10, seen },
                NumberRange { from: u64::MAX, to: u64::MAX, seen: None },
            ],
        }
    }

    #[test]
    fn a_line_comes_back_as_it_was_and_no_part_of_it_does() {
        for line in [
            OrderTable::default(),
            full(),
            OrderTable { last: None, ..full() },
            OrderTable { admitted: None, ..full() },
        ] {
            let bytes = pack(&line);
            assert_eq!(unpack(&bytes).unwrap(), line);
            for cut in 2..bytes.len() {
                assert_eq!(unpack(&bytes[..cut]).unwrap_err().kind(), StoreErrorKind::Corrupt, "cut at {cut}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(unpack(&longer).unwrap_err().kind(), StoreErrorKind::Corrupt);
        }
    }

    #[test]
    fn what_is_no_line_is_not_taken_for_one() {
        assert_eq!(unpack(b"").unwrap_err().kind(), StoreErrorKind::Foreign);
        assert_eq!(unpack(b"\x81Jabc").unwrap_err().kind(), StoreErrorKind::Foreign);
        assert_eq!(unpack(b"\x82Labc").unwrap_err().kind(), StoreErrorKind::UnknownVersion);
        let mut mixed = full();
        mixed.waiting.swap(0, 1);
        assert_eq!(unpack(&pack(&mixed)).unwrap_err().kind(), StoreErrorKind::Corrupt);
        let below = OrderTable { waiting: vec![NumberRange { from: 4, to: 6, seen: None }], ..full() };
        assert_eq!(unpack(&pack(&below)).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }
}

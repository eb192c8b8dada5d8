//! The stored form of an [`OrderTable`].
//!
//! ```text
//! version 0x81 | 'L' | admissions u64 | 1 if a number was admitted: number u64, consumed u8, key | 1 if one may run:
//!     until u64, key | ranges u32 | each range: from u64, to u64, 1 if delivered: first u64, last u64
//! key: length of the name u8 | name | hash u128
//! ```
use super::order_table::{Admitted, LastAdmitted, MAX_WAITING_RANGES, NumberRange, OrderTable, WaitTimes};
use crate::{Key, StoreError, StoreErrorKind, Timestamp};

const VERSION: u8 = 0x81;
const KIND: u8 = b'L';

pub(crate) fn encode(table: &OrderTable) -> Vec<u8> {
    let mut out = vec![VERSION, KIND];
    out.extend(table.admissions.to_be_bytes());
    out.push(table.last.is_some().into());
    if let Some(LastAdmitted { number, key, is_consumed }) = &table.last {
        out.extend(number.to_be_bytes());
        out.push((*is_consumed).into());
        encode_key(key, &mut out);
    }
    out.push(table.admitted.is_some().into());
    if let Some(Admitted { key, until }) = &table.admitted {
        out.extend(until.0.to_be_bytes());
        encode_key(key, &mut out);
    }
    // A table has at most `MAX_WAITING_RANGES` ranges.
    out.extend((table.waiting.len() as u32).to_be_bytes());
    for NumberRange { from, to, wait_times } in &table.waiting {
        out.extend(from.to_be_bytes());
        out.extend(to.to_be_bytes());
        out.push(wait_times.is_some().into());
        if let Some(WaitTimes { first, last }) = wait_times {
            out.extend(first.0.to_be_bytes());
            out.extend(last.0.to_be_bytes());
        }
    }
    out
}

fn encode_key(key: &Key, out: &mut Vec<u8>) {
    // Key names are limited to 120 bytes.
    out.push(key.name().len() as u8);
    out.extend(key.name().as_bytes());
    out.extend(key.hash().to_be_bytes());
}

/// Decodes a table strictly, like a record. Unreadable bytes are left unchanged in the store.
pub(crate) fn decode(bytes: &[u8]) -> Result<OrderTable, StoreError> {
    match bytes {
        [VERSION, KIND, ..] => {}
        [version, KIND, ..] if *version > VERSION => {
            return Err(StoreError::new(StoreErrorKind::UnknownVersion)
                .because("the order table of the stream has a newer format version; upgrade this service"));
        }
        _ => return Err(StoreError::new(StoreErrorKind::Foreign).because("the stored value is not an order table")),
    }
    let mut reader = TableReader(&bytes[2..]);
    let table = reader.read_table().filter(|_| reader.0.is_empty());
    table.ok_or_else(|| {
        StoreError::new(StoreErrorKind::Corrupt)
            .because("the order table of the stream is corrupt; restore it, or delete it to restart the stream")
    })
}

struct TableReader<'a>(&'a [u8]);

impl TableReader<'_> {
    fn read_table(&mut self) -> Option<OrderTable> {
        let admissions = self.read_u64()?;
        let last = match self.read_flag()? {
            true => {
                Some(LastAdmitted { number: self.read_u64()?, is_consumed: self.read_flag()?, key: self.read_key()? })
            }
            false => None,
        };
        let admitted = match self.read_flag()? {
            true => Some(Admitted { until: Timestamp(self.read_u64()?), key: self.read_key()? }),
            false => None,
        };
        let ranges = u32::from_be_bytes(*self.read_array()?) as usize;
        if ranges > MAX_WAITING_RANGES {
            return None;
        }
        let mut waiting: Vec<NumberRange> = Vec::new();
        let mut end = last.as_ref().map(|last| last.number);
        for _ in 0..ranges {
            let (from, to) = (self.read_u64()?, self.read_u64()?);
            let wait_times = match self.read_flag()? {
                true => Some(WaitTimes { first: Timestamp(self.read_u64()?), last: Timestamp(self.read_u64()?) }),
                false => None,
            };
            if from > to || wait_times.is_some() && from != to || end.is_some_and(|end| end >= from) {
                return None;
            }
            end = Some(to);
            waiting.push(NumberRange { from, to, wait_times });
        }
        Some(OrderTable { admissions, last, admitted, waiting })
    }

    fn read_array<const N: usize>(&mut self) -> Option<&[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn read_u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.read_array()?))
    }

    fn read_flag(&mut self) -> Option<bool> {
        match self.read_array::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn read_key(&mut self) -> Option<Key> {
        let [length] = *self.read_array()?;
        let (name, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        let name = std::str::from_utf8(name).ok()?;
        let key = Key::from_parts(name, u128::from_be_bytes(*self.read_array()?));
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
        let wait_times = Some(WaitTimes { first: Timestamp(1), last: Timestamp(2) });
        OrderTable {
            admissions: 3,
            last: Some(LastAdmitted { number: 4, key: key("shop:mq:points"), is_consumed: true }),
            admitted: Some(Admitted { key: key("é"), until: Timestamp(u64::MAX) }),
            waiting: vec![
                NumberRange { from: 5, to: 9, wait_times: None },
                NumberRange { from: 10, to: 10, wait_times },
                NumberRange { from: u64::MAX, to: u64::MAX, wait_times: None },
            ],
        }
    }

    #[test]
    fn an_encoded_table_decodes_and_truncated_bytes_do_not() {
        for table in [
            OrderTable::default(),
            full(),
            OrderTable { last: None, ..full() },
            OrderTable { admitted: None, ..full() },
        ] {
            let bytes = encode(&table);
            assert_eq!(decode(&bytes).unwrap(), table);
            for cut in 2..bytes.len() {
                assert_eq!(decode(&bytes[..cut]).unwrap_err().kind(), StoreErrorKind::Corrupt, "cut at {cut}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(decode(&longer).unwrap_err().kind(), StoreErrorKind::Corrupt);
        }
    }

    #[test]
    fn a_table_has_at_most_the_largest_number_of_ranges() {
        let ranges = |most: usize| {
            let waiting = (0..most as u64).map(|n| NumberRange { from: 2 * n, to: 2 * n, wait_times: None }).collect();
            decode(&encode(&OrderTable { waiting, ..OrderTable::default() })).map(|table| table.waiting.len())
        };
        assert_eq!(ranges(MAX_WAITING_RANGES).unwrap(), MAX_WAITING_RANGES);
        assert_eq!(ranges(MAX_WAITING_RANGES + 1).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }

    #[test]
    fn foreign_and_newer_and_inconsistent_bytes_are_rejected() {
        assert_eq!(decode(b"").unwrap_err().kind(), StoreErrorKind::Foreign);
        assert_eq!(decode(b"\x81Jabc").unwrap_err().kind(), StoreErrorKind::Foreign);
        assert_eq!(decode(b"\x82Labc").unwrap_err().kind(), StoreErrorKind::UnknownVersion);
        let mut mixed = full();
        mixed.waiting.swap(0, 1);
        assert_eq!(decode(&encode(&mixed)).unwrap_err().kind(), StoreErrorKind::Corrupt);
        assert_eq!(decode(&[VERSION - 1, KIND, 0]).unwrap_err().kind(), StoreErrorKind::Foreign, "of no version");
        let reversed = OrderTable { waiting: vec![NumberRange { from: 9, to: 5, wait_times: None }], ..full() };
        assert_eq!(decode(&encode(&reversed)).unwrap_err().kind(), StoreErrorKind::Corrupt);
        let below = OrderTable { waiting: vec![NumberRange { from: 4, to: 6, wait_times: None }], ..full() };
        assert_eq!(decode(&encode(&below)).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }
}

//! The in-memory form of a record: 96 bytes, and a separate allocation for optional fields.
use std::sync::Arc;

use crate::{FencingToken, Fingerprint, OwnerToken, Record, State, StateKind, Timestamp};

/// A compact record. Optional fields share one allocation.
#[derive(Debug)]
pub(super) struct CompactRecord {
    /// The hash as two halves, like the owner: a `u128` would need an alignment of 16 bytes.
    hash: [u64; 2],
    owner: [u64; 2],
    fencing: u64,
    expires_at: u64,
    first_seen: u64,
    updated_at: u64,
    /// The lease's end of a consuming key, or the earliest claim of a vacant one.
    deadline: u64,
    optional: Option<Box<OptionalFields>>,
    attempt: u32,
    /// The tick at which the shard checks the entry again; see [`super::shard`].
    pub(super) tick: u32,
    /// The number of the key's name in the shard's [`NameTable`](super::names::NameTable).
    pub(super) name: u32,
    kind: StateKind,
}

/// The fields that most consumed records do not have.
#[derive(Debug, Default)]
struct OptionalFields {
    fingerprint: Option<Fingerprint>,
    display: Option<Arc<str>>,
    value: Option<Arc<[u8]>>,
    error: Option<Arc<str>>,
    taken_over: Option<FencingToken>,
}

impl CompactRecord {
    pub(super) fn new((hash, name): (u128, u32), record: Record, tick: u32) -> Self {
        let Record { fencing, attempt, fingerprint, state, expires_at, first_seen, updated_at, display } = record;
        let kind = state.kind();
        let mut optional = OptionalFields { fingerprint, display, ..OptionalFields::default() };
        let (mut owner, mut deadline) = (OwnerToken::NOT_KEPT, Timestamp(0));
        match state {
            State::Vacant { not_before, error, taken_over } => {
                (deadline, optional.error, optional.taken_over) = (not_before, Some(error), taken_over);
            }
            State::Consuming { owner: by, until, taken_over } => {
                (owner, deadline, optional.taken_over) = (by, until, taken_over);
            }
            State::Consumed { owner: by, value } => (owner, optional.value) = (by, value),
            State::Failed { error } | State::Dead { error } => optional.error = Some(error),
        }
        Self {
            hash: halves(hash),
            owner: halves(owner.0),
            fencing: fencing.0,
            expires_at: expires_at.0,
            first_seen: first_seen.0,
            updated_at: updated_at.0,
            deadline: deadline.0,
            optional: optional.boxed(),
            attempt,
            tick,
            name,
            kind,
        }
    }

    pub(super) fn has_hash(&self, hash: u128) -> bool {
        self.hash == halves(hash)
    }

    pub(super) fn hash(&self) -> u128 {
        whole(self.hash)
    }

    /// Returns the half of the hash that spreads entries over a shard's buckets.
    pub(super) fn bucket_hash(&self) -> u64 {
        self.hash[0]
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        Timestamp(self.expires_at)
    }

    pub(super) fn record(&self) -> Record {
        let optional = self.optional.as_deref();
        let error = || optional.and_then(|optional| optional.error.clone()).unwrap_or_default();
        let taken_over = optional.and_then(|optional| optional.taken_over);
        let (owner, deadline) = (OwnerToken(whole(self.owner)), Timestamp(self.deadline));
        let state = match self.kind {
            StateKind::Consuming => State::Consuming { owner, until: deadline, taken_over },
            StateKind::Consumed => {
                State::Consumed { owner, value: optional.and_then(|optional| optional.value.clone()) }
            }
            StateKind::Failed => State::Failed { error: error() },
            StateKind::Dead => State::Dead { error: error() },
            // `Absent` never occurs here: an entry is always made of a record.
            StateKind::Vacant | StateKind::Absent => State::Vacant { not_before: deadline, error: error(), taken_over },
        };
        Record {
            fencing: FencingToken(self.fencing),
            attempt: self.attempt,
            fingerprint: optional.and_then(|optional| optional.fingerprint),
            state,
            expires_at: self.expires_at(),
            first_seen: Timestamp(self.first_seen),
            updated_at: Timestamp(self.updated_at),
            display: optional.and_then(|optional| optional.display.clone()),
        }
    }
}

impl OptionalFields {
    fn boxed(self) -> Option<Box<Self>> {
        let empty = self.fingerprint.is_none()
            && self.display.is_none()
            && self.value.is_none()
            && self.error.is_none()
            && self.taken_over.is_none();
        (!empty).then(|| Box::new(self))
    }
}

/// Splits a hash into its low and high half, in this order.
pub(super) fn halves(whole: u128) -> [u64; 2] {
    [whole as u64, (whole >> 64) as u64]
}

fn whole([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_96_bytes() {
        assert_eq!((size_of::<CompactRecord>(), size_of::<Option<CompactRecord>>()), (96, 96));
    }

    #[test]
    fn a_record_of_each_state_comes_back_as_it_was() {
        let text = || Arc::from("why");
        let owner = OwnerToken(7 << 64 | 9);
        let taken_over = Some(FencingToken(3));
        let states = [
            State::Vacant { not_before: Timestamp(5), error: text(), taken_over },
            State::Vacant { not_before: Timestamp(5), error: Arc::from(""), taken_over: None },
            State::Consuming { owner, until: Timestamp(6), taken_over },
            State::Consuming { owner, until: Timestamp(6), taken_over: None },
            State::Consumed { owner, value: Some(Arc::from(&b""[..])) },
            State::Consumed { owner, value: None },
            State::Failed { error: text() },
            State::Dead { error: text() },
        ];
        for (state, fingerprint, display) in states.into_iter().flat_map(|state| {
            let fingerprint = Fingerprint::of_bytes("payload");
            [(state.clone(), Some(fingerprint), Some(text())), (state, None, None)]
        }) {
            let record = Record {
                fencing: FencingToken(1),
                attempt: 2,
                fingerprint,
                state,
                expires_at: Timestamp(8),
                first_seen: Timestamp(3),
                updated_at: Timestamp(4),
                display,
            };
            let hash = 1 << 127 | 5;
            let entry = CompactRecord::new((hash, 3), record.clone(), 11);
            assert!(entry.has_hash(hash) && !entry.has_hash(5), "{entry:?}");
            assert_eq!((entry.record(), entry.tick, entry.bucket_hash(), entry.name), (record, 11, 5, 3));
        }
    }
}

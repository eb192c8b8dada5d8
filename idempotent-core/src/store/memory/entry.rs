//! A record as the memory store keeps it: 96 bytes, and more only where there is more to keep.
use std::sync::Arc;

use crate::{Fencing, Fingerprint, Micros, OwnerToken, Record, State, StateKind};

#[derive(Debug)]
pub(super) struct Entry {
    /// In halves, as the owner is: a `u128` would have to lie at a multiple of 16.
    hash: [u64; 2],
    owner: [u64; 2],
    fencing: u64,
    expires_at: u64,
    first_seen: u64,
    updated_at: u64,
    /// The lease's end; of a vacant key, when it may be claimed.
    mark: u64,
    more: Option<Box<More>>,
    attempt: u32,
    /// When it is looked at again; see [`super::shard`].
    pub(super) tick: u32,
    kind: StateKind,
}

/// What most consumed records do without.
#[derive(Debug, Default)]
struct More {
    fingerprint: Option<Fingerprint>,
    display: Option<Arc<str>>,
    value: Option<Arc<[u8]>>,
    error: Option<Arc<str>>,
    taken_over: Option<Fencing>,
}

impl Entry {
    pub(super) fn new(hash: u128, record: Record, tick: u32) -> Self {
        let Record { fencing, attempt, fingerprint, state, expires_at, first_seen, updated_at, display } = record;
        let kind = state.kind();
        let mut more = More { fingerprint, display, ..More::default() };
        let (mut owner, mut mark) = (OwnerToken::NOT_KEPT, Micros(0));
        match state {
            State::Vacant { not_before, error, taken_over } => {
                (mark, more.error, more.taken_over) = (not_before, Some(error), taken_over);
            }
            State::Consuming { owner: by, until, taken_over } => {
                (owner, mark, more.taken_over) = (by, until, taken_over);
            }
            State::Consumed { owner: by, value } => (owner, more.value) = (by, value),
            State::Failed { error } | State::Dead { error } => more.error = Some(error),
        }
        Self {
            hash: halves(hash),
            owner: halves(owner.0),
            fencing: fencing.0,
            expires_at: expires_at.0,
            first_seen: first_seen.0,
            updated_at: updated_at.0,
            mark: mark.0,
            more: more.boxed(),
            attempt,
            tick,
            kind,
        }
    }

    pub(super) fn is(&self, hash: u128) -> bool {
        self.hash == halves(hash)
    }

    pub(super) fn hash(&self) -> u128 {
        whole(self.hash)
    }

    /// The half that spreads over a shard's buckets.
    pub(super) fn spread(&self) -> u64 {
        self.hash[0]
    }

    pub(super) fn expires_at(&self) -> Micros {
        Micros(self.expires_at)
    }

    pub(super) fn record(&self) -> Record {
        let more = self.more.as_deref();
        let error = || more.and_then(|more| more.error.clone()).unwrap_or_default();
        let taken_over = more.and_then(|more| more.taken_over);
        let (owner, mark) = (OwnerToken(whole(self.owner)), Micros(self.mark));
        let state = match self.kind {
            StateKind::Consuming => State::Consuming { owner, until: mark, taken_over },
            StateKind::Consumed => State::Consumed { owner, value: more.and_then(|more| more.value.clone()) },
            StateKind::Failed => State::Failed { error: error() },
            StateKind::Dead => State::Dead { error: error() },
            // A record is in some state: none is made of nothing.
            StateKind::Vacant | StateKind::Absent => State::Vacant { not_before: mark, error: error(), taken_over },
        };
        Record {
            fencing: Fencing(self.fencing),
            attempt: self.attempt,
            fingerprint: more.and_then(|more| more.fingerprint),
            state,
            expires_at: self.expires_at(),
            first_seen: Micros(self.first_seen),
            updated_at: Micros(self.updated_at),
            display: more.and_then(|more| more.display.clone()),
        }
    }
}

impl More {
    fn boxed(self) -> Option<Box<Self>> {
        let empty = self.fingerprint.is_none()
            && self.display.is_none()
            && self.value.is_none()
            && self.error.is_none()
            && self.taken_over.is_none();
        (!empty).then(|| Box::new(self))
    }
}

/// The low half first.
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
    fn an_entry_is_no_larger_than_it_has_to_be() {
        assert_eq!((size_of::<Entry>(), size_of::<Option<Entry>>()), (96, 96));
    }

    #[test]
    fn a_record_of_each_state_comes_back_as_it_was() {
        let text = || Arc::from("why");
        let owner = OwnerToken(7 << 64 | 9);
        let taken_over = Some(Fencing(3));
        let states = [
            State::Vacant { not_before: Micros(5), error: text(), taken_over },
            State::Vacant { not_before: Micros(5), error: Arc::from(""), taken_over: None },
            State::Consuming { owner, until: Micros(6), taken_over },
            State::Consuming { owner, until: Micros(6), taken_over: None },
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
                fencing: Fencing(1),
                attempt: 2,
                fingerprint,
                state,
                expires_at: Micros(8),
                first_seen: Micros(3),
                updated_at: Micros(4),
                display,
            };
            let hash = 1 << 127 | 5;
            let entry = Entry::new(hash, record.clone(), 11);
            assert!(entry.is(hash) && !entry.is(5), "{entry:?}");
            assert_eq!((entry.record(), entry.tick, entry.spread()), (record, 11, 5));
        }
    }
}

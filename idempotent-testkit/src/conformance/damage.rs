//! Records that cannot be read.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{FencingToken, Key, OwnerToken, Record, State, StoreErrorKind, Timestamp};
use sha2::{Digest, Sha256};

/// What can be wrong with what lies under a key. Complete enough to be planted one after the other:
/// [`Damage::ALL`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Damage {
    /// The end is missing.
    CutOff,
    /// Bytes are changed.
    Noise,
    /// A later version of this protocol wrote it.
    NewerVersion,
    /// Consuming, and nobody's.
    NoOwner,
    /// The fencing number is none, or 2^53 or more.
    BadFencing,
    /// The lease ends in the year 9999.
    EndlessLease,
    /// A state nobody knows.
    UnknownState,
    /// Not a record at all: somebody else's value.
    Foreign,
}

impl Damage {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::CutOff,
        Self::Noise,
        Self::NewerVersion,
        Self::NoOwner,
        Self::BadFencing,
        Self::EndlessLease,
        Self::UnknownState,
        Self::Foreign,
    ];

    /// What a store has to say about it.
    #[must_use]
    pub fn kind(self) -> StoreErrorKind {
        match self {
            Self::NewerVersion => StoreErrorKind::UnknownVersion,
            Self::Foreign => StoreErrorKind::Foreign,
            _ => StoreErrorKind::Corrupt,
        }
    }

    /// A record damaged this way, for a store that keeps [`Record::to_bytes`]. Where the damage is in a field, the
    /// checksum is right.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::CutOff => {
                let mut bytes = sample(1).to_bytes();
                bytes.truncate(bytes.len() / 2);
                bytes
            }
            Self::Noise => {
                let mut bytes = sample(1).to_bytes();
                bytes[20] ^= 0x20;
                bytes
            }
            Self::NewerVersion => sealed(|body| body[MAJOR] = 99),
            // What follows the display of a consuming record is owner, end and what was taken over.
            Self::NoOwner => sealed(|body| body.truncate(body.len() - 32)),
            Self::BadFencing => sample(1 << 53).to_bytes(),
            Self::EndlessLease => {
                let until = Timestamp(253_370_764_800_000_000);
                let state = State::Consuming { owner: OwnerToken(1), until, taken_over: None };
                Record { state, ..sample(1) }.to_bytes()
            }
            Self::UnknownState => sealed(|body| body[STATE] = 9),
            Self::Foreign => b"consuming".to_vec(),
        }
    }
}

const MAJOR: usize = 2;
const STATE: usize = 4;
const SUM: usize = 4;

/// Held, and remembered for long.
fn sample(fencing: u64) -> Record {
    let now = crate::VirtualClock::START;
    let until = now + Duration::from_secs(30);
    Record {
        fencing: FencingToken(fencing),
        attempt: 1,
        fingerprint: None,
        state: State::Consuming { owner: OwnerToken(1), until, taken_over: None },
        expires_at: Timestamp::FOREVER,
        first_seen: now,
        updated_at: now,
        display: Some(Arc::from("shown")),
    }
}

/// Changed, and the checksum made right again: a writer who knew what it did.
fn sealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = sample(1).to_bytes();
    body.truncate(body.len() - SUM);
    change(&mut body);
    let sum = Sha256::digest(&body);
    body.extend(&sum[..SUM]);
    body
}

/// Damages records behind the store's back, for laws about records that cannot be read.
#[async_trait]
pub trait DamageInjector: Send + Sync {
    /// Whether this storage can hold such a thing at all: a column of numbers takes no text, and a table of records
    /// nothing foreign. Where records are kept as [`Record::to_bytes`], it can hold all of them.
    fn holds(&self, damage: Damage) -> bool;

    /// Puts this in place of the record under the key.
    async fn plant(&self, key: &Key, damage: Damage);

    /// All that lies under the key, to the last byte, in any form that can be compared; empty where nothing is.
    async fn look(&self, key: &Key) -> Vec<u8>;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_damaged_form_is_refused_as_its_kind_says() {
        for damage in Damage::ALL {
            let error = Record::from_bytes(&damage.to_bytes()).unwrap_err();
            assert_eq!(error.kind(), damage.kind(), "{damage:?}: {error}");
        }
        let named = |damage: Damage| Record::from_bytes(&damage.to_bytes()).unwrap_err().to_string();
        assert!(named(Damage::NoOwner).contains("`owner`"), "{}", named(Damage::NoOwner));
        assert!(named(Damage::BadFencing).contains("`fencing`"));
        assert!(named(Damage::EndlessLease).contains("`until`"));
        assert!(named(Damage::UnknownState).contains("`state`"));
    }
}

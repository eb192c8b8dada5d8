//! Damaged records.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{FencingToken, Key, OwnerToken, Record, State, StoreErrorKind, Timestamp};
use sha2::{Digest, Sha256};

/// The damage of a stored value. [`Damage::ALL`] lists all kinds, for one test after the other.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Damage {
    /// The end is missing.
    CutOff,
    /// Bytes are changed.
    Noise,
    /// A later version of this protocol wrote it.
    NewerVersion,
    /// The record is consuming, but has no owner.
    NoOwner,
    /// The fencing token is missing, or is 2^53 or more.
    BadFencing,
    /// The lease expires in the year 9999.
    EndlessLease,
    /// The state is unknown.
    UnknownState,
    /// The value is not a record.
    Foreign,
}

impl Damage {
    /// All kinds of damage.
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

    /// Returns the error that a store must return for this damage.
    #[must_use]
    pub fn kind(self) -> StoreErrorKind {
        match self {
            Self::NewerVersion => StoreErrorKind::UnknownVersion,
            Self::Foreign => StoreErrorKind::Foreign,
            _ => StoreErrorKind::Corrupt,
        }
    }

    /// Returns the bytes of a damaged record, for a store that stores [`Record::to_bytes`]. If the damage is in a
    /// field, the checksum is correct.
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
            // The display of a consuming record is followed by the owner, the expiry and the takeover.
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

/// Returns a held record with a long retention.
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

/// Changes the record and corrects its checksum, like a writer that knows the format.
fn sealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = sample(1).to_bytes();
    body.truncate(body.len() - SUM);
    change(&mut body);
    let sum = Sha256::digest(&body);
    body.extend(&sum[..SUM]);
    body
}

/// Damages records outside of the store, for laws about unreadable records.
#[async_trait]
pub trait DamageInjector: Send + Sync {
    /// Returns whether the storage can hold such a value: a column of numbers holds no text, and a table of records no
    /// foreign value. A storage for [`Record::to_bytes`] can hold all kinds.
    fn holds(&self, damage: Damage) -> bool;

    /// Replaces the record of the key by a damaged one.
    async fn plant(&self, key: &Key, damage: Damage);

    /// Returns the complete stored value of the key, in any form that can be compared, or an empty value if there is
    /// none.
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

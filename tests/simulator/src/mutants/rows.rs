//! The content of the map: records, and damaged values.
use std::collections::BTreeMap;

use async_trait::async_trait;
use idempotent_core::{Key, Record, StoreError, StoreErrorKind};

use super::{Bug, Mutant};
use idempotent_testkit::conformance::{Damage, DamageInjector};

pub(super) type Rows = BTreeMap<String, Row>;

/// An entry of the map.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    Record(Box<Record>),
    Raw(Vec<u8>),
}

impl Row {
    pub(super) fn new(key: &Key, record: Record) -> Self {
        Self { key: key.clone(), kept: Kept::Record(Box::new(record)) }
    }

    pub(super) fn is_readable(&self) -> bool {
        match &self.kept {
            Kept::Record(_) => true,
            Kept::Raw(bytes) => Record::from_bytes(bytes).is_ok(),
        }
    }
}

impl Mutant {
    /// Returns the text under which the map stores this key.
    pub(super) fn place(&self, key: &Key) -> String {
        match self.bug {
            Some(Bug::CaseFolded) => key.as_str().to_lowercase(),
            Some(Bug::KeyJoined) => format!("{}{:x}", key.name().replace(':', ""), key.hash()),
            Some(Bug::KeyCutOff) => key.name().to_owned(),
            Some(Bug::HashHalved) => format!("{:x}", key.hash() & u128::from(u64::MAX)),
            _ => key.as_str().to_owned(),
        }
    }

    /// Returns the record, `None` if a bug ignores it, or the error for a damaged value.
    pub(super) fn read(&self, row: &Row) -> Result<Option<Record>, StoreError> {
        let bytes = match &row.kept {
            Kept::Record(record) => return Ok(Some((**record).clone())),
            Kept::Raw(bytes) => bytes,
        };
        let error = match Record::from_bytes(bytes) {
            Ok(record) => return Ok(Some(record)),
            Err(error) => error,
        };
        match (self.bug, error.kind()) {
            (Some(Bug::UnreadableIsAbsent), _) | (Some(Bug::VersionIgnored), StoreErrorKind::UnknownVersion) => {
                Ok(None)
            }
            (Some(Bug::ForeignIsCorrupt), StoreErrorKind::Foreign) => Err(StoreError::new(StoreErrorKind::Corrupt)),
            _ => Err(error),
        }
    }
}

#[async_trait]
impl DamageInjector for Mutant {
    fn holds(&self, _: Damage) -> bool {
        true
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let row = Row { key: key.clone(), kept: Kept::Raw(damage.to_bytes()) };
        self.rows().insert(self.place(key), row);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        match self.rows().get(&self.place(key)).map(|row| row.kept.clone()) {
            Some(Kept::Record(record)) => record.to_bytes(),
            Some(Kept::Raw(bytes)) => bytes,
            None => Vec::new(),
        }
    }
}

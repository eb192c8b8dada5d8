//! The store against every law of the test kit, by what is published of it.
#![allow(clippy::unwrap_used, missing_docs)]
use std::sync::Arc;

use async_trait::async_trait;
use external_store::RedbStore;
use idempotent_core::{Claim, ClaimRequest, Identity, Key, OnExpiry, OwnerToken, Scene, Store, StoreErrorKind};
use idempotent_testkit::{Damage, DamageInjector, Subject, VirtualClock, conformance};
use redb::{Database, ReadableDatabase, TableDefinition};

/// Each commit reaches the disk: a tenth of the rounds is enough of a wait.
const ROUNDS: u32 = 100;

fn subject() -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new();
    let store = RedbStore::open(&dir.path().join("laws.redb"), Arc::new(clock.clone())).unwrap();
    let rows = Rows(store.database().clone());
    Subject::new(store).on_clock(clock).planting(rows).rounds(ROUNDS).guarded_by(dir)
}

// Only one process can open a redb file: there is no second connection, no client with a clock, and no network.
conformance!(redb_keeps_the_laws, subject(), without: [second, clients, losing, watch, journal, order]);

/// The table, accessed without the store.
struct Rows(Arc<Database>);

const RECORDS: TableDefinition<u128, (&str, &[u8])> = TableDefinition::new("idempotent_record");

#[async_trait]
impl DamageInjector for Rows {
    fn holds(&self, _: Damage) -> bool {
        true
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let write = self.0.begin_write().unwrap();
        write.open_table(RECORDS).unwrap().insert(key.hash(), (key.name(), &*damage.to_bytes())).unwrap();
        write.commit().unwrap();
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let table = self.0.begin_read().unwrap().open_table(RECORDS).unwrap();
        table.get(key.hash()).unwrap().map(|row| row.value().1.to_vec()).unwrap_or_default()
    }
}

fn ask(owner: u128) -> ClaimRequest {
    let hour = std::time::Duration::from_secs(3_600);
    ClaimRequest {
        key: Identity::new(Scene::Mq, "tests", "o-17").key("external").unwrap(),
        owner: OwnerToken(owner),
        lease: hour,
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: hour,
        display: None,
    }
}

#[tokio::test]
async fn acknowledged_writes_are_in_the_file_after_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = || RedbStore::open(&dir.path().join("kept.redb"), Arc::new(VirtualClock::new()));
    let store = open().unwrap();
    assert!(matches!(store.claim(&ask(1)).await.unwrap(), Claim::Acquired(_)));
    drop(store);
    assert!(matches!(open().unwrap().claim(&ask(2)).await.unwrap(), Claim::InFlight(_)));
}

#[tokio::test]
async fn a_second_opening_of_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = || RedbStore::open(&dir.path().join("one.redb"), Arc::new(VirtualClock::new()));
    let _first = open().unwrap();
    let error = open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
}

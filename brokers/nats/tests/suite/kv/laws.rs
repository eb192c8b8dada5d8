//! The conformance laws of stores and their backends, on a real NATS server.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idempotent_core::{Cas, Key};
use idempotent_harness::servers::NatsServer;
use idempotent_nats::KvBackend;
use idempotent_testkit::conformance::{Damage, DamageInjector};
use idempotent_testkit::{CasSubject, Subject, cas_conformance, conformance};

/// The server that all laws share.
static SERVER: LazyLock<NatsServer> = LazyLock::new(NatsServer::start);

/// Returns an unused name of a bucket.
fn unused() -> String {
    static BUCKETS: AtomicU32 = AtomicU32::new(0);
    format!("laws-{}-{}", std::process::id(), BUCKETS.fetch_add(1, Relaxed))
}

/// Returns the subject of a key's record.
pub(crate) fn subject_of(bucket: &str, key: &Key) -> String {
    format!("$KV.{bucket}.{}", URL_SAFE_NO_PAD.encode(key.hash().to_be_bytes()))
}

/// A client that damages records.
struct Vandal(Context, String);

#[async_trait]
impl DamageInjector for Vandal {
    fn holds(&self, _: Damage) -> bool {
        true
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let sent = self.0.publish(subject_of(&self.1, key), damage.to_bytes().into()).await.unwrap();
        sent.await.unwrap();
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let stream = self.0.get_stream(format!("KV_{}", self.1)).await.unwrap();
        let last = stream.get_last_raw_message_by_subject(&subject_of(&self.1, key)).await;
        last.map(|message| message.payload.to_vec()).unwrap_or_default()
    }
}

async fn backend() -> CasSubject {
    CasSubject::new(KvBackend::create(SERVER.url(), &unused(), 1).await.unwrap()).rounds(5)
}

async fn store() -> Subject {
    let bucket = unused();
    let store = Cas(KvBackend::create(SERVER.url(), &bucket, 1).await.unwrap());
    let second = Cas(KvBackend::open(SERVER.url(), &bucket).await.unwrap());
    let client = jetstream::new(async_nats::connect(SERVER.address()).await.unwrap());
    Subject::new(store).second(second).planting(Vandal(client, bucket)).rounds(5)
}

cas_conformance!(a_bucket_swaps_by_revision, backend());
conformance!(
    a_bucket_keeps_the_laws_of_a_store,
    store(),
    without: [clock, clients, losing, batch, watch, search, purge, journal, order]
);

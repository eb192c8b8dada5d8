//! The laws of a backend on a bucket with three replicas.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use idempotent_harness::servers::NatsCluster;
use idempotent_nats::KvBackend;
use idempotent_testkit::{CasSubject, cas_conformance};

/// The cluster that all laws share.
static CLUSTER: LazyLock<NatsCluster> = LazyLock::new(NatsCluster::start);

async fn backend() -> CasSubject {
    static BUCKETS: AtomicU32 = AtomicU32::new(0);
    let bucket = format!("laws-{}-{}", std::process::id(), BUCKETS.fetch_add(1, Relaxed));
    CasSubject::new(KvBackend::create(CLUSTER.url(), &bucket, 3).await.unwrap()).rounds(5)
}

cas_conformance!(a_replicated_bucket_swaps_by_revision, backend());

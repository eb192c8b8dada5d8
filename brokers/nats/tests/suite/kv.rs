//! A key-value bucket as the backend of a store.
mod laws;

use async_nats::jetstream::stream;
use idempotent_core::{
    Call, Cas, CasBackend, DefaultReply, Executor, FencingToken, Handler, Identity, Json, Key, Outcome, Record,
    Rejection, Scene, State, Store, StoreError, StoreErrorKind, Timestamp,
};
use idempotent_harness::servers::NatsServer;
use idempotent_nats::KvBackend;

use crate::kv::laws::subject_of;
use crate::world::{LIMIT, World, secs};

fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "orders", part).key("idempotent").unwrap()
}

/// Returns a consumed record that expires at this time.
fn record(now: Timestamp, expires_at: Timestamp) -> Record {
    let owner = idempotent_core::OwnerToken(7);
    Record {
        fencing: FencingToken(now.0),
        attempt: 1,
        fingerprint: None,
        state: State::Consumed { owner, value: None },
        expires_at,
        first_seen: now,
        updated_at: now,
        display: None,
    }
}

async fn outcome(executor: &Executor, part: &str) -> Outcome {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(42) });
    let call = Call::new(Identity::new(Scene::Mq, "orders", part));
    Outcome::capture(executor.run(call, handler)).await.1.unwrap()
}

#[tokio::test]
async fn a_duplicate_gets_the_result_from_a_bucket_also_after_a_kill_of_the_server() {
    let server = NatsServer::start_durable();
    let backend = KvBackend::create(server.url(), "idempotent", 1).await.unwrap();
    let executor = Executor::new(Cas(backend.clone()));
    assert_eq!(outcome(&executor, "1").await, Outcome::Ran);
    server.kill();
    server.restart();
    let reconnected = async {
        while backend.read(&key("1")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, reconnected).await.unwrap();
    assert_eq!(outcome(&executor, "1").await, Outcome::Replayed);
}

#[tokio::test]
async fn the_server_removes_a_record_an_hour_after_its_end() {
    let world = World::new().await;
    let backend = KvBackend::create(world.server.url(), "idempotent", 1).await.unwrap();
    let bucket = world.client.get_stream("KV_idempotent").await.unwrap();
    let ttl = async |key: &Key| {
        let last = bucket.get_last_raw_message_by_subject(&subject_of("idempotent", key)).await.unwrap();
        last.headers.get("Nats-TTL").map(|ttl| ttl.as_str().parse::<u64>().unwrap())
    };
    let now = backend.read(&key("1")).await.unwrap().now;
    assert!(backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await.unwrap());
    assert_eq!(ttl(&key("1")).await, Some(3_600 + 60 + 1));
    assert!(backend.swap(&key("2"), 0, Some(&record(now, Timestamp::FOREVER))).await.unwrap());
    assert_eq!(ttl(&key("2")).await, None, "kept for ever");
    let fenced = Record { fencing: FencingToken((now + secs(600)).0), ..record(now, now + secs(60)) };
    assert!(backend.swap(&key("3"), 0, Some(&fenced)).await.unwrap());
    assert_eq!(ttl(&key("3")).await, Some(3_600 + 600 + 1), "until the clock has passed its fencing token");
    let version = backend.read(&key("1")).await.unwrap().version;
    assert!(backend.swap(&key("1"), version, None).await.unwrap());
    assert_eq!(ttl(&key("1")).await, Some(3_600), "the marker of a deletion");
}

#[tokio::test]
async fn a_missing_bucket_is_an_error_and_not_a_free_key() {
    let world = World::new().await;
    let backend = KvBackend::create(world.server.url(), "idempotent", 1).await.unwrap();
    world.client.delete_stream("KV_idempotent").await.unwrap();
    assert_eq!(backend.read(&key("1")).await.unwrap_err().kind(), StoreErrorKind::NotApplied);
}

#[tokio::test]
async fn a_value_of_another_program_is_left_unchanged() {
    let world = World::new().await;
    let backend = KvBackend::create(world.server.url(), "idempotent", 1).await.unwrap();
    let kv = world.client.get_key_value("idempotent").await.unwrap();
    let name = subject_of("idempotent", &key("1")).replace("$KV.idempotent.", "");
    kv.put(&name, "another program's".into()).await.unwrap();
    let error = Cas(backend).peek(&key("1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
    assert_eq!(kv.get(&name).await.unwrap().unwrap(), "another program's");
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_a_read_undone_and_a_write_unknown() {
    let server = NatsServer::start();
    let backend = KvBackend::create(server.url(), "idempotent", 1).await.unwrap();
    let now = backend.read(&key("1")).await.unwrap().now;
    server.pause();
    let (read, written) =
        (backend.read(&key("1")).await, backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await);
    server.resume();
    assert_eq!(read.unwrap_err().kind(), StoreErrorKind::NotApplied);
    assert_eq!(written.unwrap_err().kind(), StoreErrorKind::Ambiguous);
    server.kill();
    let lost = async {
        loop {
            match backend.swap(&key("2"), 0, Some(&record(now, now + secs(60)))).await.unwrap_err() {
                error if error.to_string().contains("connection to NATS is lost") => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, lost).await.unwrap().kind(), StoreErrorKind::NotApplied);
}

/// Checks the kind of an error, and a part of its text.
#[track_caller]
fn refused(opened: Result<KvBackend, StoreError>, kind: StoreErrorKind, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn a_bucket_that_would_lose_records_is_refused_with_the_remedy() {
    let world = World::new().await;
    let url = || world.server.url();
    let safe = stream::Config {
        max_messages_per_subject: 1,
        discard: stream::DiscardPolicy::New,
        allow_message_ttl: true,
        ..stream::Config::default()
    };
    let cases = [
        ("no-ttl", stream::Config { allow_message_ttl: false, ..safe.clone() }, "--allow-msg-ttl"),
        ("history", stream::Config { max_messages_per_subject: 5, ..safe.clone() }, "a history of 1"),
        ("aged", stream::Config { max_age: secs(60), ..safe.clone() }, "without a TTL"),
        ("full", stream::Config { discard: stream::DiscardPolicy::Old, ..safe }, "the discard policy `new`"),
    ];
    for (bucket, config, part) in cases {
        let subjects = vec![format!("$KV.{bucket}.>")];
        world.client.create_stream(stream::Config { name: format!("KV_{bucket}"), subjects, ..config }).await.unwrap();
        refused(KvBackend::open(url(), bucket).await, StoreErrorKind::Schema, part);
        refused(KvBackend::create(url(), bucket, 1).await, StoreErrorKind::Schema, part);
    }
    refused(KvBackend::open(url(), "absent").await, StoreErrorKind::Schema, "`KvBackend::create`");
    refused(KvBackend::open(url(), "a.b").await, StoreErrorKind::Schema, "letters, digits");
    refused(KvBackend::create(url(), "", 1).await, StoreErrorKind::Schema, "letters, digits");
    refused(KvBackend::create(url(), "replicated", 3).await, StoreErrorKind::Schema, "replicas");
    refused(KvBackend::open("http://127.0.0.1", "idempotent").await, StoreErrorKind::Schema, "`nats://");
    refused(KvBackend::open("nats://127.0.0.1:1", "idempotent").await, StoreErrorKind::NotApplied, "connecting");
    let plain = NatsServer::without_jetstream();
    refused(KvBackend::open(plain.url(), "idempotent").await, StoreErrorKind::NotApplied, "is JetStream enabled");
}

//! Incidents of single keys.
use std::sync::Arc;
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::store::{Claim, ClaimRequest, OnExpiry, OwnerToken};
use idempotent::{Call, Executor, Fingerprint, Handler, Identity, Json, Outcome, Rejection, Scene, Store};
use idempotent_harness::servers::RedisServer;

use crate::handbook::incident::Incident;
use crate::sqlite::{damage, file};
use crate::support::key;

/// Claims an order for 30 s, as a worker that is then killed.
async fn claim(store: &Arc<dyn Store>, order: &str) {
    let request = ClaimRequest {
        key: Identity::new(Scene::Mq, "orders", order).key("idempotent").unwrap(),
        owner: OwnerToken(17),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(3_600),
        display: None,
    };
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
}

/// A worker was killed two minutes ago, and another one runs.
pub(crate) async fn stuck(incident: &mut Incident) {
    let server = RedisServer::builder().faketime().start();
    let store = idempotent::connect(server.url()).await.unwrap();
    incident.set("IDEMPOTENT_STORE", server.url());
    claim(&store, "gone").await;
    server.shift_clock(120.0);
    claim(&store, "running").await;

    let orphaned = incident.shows("idempotent list --orphaned", &[&key("gone")]);
    assert!(!orphaned.contains(&key("running")), "{orphaned}");
    incident.key(&key("running"));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consuming\"", "\"lease_left_ms\":2"]);
    incident.key(&key("gone"));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consuming\"", "\"lease_left_ms\":-"]);
    incident.changes("idempotent release KEY --reason …", &["done: the key can be claimed"]);
    incident.shows("idempotent inspect KEY", &["\"state\":\"vacant\""]);
}

/// Runs an order with a payload.
async fn run(executor: &Executor, cents: u64) -> Option<Outcome> {
    let call = Call::new(Identity::new(Scene::Mq, "orders", "4711")).fingerprint(Fingerprint::of(&cents));
    let handler = Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>(cents));
    Outcome::capture(executor.run(call, handler)).await.1
}

/// A producer has used a key for two payloads.
pub(crate) async fn mismatch(incident: &mut Incident) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500).await, Some(Outcome::Ran));
    assert_eq!(run(&executor, 700).await, Some(Outcome::Mismatch));
    incident.set("IDEMPOTENT_STORE", url);
    incident.key(&key("4711"));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consumed\"", "\"attempt\":1"]);
}

/// Another program has written into a record.
pub(crate) async fn unreadable(incident: &mut Incident) {
    let (folder, url) = file().await;
    damage(&folder).await;
    incident.set("IDEMPOTENT_STORE", url);
    incident.shows("idempotent list --state unreadable", &[&key("lost"), "field `fencing`"]);
}

/// A person asks for the erasure of the data of order 4711.
pub(crate) async fn person(incident: &mut Incident) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500).await, Some(Outcome::Ran));
    incident.set("IDEMPOTENT_STORE", url);
    incident.shows("idempotent inspect --scope orders --part 4711", &[&key("4711"), "\"result_bytes\""]);
}

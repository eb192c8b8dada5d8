//! Incidents of single keys.
use std::sync::Arc;
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::store::{Claim, ClaimRequest, OnExpiry, OwnerToken};
use idempotent::{Call, Executor, Fingerprint, Handler, Identity, Json, Outcome, Rejection, Scene, Store};
use idempotent_harness::servers::RedisServer;

use crate::handbook::incident::Incident;
use crate::handbook::letters::Service;
use crate::sqlite::{damage, file};
use crate::support::{key, sqlite_url};

/// Claims an order for 30 s, as a worker that is then killed.
pub(crate) async fn claim(store: &Arc<dyn Store>, order: &str) {
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

/// Sets the store to a Redis server whose clock the incident shifts.
async fn with_clock(incident: &mut Incident) -> (RedisServer, Arc<dyn Store>) {
    let server = RedisServer::builder().faketime().start();
    let store = idempotent::connect(server.url()).await.unwrap();
    incident.set("IDEMPOTENT_STORE", server.url());
    (server, store)
}

/// A worker was killed two minutes ago, and another one runs.
pub(crate) async fn stuck(incident: &mut Incident) {
    let (server, store) = with_clock(incident).await;
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
pub(crate) async fn run(executor: &Executor, cents: u64, order: &str) -> Option<Outcome> {
    let call = Call::new(Identity::new(Scene::Mq, "orders", order)).fingerprint(Fingerprint::of(&cents));
    let handler = Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>(cents));
    Outcome::capture(executor.run(call, handler)).await.1
}

/// A producer has used a key for two payloads.
pub(crate) async fn mismatch(incident: &mut Incident) {
    let (_folder, url) = sqlite_url();
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran));
    assert_eq!(run(&executor, 700, "4711").await, Some(Outcome::Mismatch));
    incident.set("IDEMPOTENT_STORE", url);
    incident.key(&key("4711"));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consumed\"", "\"attempt\":1"]);
}

/// Another program has written into a record.
pub(crate) async fn unreadable(incident: &mut Incident) {
    let (_folder, url) = file().await;
    damage(&url).await;
    incident.set("IDEMPOTENT_STORE", url);
    incident.shows("idempotent list --state unreadable", &[&key("lost"), "field `fencing`"]);
    incident.key(&key("lost"));
    incident.ends("idempotent inspect KEY", 5, &["field `fencing`"]);
}

/// A worker lost its lease, and another one has run the key.
pub(crate) async fn lease_lost(incident: &mut Incident) {
    let (server, store) = with_clock(incident).await;
    claim(&store, "4711").await;
    incident.shows("idempotent doctor", &["\"check\":\"orphans\""]);
    incident.key(&key("4711"));
    let before = fencing(&incident.shows("idempotent inspect KEY", &["\"state\":\"consuming\""]));
    server.shift_clock(60.0);
    assert_eq!(run(&Executor::new(store), 500, "4711").await, Some(Outcome::Ran));
    let after = incident.shows("idempotent inspect KEY", &["\"state\":\"consumed\"", "\"attempt\":2"]);
    assert!(fencing(&after) > before, "{after}");
}

/// Returns the fencing number of a shown record.
fn fencing(shown: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(shown).unwrap()["fencing"].as_u64().unwrap()
}

/// A handler ran, and its worker was killed before it recorded the result.
pub(crate) async fn unrecorded(incident: &mut Incident) {
    let (server, store) = with_clock(incident).await;
    claim(&store, "4711").await;
    incident.key(&key("4711"));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consuming\"", "\"attempt\":1"]);
    server.shift_clock(60.0);
    assert_eq!(run(&Executor::new(store), 500, "4711").await, Some(Outcome::Ran));
    incident.shows("idempotent inspect KEY", &["\"state\":\"consumed\"", "\"attempt\":2"]);
}

/// A queue repeats a message of today and one that is older than the retention.
pub(crate) async fn repeated(incident: &mut Incident) {
    let service = Service::start().await;
    let url = service.server.url();
    incident.set("IDEMPOTENT_STORE", &url);
    incident.set("IDEMPOTENT_QUEUE", url.replacen("redis://", "redis+stream://", 1));
    let inspect = "idempotent inspect --scope orders --part 4711";
    incident.ends(inspect, 4, &["has expired"]);
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran));
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Replayed));
    incident.shows(inspect, &["\"state\":\"consumed\""]);

    service.send("order 4712");
    service.has_settled(0, 1).await;
    let redrive = "idempotent dead redrive --name orders --limit 100 --rate 5 --reason …";
    incident.changes(redrive, &["\"put_back\":1"]);
}

/// A message returns after the retention of its key.
pub(crate) async fn forgotten_too_early(incident: &mut Incident) {
    let (server, store) = with_clock(incident).await;
    assert_eq!(run(&Executor::new(store), 500, "4711").await, Some(Outcome::Ran));
    let inspect = "idempotent inspect --scope orders --part 4711";
    incident.shows(inspect, &["\"state\":\"consumed\"", "\"expires_in_ms\":"]);
    let days = 86_400.0;
    server.shift_clock(8.0 * days);
    incident.ends(inspect, 4, &["has expired"]);
    // Another process: the store of the first one remembers the key for itself.
    let executor = Executor::new(idempotent::connect(server.url()).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran), "a second effect");

    let letters = Service::start().await;
    letters.send("order 4712");
    letters.has_settled(0, 1).await;
    incident.set("IDEMPOTENT_QUEUE", letters.server.url().replacen("redis://", "redis+stream://", 1));
    let old = "idempotent dead list --name orders --died-before 2026-11-22T06:00:00Z";
    incident.shows(old, &["0 found"]);
    incident.value("2026-11-22T06:00:00Z", "2200-01-01T00:00:00Z");
    incident.shows(old, &["no stock"]);
}

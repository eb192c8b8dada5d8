//! Incidents of streams, outboxes and delayed messages.
use std::time::Duration;

use idempotent::delay_queue::{DelayMessage, DelayQueue};
use idempotent::mq::OutboundMessage;
use idempotent::reply::DefaultReply;
use idempotent::sqlx::{Executor as _, SqlitePool};
use idempotent::{Call, Executor, Handler, Identity, Json, Outbox, Outcome, Rejection, Scene};
use idempotent_harness::servers::RedisServer;
use tempfile::TempDir;

use crate::handbook::incident::Incident;
use crate::support::sqlite_url;

/// Calls an entry of the account `acc-4`.
async fn enter(executor: &Executor, number: u64, fails: bool) -> Option<Outcome> {
    let identity = Identity::new(Scene::Mq, "entries", &("acc-4", number));
    let handler = Handler::<DefaultReply, Json, _, _>::new(async || match fails {
        true => Err(Rejection::Mismatch),
        false => Ok(number),
    });
    let call = Call::new(identity).sequence("acc-4", number);
    Outcome::capture(executor.run(call, handler.permanent(|_| true))).await.1
}

/// The first entry of an account has failed, so the second one waits.
pub(crate) async fn held_stream(incident: &mut Incident) {
    let (_folder, url) = sqlite_url();
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    enter(&executor, 1, true).await;
    assert!(matches!(enter(&executor, 2, false).await, Some(Outcome::Held { .. })));
    incident.set("IDEMPOTENT_STORE", url);
    let first = Identity::new(Scene::Mq, "entries", &("acc-4", 1_u64)).key("idempotent").unwrap();
    incident.shows("idempotent order list", &["\"next\":2", first.as_str()]);
    let show = "idempotent order show --scope entries --part acc-4";
    incident.shows(show, &["\"blocked_by_state\":\"failed\"", first.as_str(), "idempotent forget"]);
    incident.key(first.as_str());
    incident.changes("idempotent forget KEY --reason …", &["done: the key can be claimed"]);
    assert_eq!(enter(&executor, 1, false).await, Some(Outcome::Ran));
    assert_eq!(enter(&executor, 2, false).await, Some(Outcome::Ran));
    let after = incident.shows(show, &["\"last\":2"]);
    assert!(!after.contains("blocked_by"), "{after}");
}

/// Writes an outbox whose first message of the aggregate `order-1` is dead, so that the second one is held back. Returns
/// the database's folder and URL.
pub(crate) async fn stalled_outbox() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let pool = SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    for id in ["payment-4711", "payment-4712"] {
        let mut transaction = pool.begin().await.unwrap();
        let message = OutboundMessage::new("payments", id, "{}").aggregate("order-1");
        outbox.enqueue(&mut transaction, &message).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let dead = "UPDATE idempotent_outbox SET status = 3, due_at = NULL, failures = 17, \
                last_error = CAST('no queue is bound' AS BLOB) WHERE seq = 1";
    pool.execute(idempotent::sqlx::raw_sql(dead)).await.unwrap();
    (folder, url)
}

/// A message was given up, and another one of its aggregate is held back.
pub(crate) async fn outbox(incident: &mut Incident) {
    let (_folder, url) = stalled_outbox().await;
    incident.set("IDEMPOTENT_OUTBOX", url);
    let one = "{\"at_least\":1,\"exact\":true}";
    let (dead, held) = (format!("\"dead\":{one}"), format!("\"held_back\":{one}"));
    incident.shows("idempotent outbox status", &[&dead, &held]);
    incident.shows("idempotent outbox list --status dead", &["payment-4711", "no queue is bound"]);
    incident.value("ID", "payment-4711");
    incident.shows("idempotent outbox show ID", &["no queue is bound"]);
    incident.changes("idempotent outbox resend ID --reason …", &["done: resend of 1 of 1 message"]);
    assert_eq!(incident.shows("idempotent outbox list --status dead", &[]), "");
    incident.value("ID", "payment-4712");
    incident.changes("idempotent outbox void ID --reason …", &["done: void of 1 of 1 message"]);
    incident.shows("idempotent outbox status", &["\"held_back\":{\"at_least\":0"]);
}

/// A message is due, and no consumer takes it.
pub(crate) async fn late(incident: &mut Incident) {
    let server = RedisServer::start();
    let queue = DelayQueue::builder(server.url(), "orders").connect().await.unwrap();
    queue.send(&DelayMessage::after(Duration::ZERO, "")).await.unwrap();
    incident.set("IDEMPOTENT_QUEUE", server.url().replacen("redis://", "redis+delay://", 1));
    incident.shows("idempotent delay status --name orders", &["\"ready\":{\"at_least\":1", "\"oldest_ready_ms\":"]);
}

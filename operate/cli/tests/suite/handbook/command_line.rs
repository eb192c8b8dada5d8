//! The situations that the guide of the command line describes.
use std::time::Duration;

use idempotent::delay_queue::{DelayMessage, DelayQueue};
use idempotent::rabbitmq::Queue;
use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Identity, Json, Outcome, Rejection, Scene};
use idempotent_harness::servers::{RabbitServer, RedisServer};
use tempfile::TempDir;

use crate::dead::rabbitmq::{are_ready, letters};
use crate::handbook::flows::stalled_outbox;
use crate::handbook::incident::Incident;
use crate::handbook::keys::run;
use crate::order;
use crate::sqlite::{damage, file};
use crate::support::{done, key, sqlite_url};

/// Sets the store to a file with a record in each state.
async fn records(incident: &mut Incident) -> (TempDir, String) {
    let (folder, url) = file().await;
    incident.set("IDEMPOTENT_STORE", &url);
    (folder, url)
}

pub(crate) async fn first(incident: &mut Incident) {
    let (_folder, _) = records(incident).await;
    incident.set("IDEMPOTENT_OUTPUT", "table");
    let listed = incident.shows("idempotent list", &[&key("poison"), &key("held")]);
    let headings = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let shown = super::COMMAND_LINE.lines().find(|line| line.starts_with("STATE  ")).unwrap();
    assert_eq!(headings(listed.lines().next().unwrap()), headings(shown));
}

pub(crate) async fn searched(incident: &mut Incident) {
    let (_folder, url) = records(incident).await;
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran));
    let lost = key("lost");
    assert_eq!(incident.shows("idempotent list --orphaned", &[]), "");
    incident.shows("idempotent inspect --scope orders --part 4711", &["\"state\":\"consumed\"", &key("4711")]);
    incident.shows("idempotent list --state dead", &[&key("poison")]);
    incident.shows("idempotent count --state failed,dead --scope orders", &["\"dead\":1", "\"failed\":1"]);
    let recent = "idempotent list --state failed,dead,vacant --newer-than 1h";
    incident.shows(recent, &[&key("poison"), &lost]);
    damage(&url).await;
    incident.shows("idempotent list --state unreadable", &[&lost, "\"reason\""]);
}

pub(crate) async fn forgotten(incident: &mut Incident) {
    let (_folder, url) = records(incident).await;
    incident.value("idempotent:mq:orders:{Pv_mJFCxQoKrWCJDVdincw}", key("lost"));
    let one = "idempotent forget 'idempotent:mq:orders:{Pv_mJFCxQoKrWCJDVdincw}' --reason 'stock corrected'";
    incident.changes(one, &["done: the key can be claimed"]);
    let all = incident.pipeline();
    incident.shows(&all, &["done: the key can be claimed"]);
    for order in ["lost", "poison"] {
        assert!(done(&url, &["inspect", &key(order)]).contains("\"state\":\"vacant\""), "{order}");
    }
}

pub(crate) async fn dead_letters(incident: &mut Incident) {
    let (_folder, _) = records(incident).await;
    incident.shows("idempotent dead --help", &["amqp://"]);
    let server = RabbitServer::start();
    let url = server.url();
    drop(letters(&url, Queue::classic("orders")).await);
    incident.set("IDEMPOTENT_QUEUE", &url);
    are_ready(&url, 3).await;
    let listed = incident.shows("idempotent dead list --name orders", &["m-0", "m-1", "m-2", "no stock"]);
    let second: serde_json::Value = serde_json::from_str(listed.lines().nth(1).unwrap()).unwrap();
    incident.value("ID", second["id"].as_str().unwrap());
    are_ready(&url, 3).await;
    incident.shows("idempotent dead show --name orders --id ID --show-body", &["no customer", "\"body\":"]);
    are_ready(&url, 3).await;
    let discard = "idempotent dead discard --name orders --id ID --reason 'customer deleted'";
    incident.changes(discard, &["\"discarded\":1"]);
    are_ready(&url, 2).await;
    let redrive =
        "idempotent dead redrive --name orders --cause 'no stock' --limit 100 --let-go --reason 'stock corrected'";
    incident.changes(redrive, &["\"put_back\":2"]);
    are_ready(&url, 0).await;
}

pub(crate) async fn outboxes_and_delays(incident: &mut Incident) {
    let (_folder, url) = stalled_outbox().await;
    incident.set("IDEMPOTENT_OUTBOX", url);
    incident.shows("idempotent outbox status", &["\"dead\":{\"at_least\":1"]);
    incident.shows("idempotent outbox list --status dead", &["payment-4711"]);
    incident.shows("idempotent outbox show payment-4711", &["no queue is bound"]);
    let resend = "idempotent outbox resend payment-4711 --reason 'the queue is bound now'";
    incident.changes(resend, &["done: resend of 1 of 1 message"]);
    let void = "idempotent outbox void payment-4712 --reason 'paid twice'";
    incident.changes(void, &["done: void of 1 of 1 message"]);

    let server = RedisServer::start();
    let queue = DelayQueue::builder(server.url(), "orders").connect().await.unwrap();
    queue.send(&DelayMessage::after(Duration::ZERO, "")).await.unwrap();
    incident.value("redis+delay://localhost", server.url().replacen("redis://", "redis+delay://", 1));
    let status = "idempotent delay status --queue redis+delay://localhost --name orders";
    incident.shows(status, &["\"ready\":{\"at_least\":1"]);
}

pub(crate) async fn waiting_streams(incident: &mut Incident) {
    let (_folder, url) = sqlite_url();
    let store = idempotent::connect(&url).await.unwrap();
    order::fill(&store).await;
    let later = Call::new(Identity::new(Scene::Mq, "parcels", "4711")).after("4710");
    let handler = Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>(1));
    assert!(Executor::new(store).run(later, handler).await.is_err(), "the call before it never ran");
    incident.set("IDEMPOTENT_STORE", url);
    incident.shows("idempotent order list", &["\"blocked_by_number\":1", &order::key("bob", 1)]);
    incident.shows("idempotent order show --scope points --part ann", &["which was not delivered: send its message"]);
    incident.shows("idempotent list --state vacant", &["no run: waits for its turn"]);
}

pub(crate) async fn checked(incident: &mut Incident) {
    let (_folder, _) = records(incident).await;
    incident.shows("idempotent doctor", &["\"check\":\"schema\"", "\"check\":\"journal\"", "\"check\":\"orphans\""]);
    incident.shows("idempotent migrate status", &["\"pending\":[]"]);
}

pub(crate) async fn audited(incident: &mut Incident) {
    let (folder, url) = records(incident).await;
    let log = folder.path().join("audit.jsonl").display().to_string();
    done(&url, &["forget", &key("lost"), "--yes", "--reason", "stock corrected", "--audit", &log]);
    incident.set("IDEMPOTENT_AUDIT", log);
    incident.shows("idempotent audit", &[&key("lost"), "\"outcome\":\"done\"", "stock corrected"]);
}

pub(crate) async fn purged(incident: &mut Incident) {
    let (_folder, _) = records(incident).await;
    incident.shows("idempotent purge", &["\"done\":true"]);
}

pub(crate) async fn planned(incident: &mut Incident) {
    incident.shows("idempotent plan --rate 12000/s --retention 24h", &["\"redis_records\"", "\"postgres_batches\""]);
    let budget = "idempotent plan --rate 1e9/day --retention 24h --engine redis --fail-if 'masters>8'";
    incident.ends(budget, 6, &["`masters>8`: masters is"]);
    let server = RedisServer::start();
    let store = idempotent::connect(server.url()).await.unwrap();
    assert_eq!(run(&Executor::new(store), 500, "4711").await, Some(Outcome::Ran));
    incident.value("redis://localhost", server.url());
    incident.shows("idempotent plan --from redis://localhost --retention 7d", &["sampled records"]);
}

pub(crate) async fn scripted(incident: &mut Incident) {
    incident.value("SHELL", "bash");
    incident.shows("idempotent completions SHELL", &["_idempotent()"]);
    incident.shows("idempotent man", &[".TH idempotent"]);
}

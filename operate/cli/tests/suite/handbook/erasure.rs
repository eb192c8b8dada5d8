//! The erasure of one person's data.
use idempotent::sqlx::{Executor as _, SqlitePool};
use idempotent::{Executor, Outcome};
use tower::ServiceExt;

use crate::handbook::flows::stalled_outbox;
use crate::handbook::incident::Incident;
use crate::handbook::keys::run;
use crate::handbook::letters::{Service, first_letter};
use crate::http::{Shop, payment};
use crate::support::{done, key};

/// A person whose data is in a record, in a dead letter, and in an outbox.
pub(crate) async fn person(incident: &mut Incident) {
    let (folder, outbox) = stalled_outbox().await;
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran));
    incident.set("IDEMPOTENT_STORE", &url);
    let inspect = "idempotent inspect --scope orders --part 4711";
    incident.shows(inspect, &[&key("4711"), "\"result_bytes\":3"]);
    incident.changes("idempotent forget --scope orders --part 4711 --reason …", &["done: the key can be claimed"]);
    let left = incident.shows(inspect, &["\"state\":\"vacant\""]);
    assert!(!left.contains("result_bytes") && !left.contains("display"), "{left}");
    let records = SqlitePool::connect(&url).await.unwrap();
    records.execute(idempotent::sqlx::raw_sql("UPDATE idempotent_record SET expires_at = 1")).await.unwrap();
    incident.shows("idempotent purge", &["\"removed\":1"]);
    incident.ends(inspect, 4, &["has expired"]);

    let shop = Shop::new().await;
    shop.router().oneshot(payment(Some("ada"))).await.unwrap();
    incident.set("IDEMPOTENT_STORE", &shop.url);
    incident.value("KEY", "z2");
    let inspect = "idempotent inspect --scene rest --scope 'POST /payments' --caller ada --part KEY";
    incident.shows(inspect, &["\"state\":\"consumed\"", "\"result_bytes\":"]);
    let forget = "idempotent forget --scene rest --scope 'POST /payments' --caller ada --part KEY --reason …";
    incident.changes(forget, &["done: the key can be claimed"]);
    assert!(!incident.shows(inspect, &["\"state\":\"vacant\""]).contains("result_bytes"));

    let letters = Service::start().await;
    letters.send("a letter of the person");
    letters.has_settled(0, 1).await;
    let queue = letters.server.url().replacen("redis://", "redis+stream://", 1);
    let (_, id) = first_letter(&done("", &["dead", "list", "--name", "orders", "--queue", &queue]));
    incident.set("IDEMPOTENT_QUEUE", queue);
    incident.value("ID", format!("'{id}'"));
    incident.changes("idempotent dead discard --name orders --id ID --reason …", &["\"discarded\":1"]);

    let sent = SqlitePool::connect(&outbox).await.unwrap();
    let confirmed = "UPDATE idempotent_outbox SET status = 1, due_at = NULL, settled_at = 1 WHERE seq = 1";
    sent.execute(idempotent::sqlx::raw_sql(confirmed)).await.unwrap();
    incident.set("IDEMPOTENT_OUTBOX", outbox);
    incident.shows("idempotent outbox purge", &["\"removed\":1"]);
}

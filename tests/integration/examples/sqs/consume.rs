//! `consume --source sqs://…`
use idempotent::sqs::{SqsDeadLetters, client};
use idempotent_harness::servers::MotoServer;

use crate::consume::shared;

/// The time without deliveries after which the program ends. It exceeds all delays of the policy.
const IDLE: &str = "10s";

#[test]
fn a_queue_s_messages_have_the_effects_that_the_file_has() {
    let server = MotoServer::start();
    let source = format!("sqs://eu-west-1?queue=webhooks&endpoint=http://{}", server.address());
    let published = "queue webhooks at sqs://eu-west-1";
    shared::the_messages_of_a_broker_have_the_effects_that_the_file_has(&source, IDLE, published);
}

#[tokio::test]
async fn an_invalid_delivery_is_dead_lettered_byte_for_byte() {
    let server = tokio::task::spawn_blocking(MotoServer::start).await.unwrap();
    let endpoint = format!("endpoint=http://{}", server.address());
    let source = format!("sqs://eu-west-1?queue=odd&{endpoint}");
    let letters = SqsDeadLetters::new(client(&format!("sqs://eu-west-1?{endpoint}")).unwrap(), "odd");
    shared::an_invalid_delivery_is_dead_lettered_byte_for_byte(&source, IDLE, letters).await;
}

#[test]
fn a_source_without_an_endpoint_or_a_part_of_its_url_is_refused_with_the_remedy() {
    shared::sources_are_refused(&[
        ("sqs://eu-west-1", &["names no queue", "`?queue=NAME`"]),
        ("sqs://eu-west-1?queue=a&group=b", &["`group` is not known", "queue and endpoint"]),
        ("sqs://Region?queue=a", &["the URL `sqs://Region", "`sqs://eu-west-1`"]),
        ("sqs://r?queue=a&endpoint=http://127.0.0.1:1", &["cannot use the queue a at sqs://r", "may the credentials"]),
    ]);
}

//! The largest messages, and what a retry and a dead letter add. PostgreSQL's own limit is 256 MiB for the parts of a jsonb value, for which
//! a statement would take too long. A trigger therefore raises the error of the server for smaller values.
use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, OutboundMessage, PublishErrorKind, Redrive, Retry, Settlement, Source, SourceErrorKind,
};
use idempotent_pgmq::{PgmqPublisher, PgmqSource};

use crate::publisher::publish;
use crate::world::{World, ms, one};

/// The limit of the text of each jsonb value, in bytes.
const MOST: usize = 2_000;
/// The text of headers without the value of their only member.
const EMPTY: &str = r#"{"big": ""}"#;

/// Opens a source of queues with this limit.
async fn limited() -> (World, PgmqSource) {
    let world = World::new().await;
    let source = world.source().await;
    let raise = "CREATE FUNCTION too_large() RETURNS trigger LANGUAGE plpgsql AS \
                 $$BEGIN RAISE EXCEPTION 'jsonb is too large' USING ERRCODE = '54000'; END$$";
    world.execute(raise).await;
    for queue in ["q_orders", "q_orders_dead"] {
        let when = format!("greatest(octet_length(NEW.message::text), octet_length(NEW.headers::text)) > {MOST}");
        let limit = format!("BEFORE INSERT OR UPDATE ON pgmq.{queue} FOR EACH ROW WHEN ({when})");
        world.execute(&format!("CREATE TRIGGER too_large {limit} EXECUTE FUNCTION too_large()")).await;
    }
    (world, source)
}

#[tokio::test]
async fn a_body_and_headers_of_the_size_limit_are_sent_and_one_byte_more_is_refused() {
    let (world, mut source) = limited().await;
    let publisher = PgmqPublisher::new(world.url());
    let body = |bytes| OutboundMessage::new("orders", "m", format!("{{\"a\": \"{}\"}}", "x".repeat(bytes)));
    let headers = |bytes| OutboundMessage::new("orders", "m", "1").header("big", "x".repeat(bytes));
    for (part, message) in [("message", &body as &dyn Fn(usize) -> OutboundMessage), ("headers", &headers)] {
        publish(&publisher, message(1)).await.unwrap();
        let around = world.number(&format!("SELECT octet_length({part}::text)::bigint FROM pgmq.q_orders")).await - 1;
        let most = MOST - usize::try_from(around).unwrap();
        for bytes in [most - 1, most] {
            publish(&publisher, message(bytes)).await.unwrap();
        }
        let refused = publish(&publisher, message(most + 1)).await.unwrap_err();
        assert_eq!(refused.kind(), PublishErrorKind::Refused, "{refused}");
        assert!(refused.to_string().contains("the message is too large for PostgreSQL"), "{refused}");
        for _ in 0..3 {
            let held = one(&mut source).await;
            source.settler().settle(&held.0, &held.1, &Settlement::Ack).await.unwrap();
        }
        world.execute("TRUNCATE pgmq.q_orders").await;
    }
}

/// Other messages are not affected, so the consumer goes on.
#[tokio::test]
async fn a_retry_and_a_dead_letter_of_the_size_limit_are_stored_and_one_byte_more_is_refused_for_this_message() {
    let (world, mut source) = limited().await;
    let stored = "(SELECT headers FROM pgmq.q_orders UNION ALL SELECT headers FROM pgmq.q_orders_dead) AS stored";
    let size = format!("SELECT max(octet_length(headers::text))::bigint FROM {stored}");
    let retry = Settlement::Retry(Retry::after(ms(60_000), Timestamp(1)));
    let letter = Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)));
    for (settlement, is_letter) in [(retry, false), (letter, true)] {
        let mut settle = async |bytes: usize| {
            // Ids are parts of the marks.
            world.execute("TRUNCATE pgmq.q_orders, pgmq.q_orders_dead RESTART IDENTITY").await;
            let big = format!("jsonb_build_object('big', repeat('x', {}))", bytes - EMPTY.len());
            world.execute(&format!("SELECT pgmq.send('orders', '1', {big})")).await;
            let held = one(&mut source).await;
            source.settler().settle(&held.0, &held.1, &settlement).await
        };
        settle(100).await.unwrap();
        let most = MOST - usize::try_from(world.number(&size).await - 100).unwrap();
        let refused = settle(most + 1).await.unwrap_err();
        assert_eq!(refused.kind(), SourceErrorKind::Refused, "{refused}");
        assert_eq!(world.number(&size).await, i64::try_from(most + 1).unwrap(), "the message stays");
        for bytes in [most - 1, most] {
            settle(bytes).await.unwrap();
            assert_eq!(world.number(&size).await, i64::try_from(MOST + bytes - most).unwrap());
            if is_letter {
                let redriven = Redrive::new().run(&mut world.letters()).await;
                assert_eq!((redriven.put_back, redriven.passed_by), (1, 0), "{redriven:?}");
            }
        }
    }
}

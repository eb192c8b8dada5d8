//! Errors of a source have the right kind and contain no password.
use std::error::Error;
use std::sync::Arc;

use futures_util::future::join_all;
use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_harness::servers::{CLOSED, HTTP, REDIS, SILENT, stranger};
use idempotent_mq::{
    DeadLetter, DeadLetters, OutboundMessage, Received, Settlement, Source, SourceError, SourceErrorKind,
};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher, RabbitSource, Server};
use lapin::ConnectionProperties;
use lapin::options::QueueDeclareOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;

use crate::broker::world::{Log, Process, SERVER, World, again, executor, ms, until, within};

/// Returns the error of a first `receive`. The short form of the source returns the same.
async fn refused(url: &str, queue: Queue) -> (SourceErrorKind, String) {
    let short = within("an answer", RabbitSource::connect(url, queue.clone())).await.unwrap_err();
    let mut source = RabbitSource::builder(url, queue).build().unwrap();
    let error: SourceError = within("an answer", source.receive(1)).await.unwrap_err();
    assert_eq!((short.kind(), short.to_string()), (error.kind(), error.to_string()));
    (error.kind(), format!("{error} {error:?} {:?} {source:?}", error.source().map(ToString::to_string)))
}

#[tokio::test]
async fn a_missing_or_different_queue_and_a_wrong_password_are_fatal_and_an_unreachable_port_is_not() {
    let world = World::new("refusals").await;
    let (kind, text) = refused(&SERVER.url(), Queue::existing("refusals.missing")).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("refusals.missing"), "{text}");
    world.declare("refusals").await;
    let (kind, text) = refused(&SERVER.url(), Queue::classic("refusals").argument("x-max-length", 5)).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("x-max-length"), "{text}");
    assert_eq!(
        RabbitSource::connect(":", Queue::classic("refusals")).await.unwrap_err().kind(),
        SourceErrorKind::Fatal
    );
    let wrong = SERVER.url().replace("guest:guest", "guest:s3cret");
    let (kind, text) = refused(&wrong, Queue::classic("refusals")).await;
    assert!(kind == SourceErrorKind::Fatal && !text.contains("s3cret"), "{kind:?} {text}");
    let (kind, text) = refused("amqp://guest:s3cret@127.0.0.1:1/%2f", Queue::classic("refusals")).await;
    assert!(kind == SourceErrorKind::Transient && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_or_refuses_the_user_is_named_with_cause_and_remedy() {
    use SourceErrorKind::{Fatal, Transient};
    let _world = World::new("connecting").await;
    SERVER.eval(
        "ok = rabbit_auth_backend_internal:add_user(<<\"stranger\">>, <<\"hush-hush\">>, <<\"a test\">>), \"done\".",
    );
    let (plain, (by_tls, certificates)) = (SERVER.address(), SERVER.listen_by_tls());
    let [http, redis, closed, silent] = [HTTP, REDIS, CLOSED, SILENT].map(stranger);
    let url =
        |user: &str, password: &str, address: &str, vhost: &str| format!("amqp://{user}:{password}@{address}/{vhost}");
    let tls = |url: String| url.replacen("amqp", "amqps", 1);
    let at = |address: &str| url("guest", "hush-hush", address, "%2f");
    let of_tls = |with, without| if cfg!(feature = "tls") { (Transient, with) } else { (Fatal, without) };
    let no_tls = ["URL", "enable the feature `tls`"];
    let (kind, not_tls) = of_tls([&*plain, "the answer is not of TLS"], no_tls);
    let (_, unknown) = of_tls([&*by_tls, "`SSL_CERT_FILE`"], no_tls);
    let cases = [
        (at(&plain), Fatal, ["ACCESS_REFUSED", "check the user and password"]),
        (url("guest", "guest", &plain, "nowhere"), Fatal, ["vhost nowhere not found", "`rabbitmqctl add_vhost`"]),
        (url("stranger", "hush-hush", &plain, "%2f"), Fatal, ["for user 'stranger'", "`rabbitmqctl set_permissions"]),
        (at(&plain) + "?auth_mechanism=external", Transient, [&plain, "supports the `auth_mechanism`"]),
        (tls(at(&plain)), kind, not_tls),
        (tls(at(&by_tls)), kind, unknown),
        // The server may reset the connection before the client reads its alert.
        (at(&by_tls), Transient, [&by_tls, "TLS"]),
        (at("127.0.0.1:1"), Transient, ["onnection refused", "check that the server is running, and the port"]),
        (at("no.such.host.invalid:7"), Transient, ["lookup", "check the host name"]),
        (at(&http), Transient, ["the answer is not of AMQP", "check the host and the port"]),
        (at(&redis), Transient, ["the answer is not of AMQP", "check the host and the port"]),
        (at(&closed), Transient, ["aborted", "closes the connection"]),
        (at(&silent), Transient, ["no answer in time", "the host and the port are its own"]),
    ];
    join_all(cases.map(async |(url, kind, words)| {
        let source = RabbitSource::connect(&url, Queue::classic("connecting")).await.unwrap_err();
        assert_eq!(source.kind(), kind, "{source:?}");
        let publisher = RabbitPublisher::builder(&url).confirm_within(ms(8_000)).give_up_after(ms(8_000)).build();
        let published = match &publisher {
            Ok(publisher) => {
                publisher.publish(&OutboundMessage::new("connecting", "m", "{}")).await.unwrap_err().to_string()
            }
            Err(invalid) => invalid.to_string(),
        };
        let host = url.rsplit_once('@').and_then(|(_, host)| host.split_once('/')).unwrap().0;
        let host = if words == no_tls { "amqps" } else { host };
        for text in [source.to_string(), published] {
            assert!(words.iter().chain([&host]).all(|word| text.contains(word)), "{words:?} {host}: {text}");
            assert!(!text.contains("hush") && !format!("{source:?}").contains("hush"), "{text} {source:?}");
        }
    }))
    .await;
    let authority = std::fs::read_to_string(certificates.ca()).unwrap();
    accepts_other_clients(if cfg!(feature = "tls") { &by_tls } else { &plain }, authority).await;
}

/// Connects by the URI, the properties and the authority of other clients.
async fn accepts_other_clients(address: &str, authority: String) {
    let scheme = if cfg!(feature = "tls") { "amqps" } else { "amqp" };
    let uri: AMQPUri = format!("{scheme}://guest:guest@{address}/%2f").parse().unwrap();
    let tls = OwnedTLSConfig { identity: None, cert_chain: Some(authority) };
    let own = || Server::on_client((uri.clone(), ConnectionProperties::default(), tls.clone()));
    let mut source = RabbitSource::connect(own(), Queue::classic("connecting")).await.unwrap();
    let publisher = RabbitPublisher::builder(own()).build().unwrap();
    publisher.publish(&OutboundMessage::new("connecting", "m", "{}")).await.unwrap();
    assert!(matches!(source.receive(1).await.unwrap(), Received::Deliveries(held) if held.len() == 1));
    let letters = RabbitDeadLetters::new(own(), "connecting").unwrap().count().await.unwrap();
    assert!(letters == 0 && !format!("{:?}", own()).contains("guest"));
}

#[tokio::test]
async fn a_delivery_of_a_closed_channel_does_not_settle_the_same_number_on_the_next() {
    let mut world = World::alone("stale").await;
    let mut old = world.opened(Queue::classic("stale")).await;
    world.send_id("a").await;
    let stale = old.next().await;
    tokio::task::spawn_blocking(|| SERVER.close_all_connections()).await.unwrap();
    assert!(matches!(within("the end", old.0.receive(1)).await.unwrap(), Received::Revoked(_)));
    world.reconnect().await;
    world.delete("stale").await;
    let mut new = world.opened(Queue::classic("stale")).await;
    world.send_id("b").await;
    let fresh = new.next().await;
    let _ = old.settle(&stale, Settlement::Ack).await;
    new.settle(&fresh, Settlement::GiveBack).await.unwrap();
    let again = new.next().await;
    assert_eq!(again.0.id.as_deref(), Some("b"), "delivery 1 of the other channel was acknowledged");
}

#[tokio::test]
async fn a_dead_letter_queue_with_other_settings_refuses_the_source_at_its_start() {
    let world = World::new("foreign").await;
    let mut limited = FieldTable::default();
    limited.insert("x-max-length".into(), AMQPValue::LongInt(1));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    world.admin.queue_declare("foreign.dead".into(), durable, limited).await.unwrap();
    let (kind, text) = refused(&SERVER.url(), Queue::classic("foreign")).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("foreign.dead"), "{text}");
}

#[tokio::test]
async fn a_dead_letter_with_a_deleted_queue_is_not_acknowledged_and_succeeds_at_the_second_attempt() {
    let world = World::new("undead").await;
    let mut source = world.opened(Queue::classic("undead")).await;
    for id in ["a", "b"] {
        world.send_id(id).await;
    }
    let (first, second) = (source.next().await, source.next().await);
    let letter = Settlement::DeadLetter(DeadLetter::because("why", Timestamp(9)));
    source.settle(&first, letter.clone()).await.unwrap();
    world.delete("undead.dead").await;
    let error = source.settle(&second, letter.clone()).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error}");
    source.settle(&second, letter).await.unwrap();
    assert_eq!(world.dead().await.properties.message_id().as_ref().unwrap().as_str(), "b");
}

#[tokio::test]
async fn a_retry_queue_with_other_settings_ends_the_consumer_and_its_message_is_given_back() {
    let world = World::new("no-delays").await;
    world.declare("no-delays").await;
    world.declare("no-delays.retry.100").await;
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let log = Arc::new(Log::default());
    let process = Process::start(world.source(), "billing", &executor, log.by_id(again), |b| b);
    let counters = process.counters.clone();
    world.send_id("m").await;
    let error = process.ended().await.unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert_eq!(error.kind(), SourceErrorKind::Fatal);
    assert!(error.to_string().contains("what differs") && cause.contains("no-delays.retry.100"), "{error}: {cause}");
    let counts = counters.counts();
    assert_eq!((log.runs(), counts.given_back, counts.unsettled, counts.acked), (1, 1, 0, 0));
    until("it is in its queue", async || (world.count("no-delays").await == 1).then_some(())).await;
}

#[tokio::test]
async fn a_receive_that_is_dropped_while_it_connects_leaves_no_second_subscription() {
    let world = World::new("half-open").await;
    world.declare("half-open").await;
    for number in 0..40 {
        let mut source = world.source();
        // The call is dropped at a different step each time.
        drop(tokio::time::timeout(ms(number * 4), source.receive(10)).await);
        let id = format!("m-{number}");
        world.send_id(&id).await;
        let Received::Deliveries(came) = within("a delivery", source.receive(10)).await.unwrap() else {
            panic!("nothing is revoked")
        };
        let (delivery, tag) = &came[0];
        assert_eq!(
            (delivery.id.as_deref(), delivery.redelivered),
            (Some(&*id), false),
            "the message was delivered to another subscription first"
        );
        source.settler().settle(delivery, tag, &Settlement::Ack).await.unwrap();
        source.close().await;
        until("no subscription", async || (world.consumers(&world.queue).await? == 0).then_some(())).await;
    }
}

//! Opening a source: what is created, what is refused, and by which error.
use async_nats::jetstream::consumer::{AckPolicy, pull, push};
use async_nats::jetstream::{Context, stream};
use idempotent_core::{StoreErrorKind, Timestamp};
use idempotent_harness::servers::{CLOSED, HTTP, NatsServer, REDIS, SILENT, stranger};
use idempotent_mq::{DeadLetter, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_nats::{JetStreamSource, KvBackend, StartPosition};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, ms, one, retry, secs, settle, until};

/// Checks the kind of an error, and a part of its text.
#[track_caller]
fn refused(opened: Result<JetStreamSource, SourceError>, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(part), "{error}");
}

async fn orders(client: &Context) -> stream::Stream {
    let config =
        stream::Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..stream::Config::default() };
    client.create_stream(config).await.unwrap()
}

fn existing(world: &World) -> idempotent_nats::JetStreamSourceBuilder {
    JetStreamSource::builder(world.server.url(), "ORDERS", "billing")
}

#[tokio::test]
async fn what_does_not_exist_is_named_with_its_remedy_and_created_on_request() {
    let world = World::new().await;
    refused(existing(&world).connect().await, "`nats stream add`");
    orders(&world.client).await;
    refused(existing(&world).connect().await, "consumer `billing`: it does not exist; create it by `declare`");
    world.source().await;
    for (kind, name) in [("stream", "ORDERS-dead"), ("bucket", "KV_idempotent-ORDERS-billing")] {
        existing(&world).connect().await.unwrap();
        world.client.delete_stream(name).await.unwrap();
        let error = existing(&world).connect().await.map(drop).unwrap_err();
        assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("`declare`"), "{kind}: {error}");
        world.source().await;
    }
}

#[tokio::test]
async fn a_consumer_that_would_lose_messages_is_refused() {
    let world = World::new().await;
    world.source().await;
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    let explicit = pull::Config { ack_policy: AckPolicy::Explicit, ack_wait: ms(600), ..pull::Config::default() };
    let cases = [
        ("acks", pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() }, "--ack explicit"),
        ("limited", pull::Config { max_deliver: 5, ..explicit.clone() }, "set it to -1"),
        ("backoff", pull::Config { max_deliver: 0, backoff: vec![ms(600)], ..explicit.clone() }, "`backoff`"),
        ("slower", pull::Config { ack_wait: ms(900), ..explicit }, "its `ack_wait` is 900ms and not 600ms"),
    ];
    for (name, config, part) in cases {
        let config = pull::Config { durable_name: Some(name.into()), ..config };
        stream.create_consumer(config).await.unwrap();
        let builder =
            JetStreamSource::builder(world.server.url(), "ORDERS", name).declare(["orders.>"]).ack_wait(ms(600));
        refused(builder.connect().await, part);
    }
    let pushed = push::Config {
        deliver_subject: "inbox".into(),
        durable_name: Some("pushed".into()),
        ..push::Config::default()
    };
    stream.create_consumer(pushed).await.unwrap();
    let pushed = || JetStreamSource::builder(world.server.url(), "ORDERS", "pushed");
    refused(pushed().connect().await, "push consumer");
    refused(pushed().declare(["orders.>"]).connect().await, "push consumer");
}

#[tokio::test]
async fn what_is_declared_loses_no_message_and_holds_up_no_other() {
    let world = World::new().await;
    world.builder().delays().connect().await.unwrap();
    drop(KvBackend::create(world.server.url(), "keys", 1).await.unwrap());
    let config = async |stream: &str| world.client.get_stream(stream).await.unwrap().cached_info().config.clone();
    let orders = config("ORDERS").await;
    assert!(orders.allow_rollup && orders.allow_message_schedules, "{orders:?}");
    assert!(config("ORDERS-dead").await.allow_direct);
    let keys = config("KV_keys").await;
    assert!(
        keys.deny_delete && keys.allow_rollup && keys.allow_direct && keys.max_messages_per_subject == 1,
        "{keys:?}"
    );
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    let consumer = stream.consumer_info("billing").await.unwrap().config;
    assert_eq!((consumer.ack_policy, consumer.max_deliver, consumer.max_ack_pending), (AckPolicy::Explicit, -1, -1));
    assert_eq!(config("KV_idempotent-ORDERS-billing").await.max_age, secs(7 * 86_400));
}

#[tokio::test]
async fn a_retried_message_is_redelivered_and_leaves_no_mark_when_it_is_settled() {
    let world = World::new().await;
    let mut source = world.source().await;
    world.send("body").await;
    let marks = async || {
        let bucket = world.client.get_stream("KV_idempotent-ORDERS-billing").await.unwrap();
        bucket.cached_info().state.messages
    };
    for (is_redelivered, how, left) in [(false, retry(ms(1)), 1), (true, Settlement::Ack, 0)] {
        let held = one(&mut source).await;
        assert_eq!(held.0.redelivered, is_redelivered);
        settle(&source.settler(), &held, how).await;
        assert_eq!(marks().await, left);
    }
}

#[tokio::test]
async fn what_the_server_refuses_to_create_is_not_tried_again() {
    let world = World::new().await;
    let limited = stream::Config {
        name: "ORDERS".into(),
        subjects: vec!["orders.>".into()],
        max_consumers: 1,
        ..stream::Config::default()
    };
    world.client.create_stream(limited).await.unwrap();
    world.source().await;
    let second = JetStreamSource::builder(world.server.url(), "ORDERS", "second").declare(["orders.>"]);
    refused(second.connect().await, "maximum consumers limit reached");
    let overlapping = JetStreamSource::builder(world.server.url(), "OTHER", "billing").declare(["orders.new"]);
    refused(overlapping.connect().await, "subjects overlap");
}

#[tokio::test]
async fn letters_go_to_a_subject_of_an_existing_stream() {
    let world = World::new().await;
    let create = async |name: &str, subjects: &[&str]| {
        let subjects = subjects.iter().map(|&subject| subject.into()).collect();
        world.client.create_stream(stream::Config { name: name.into(), subjects, ..stream::Config::default() }).await
    };
    create("PATTERN", &["pattern.*"]).await.unwrap();
    refused(world.builder().dead_letters("PATTERN").connect().await, "add the subject `idempotent.dead.PATTERN`");
    for (name, subjects, expected) in [
        ("LETTERS", ["letters.*.old", "letters.orders"], "letters.orders"),
        ("OWN", ["own", "idempotent.dead.>"], "idempotent.dead.OWN"),
    ] {
        let letters = create(name, &subjects).await.unwrap();
        let mut source = world.builder().dead_letters(name).connect().await.unwrap();
        world.send("body").await;
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
        assert_eq!(letters.get_raw_message(1).await.unwrap().subject.as_str(), expected);
    }
}

#[tokio::test]
async fn bad_settings_and_addresses_are_refused_before_anything_is_created() {
    let world = World::new().await;
    let builder = |stream: &str, consumer: &str| {
        JetStreamSource::builder(world.server.url(), stream.to_owned(), consumer.to_owned()).declare(["orders.>"])
    };
    refused(builder("OR.DERS", "billing").connect().await, "`stream` is `OR.DERS`; use letters, digits");
    refused(builder("ORDERS", "").connect().await, "`consumer` is ``");
    refused(builder("ORDERS", "billing").dead_letters("ORDERS").connect().await, "the stream itself");
    refused(builder("ORDERS", "billing").ack_wait(ms(99)).connect().await, "at least 100 ms");
    for url in ["nats://", "amqp://localhost", ""] {
        refused(JetStreamSource::connect(url, "ORDERS", "billing").await, "use `nats://[USER:PASSWORD@]HOST[:PORT]");
    }
    let credentials = format!("{}?credentials=missing.creds", world.server.url());
    refused(JetStreamSource::connect(credentials, "ORDERS", "billing").await, "nsc generate creds");
    assert!(world.client.get_stream("ORDERS").await.is_err());
    let closed = JetStreamSource::connect("nats://127.0.0.1:1", "ORDERS", "billing").await.map(drop).unwrap_err();
    assert_eq!(closed.kind(), SourceErrorKind::Transient, "{closed}");
}

#[tokio::test]
async fn the_shortest_ack_wait_is_accepted() {
    World::new().await.builder().ack_wait(ms(100)).connect().await.unwrap();
}

/// Starts a server that only greets, as a server of this version, and returns its address.
async fn greeting(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(greet(connection, version));
        }
    });
    address
}

async fn greet(connection: TcpStream, version: &str) {
    let mut connection = BufReader::new(connection);
    let info = format!("INFO {{\"version\": \"{version}\", \"max_payload\": 1000, \"headers\": true}}\r\n");
    connection.write_all(info.as_bytes()).await.unwrap();
    let mut line = String::new();
    while connection.read_line(&mut line).await.is_ok_and(|length| length > 0) {
        if line.starts_with("PING") {
            connection.write_all(b"PONG\r\n").await.unwrap();
        }
        line.clear();
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_the_remedy() {
    let url = format!("nats://{}", greeting("2.9.25").await);
    let opened = JetStreamSource::connect(&*url, "ORDERS", "billing").await;
    refused(opened, "the version of the server is 2.9.25; run NATS 2.10 or later");
    let error = KvBackend::open(&*url, "idempotent").await.map(drop).unwrap_err();
    assert!(error.kind() == StoreErrorKind::Schema && error.to_string().contains("2.10 or later"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    use SourceErrorKind::{Fatal, Transient};
    let (server, secured) = (NatsServer::with(r#"authorization { user: ann, password: "right" }"#), NatsServer::tls());
    let full = NatsServer::with("max_connections: 1");
    // The server may count the client that waited for its start for a moment longer than it is there.
    let mut only = None;
    let is_admitted = async || {
        only = async_nats::connect(full.address()).await.ok();
        only.is_some()
    };
    until("the server admits one client", is_admitted).await;
    let [http, redis, closed, silent] = [HTTP, REDIS, CLOSED, SILENT].map(stranger);
    for (scheme, address, kind, words) in [
        ("nats", server.address(), Fatal, ["authorization violation", "check the user and the password"]),
        ("tls", server.address(), Fatal, ["corrupt message", "use `nats://`, or configure `tls`"]),
        ("nats", secured.address(), Fatal, ["invalid peer certificate", "`tls_ca`"]),
        ("nats", full.address(), Transient, ["maximum connections exceeded", "the log of the server"]),
        (
            "nats",
            "127.0.0.1:1".into(),
            Transient,
            ["onnection refused", "check that the server is running, and the port"],
        ),
        ("nats", "no.such.host.invalid:7".into(), Transient, ["lookup", "check the host name"]),
        (
            "nats",
            http,
            Transient,
            ["no answer of NATS (invalid server operation: 'HTTP", "check the host and the port"],
        ),
        ("tls", redis, Transient, ["no answer of NATS (expected INFO", "check the host and the port"]),
        ("nats", closed, Transient, ["got nothing", "closes the connection"]),
        ("nats", silent, Transient, ["no answer within 5s", "the host and the port are its own"]),
    ] {
        let url = format!("{scheme}://ann:hush-hush@{address}");
        let error = JetStreamSource::connect(&*url, "ORDERS", "billing").await.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for word in words.into_iter().chain([&*address]) {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_without_jetstream_is_named() {
    let server = NatsServer::without_jetstream();
    let error = JetStreamSource::connect(server.url(), "ORDERS", "billing").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("JetStream"), "{error}");
    let error = KvBackend::open(server.url(), "keys").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("JetStream"), "{error}");
}

#[tokio::test]
async fn a_new_consumer_starts_at_its_position_and_takes_its_subjects_only() {
    let world = World::new().await;
    world.source().await;
    world.send("old").await;
    let late =
        JetStreamSource::builder(world.server.url(), "ORDERS", "late").declare(["orders.>"]).start(StartPosition::New);
    let mut late = late.filter(["orders.new"]).connect().await.unwrap();
    world.client.publish("orders.other", "other".into()).await.unwrap().await.unwrap();
    world.send("new").await;
    let (delivery, _) = one(&mut late).await;
    assert_eq!((delivery.body.as_slice(), &*delivery.position.source), (&b"new"[..], "orders.new"));
    let mut first = world.source().await;
    assert_eq!(one(&mut first).await.0.body, b"old");
}

//! Errors when a source connects or reads.
use idempotent_harness::servers::{CLOSED, HTTP, RedisServer, SILENT, stranger};
use idempotent_mq::{OutboundMessage, Publish, Redrive, Source, SourceErrorKind};
use idempotent_redis_streams::{Server, StartPosition, StreamsDeadLetters, StreamsPublisher, StreamsSource};

use crate::world::{World, ms, one};

#[tokio::test]
async fn a_missing_group_is_refused_with_a_remedy() {
    let world = World::new();
    let refused = StreamsSource::connect(world.server.url(), "orders", "billing").await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal);
    assert!(refused.to_string().contains("`.declare(StartPosition::Beginning)`"), "{refused}");
    // The group may also be deleted later.
    let mut source = world.source("a").await;
    world.server.command(&["XGROUP", "DESTROY", "orders", "billing"]);
    let refused = source.receive(1).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal);
    assert!(refused.to_string().contains("XGROUP CREATE"), "{refused}");
}

#[tokio::test]
async fn a_setting_out_of_range_is_refused_with_its_rule() {
    let world = World::new();
    let builder = |stream, group| StreamsSource::builder(world.server.url(), stream, group).declare(StartPosition::New);
    for (builder, words) in [
        (builder("", "billing"), "must have a name"),
        (builder("orders", ""), "must have a name"),
        (builder("orders", "billing").consumer(""), "must have a name"),
        (builder("orders", "billing").dead_letters(""), "must have a name"),
        (builder("orders", "billing").dead_letters("orders"), "name another stream"),
        (builder("orders", "billing").min_idle(ms(99)), "at least 100 ms"),
    ] {
        let refused = builder.connect().await.unwrap_err();
        assert_eq!(refused.kind(), SourceErrorKind::Fatal);
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert!(builder("orders", "billing").min_idle(ms(100)).connect().await.is_ok());
    world.server.command(&["SET", "text", "x"]);
    assert_eq!(builder("text", "billing").connect().await.unwrap_err().kind(), SourceErrorKind::Fatal);
    let other = StreamsSource::builder("http://somewhere", "orders", "billing").connect().await.unwrap_err();
    assert_eq!(other.kind(), SourceErrorKind::Fatal);
}

#[tokio::test]
async fn a_client_of_the_service_connects_a_source_a_publisher_and_the_dead_letters() {
    let server = RedisServer::builder().password("hunter2").start();
    let client = redis::Client::open(format!("redis://:hunter2@{}/2?protocol=resp3", server.address())).unwrap();
    let own = || Server::on_client(client.clone());
    let builder = StreamsSource::builder(own(), "orders", "billing").declare(StartPosition::Beginning);
    let mut source = builder.connect().await.unwrap();
    let message = OutboundMessage::new("orders", "m-1", "body");
    StreamsPublisher::new(own()).unwrap().publish(&[message]).await.pop().unwrap().unwrap();
    assert_eq!(one(&mut source).await.0.body, b"body");
    let redriven = Redrive::new().run(&mut StreamsDeadLetters::new(own(), "orders").unwrap()).await;
    assert!(redriven.failed.is_none(), "{redriven:?}");
    assert!(!format!("{:?}", own()).contains("hunter2"));
}

#[tokio::test]
async fn the_short_form_connects_to_an_existing_group() {
    let world = World::new();
    world.send("old");
    world.server.command(&["XGROUP", "CREATE", "orders", "billing", "0"]);
    let mut source = StreamsSource::connect(world.server.url(), "orders", "billing").await.unwrap();
    assert_eq!(one(&mut source).await.0.body, b"old");
}

#[tokio::test]
async fn a_deleted_group_ends_a_blocked_read() {
    let world = World::new();
    let mut source = world.source("a").await;
    let reading = tokio::spawn(async move {
        loop {
            if let Err(refused) = source.receive(4).await {
                return refused;
            }
        }
    });
    crate::world::until("it waits", async || world.server.info("blocked_clients") == "1").await;
    world.server.command(&["DEL", "orders"]);
    let refused = tokio::time::timeout(crate::world::LIMIT, reading).await.unwrap().unwrap();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal, "{refused}");
}

#[tokio::test]
async fn a_new_group_starts_as_configured_and_an_existing_one_continues() {
    let world = World::new();
    world.send("old");
    let new = || StreamsSource::builder(world.server.url(), "orders", "new").declare(StartPosition::New);
    let mut source = new().connect().await.unwrap();
    world.send("young");
    assert_eq!(one(&mut source).await.0.body, b"young");
    world.send("youngest");
    assert_eq!(one(&mut new().connect().await.unwrap()).await.0.body, b"youngest");
    let mut beginning = world.source("a").await;
    assert_eq!(one(&mut beginning).await.0.body, b"old");
    assert_ne!(new().connect().await.unwrap().consumer(), source.consumer());
}

/// Connects by each URL, and checks the kind of the error, the words in its text, and that no password is shown.
async fn all_are_explained(kind: SourceErrorKind, cases: &[(String, &[&str])]) {
    for (url, words) in cases {
        let builder = StreamsSource::builder(&**url, "orders", "billing");
        assert!(!format!("{builder:?}").contains("hush-hush"), "{builder:?}");
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for word in *words {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert!(!format!("{error} {error:?}").contains("hush-hush"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    let servers = [RedisServer::builder().tls().start(), RedisServer::start()];
    let [secured, plain] = servers.each_ref().map(RedisServer::address);
    let [silent, closed, http] = [SILENT, CLOSED, HTTP].map(stranger);
    // Without a password, the client sends nothing by itself.
    for login in [":hush-hush@", ""] {
        let url = |scheme: &str, address: &str| format!("{scheme}://{login}{address}");
        let cases: [(String, &[&str]); 9] = [
            (
                url("redis", "127.0.0.1:1"),
                &["127.0.0.1:1", "onnection refused", "check that the server is running, and the port"],
            ),
            (url("redis", "no.such.host.invalid:7"), &["no.such.host.invalid:7", "lookup", "check the host name"]),
            (url("redis", &http), &[&http, "no answer of Redis", "check the host and the port"]),
            (url("redis", &closed), &[&closed, "closes the connection", "whether it requires TLS"]),
            (url("redis", &silent), &[&silent, "no answer within 2s", "the host and the port are its own"]),
            (url("redis", &secured), &[&secured, "whether it requires TLS"]),
            // Redis answers this only if there is a line break in the random bytes.
            (url("rediss", &plain), &[&plain, "does not answer by TLS", "use `redis://`"]),
            (url("rediss", &http), &[&http, "corrupt message", "does not answer by TLS: use `redis://`"]),
            (url("rediss", &secured), &[&secured, "invalid peer certificate", "`Server::on_client`"]),
        ];
        all_are_explained(SourceErrorKind::Transient, &cases).await;
    }
}

#[tokio::test]
async fn each_refusal_of_the_server_names_its_cause_and_remedy() {
    let servers = [RedisServer::builder().password("right").start(), RedisServer::start()];
    let [secured, plain] = servers.each_ref().map(RedisServer::address);
    let login = "check user and password in the URL";
    let cases: [(String, &[&str]); 4] = [
        (format!("redis://:hush-hush@{secured}"), &[&secured, "authentication failed", login]),
        (format!("redis://{secured}"), &[&secured, "NOAUTH", login]),
        (format!("redis://nobody:hush-hush@{plain}"), &[&plain, "authentication failed", login]),
        (format!("redis://{plain}/99"), &[&plain, "DB index is out of range", "raise `databases` in redis.conf"]),
    ];
    all_are_explained(SourceErrorKind::Fatal, &cases).await;

    let crowded = RedisServer::start();
    crowded.command(&["CONFIG", "SET", "maxclients", "1"]);
    let _only = std::net::TcpStream::connect(crowded.address()).unwrap();
    let address = crowded.address();
    let words: &[&str] = &[&address, "max number of clients", "raise `maxclients`"];
    all_are_explained(SourceErrorKind::Transient, &[(format!("redis://{address}"), words)]).await;
}

#[tokio::test]
async fn no_text_contains_a_password() {
    let server = RedisServer::builder().password("hush-hush").start();
    let address = server.address();
    let builder = || StreamsSource::builder(format!("redis://:wrong-one@{address}"), "orders", "billing");
    assert!(!format!("{:?}", builder()).contains("wrong-one"));
    let refused = builder().connect().await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal, "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("wrong-one"), "{refused:?}");
    let url = format!("redis://:hush-hush@{address}");
    let source = StreamsSource::builder(url, "orders", "billing").declare(StartPosition::New).connect().await.unwrap();
    assert!(!format!("{source:?}").contains("hush-hush"), "{source:?}");
    // An invalid URL is not shown either.
    let refused = StreamsSource::builder("redis://:hush-hush@[", "orders", "billing").connect().await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("hush-hush"), "{refused:?}");
}

#[tokio::test]
async fn an_id_field_provides_the_id_and_an_entry_without_it_has_none() {
    let world = World::new();
    let mut source = world.builder("a").id_field("id").business_key_field("order").connect().await.unwrap();
    world.server.command(&["XADD", "orders", "*", "id", "m-1", "order", "17", "body", "x"]);
    let held = one(&mut source).await.0;
    assert_eq!((held.id.as_deref(), held.business_key.as_deref()), (Some("m-1"), Some("17")));
    assert_eq!(held.headers.first("id"), Some(&b"m-1"[..]));
    world.send("x");
    assert_eq!(one(&mut source).await.0.id, None);
    world.server.command(&[&b"XADD"[..], b"orders", b"*", b"id", b"\xff", b"body", b"x"]);
    assert_eq!(one(&mut source).await.0.id, None);
}

//! Servers that cannot be reached or refuse a client: each error names the input, the cause and the remedy.
use std::net::Ipv4Addr;
use std::time::Duration;

use idempotent_harness::servers::{CLOSED, HTTP, REDIS, RocketServer, SILENT, stranger};
use idempotent_mq::{DeadLetters, OutboundMessage, PublishErrorKind, SourceError, SourceErrorKind};
use idempotent_rocketmq::{RocketDeadLetters, RocketPublisher, RocketSource};

use crate::broker::world::{World, within};

async fn refused(url: &str, topic: &str) -> SourceError {
    within("the connection", RocketSource::connect(url, topic, "billing")).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_name_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    let world = World::new("connecting").await;
    let [http, redis, closed, silent] = [HTTP, REDIS, CLOSED, SILENT].map(stranger);
    let no_answer = ["no answer of a name server of RocketMQ in time", "not the port of a broker"];
    for (address, words) in [
        ("127.0.0.1:1", ["Connection refused", "check that the server is running, and the port"]),
        ("no.such.host.invalid", ["lookup", "check the host name"]),
        (&*http, no_answer),
        (&*redis, no_answer),
        (&*closed, no_answer),
        (&*silent, no_answer),
        // A broker is not a name server.
        (&*world.server.address(), no_answer),
    ] {
        let url = format!("rocketmq://{address}");
        let mut letters = RocketDeadLetters::new(&*url, "orders", "billing").unwrap();
        let publisher = RocketPublisher::builder(&*url).give_up_after(Duration::from_secs(10)).build().unwrap();
        let message = OutboundMessage::new("orders", "m", "b");
        let (source, letters, published) = tokio::join!(
            refused(&url, "orders"),
            within("the letters", letters.count()),
            within("the message", publisher.publish(&message))
        );
        let (letters, published) = (letters.unwrap_err(), published.unwrap_err());
        assert_eq!(source.kind(), SourceErrorKind::Transient, "{source}");
        assert_eq!(letters.kind(), SourceErrorKind::Transient, "{letters}");
        assert_eq!(published.kind(), PublishErrorKind::Unsent, "{published}");
        for text in [source.to_string(), letters.to_string(), published.to_string()] {
            for word in words.into_iter().chain([address]) {
                assert!(text.contains(word), "{word:?} is not in: {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_missing_topic_is_named_with_the_remedy() {
    let world = World::new("connecting-2").await;
    let error = refused(&world.server.url(), "misspelt").await;
    assert_eq!(error.kind(), SourceErrorKind::Transient, "brokers register at any time: {error}");
    for word in ["`misspelt`", "create it by `declare`", "check its name"] {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

/// The broker tells its clients an address that they cannot reach.
#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_named_with_the_remedy() {
    let start = || RocketServer::behind(Ipv4Addr::new(127, 0, 0, 9), "1s 5s");
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    let error = refused(&server.url(), "BenchmarkTest").await;
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error}");
    let address = server.address().replace("127.0.0.1", "127.0.0.9");
    for word in [&*address, "`BenchmarkTest`", "check that it is running", "`brokerIP1`"] {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn security_that_the_server_does_not_have_is_named_with_the_remedy() {
    let world = World::new("connecting-3").await;
    let other = tokio::task::spawn_blocking(RocketServer::with_tls).await.unwrap();
    let authority = other.certificates().ca();
    let url = format!("{}?tls_ca={}", world.server.url().replace("rocketmq:", "rocketmqs:"), authority.display());
    let error = refused(&url, "connecting-3").await;
    for word in [&*world.server.name_server(), "whether they accept TLS", "`tls_ca`"] {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn a_wrong_url_or_name_is_named_with_the_rule() {
    for (url, topic, word) in [
        ("rocketmq://h?tls_c=x", "orders", "did you mean `tls_ca`?"),
        ("kafka://h", "orders", "rocketmq://[ACCESS_KEY:SECRET_KEY@]HOST[:PORT]"),
        ("", "orders", "rocketmq://[ACCESS_KEY:SECRET_KEY@]HOST[:PORT]"),
        ("rocketmq://h:0", "orders", "port 0"),
        ("rocketmq://h", "or ders", "topic: the name is not allowed; use 1 to 127"),
    ] {
        let error = RocketSource::builder(url, topic, "billing").build().unwrap_err().to_string();
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

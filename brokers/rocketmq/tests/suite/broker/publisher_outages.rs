//! Results of the publisher while the broker is unreachable, slow or unresponsive.
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RocketServer;
use idempotent_mq::{OutboundMessage, PublishErrorKind as Kind};
use idempotent_rocketmq::{RocketPublisher, RocketSource};

use crate::broker::outbox::{kinds, publish};
use crate::broker::world::{World, until, within};

fn chain(count: usize) -> Vec<OutboundMessage> {
    (0..count).map(|n| OutboundMessage::new("away", format!("m{n}"), "{}").aggregate("a")).collect()
}

fn publisher(server: &RocketServer, seconds: u64) -> RocketPublisher {
    RocketPublisher::builder(server.url()).give_up_after(Duration::from_secs(seconds)).build().unwrap()
}

/// Starts a broker that clients reach by a proxy at this address, with a topic `away` of one queue.
pub(crate) async fn start_with_proxy(address: Ipv4Addr) -> (Arc<RocketServer>, Proxy) {
    let started = move || RocketServer::behind(address, "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h");
    let server = Arc::new(tokio::task::spawn_blocking(started).await.unwrap());
    let port = server.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::start_at((address, port).into(), &server.address()).await;
    RocketSource::builder(server.url(), "away", "group").build().unwrap().declare(1).await.unwrap();
    (server, proxy)
}

async fn published(server: &Arc<RocketServer>) -> u64 {
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.published("away")).await.unwrap()
}

/// An outage must not use up resends, as [`Kind::Unconfirmed`] would.
#[tokio::test]
async fn without_a_broker_all_messages_are_unsent_within_the_time_of_one_and_with_a_broker_all_are_published() {
    let world = World::alone("away").await;
    let publisher = publisher(&world.server, 2);
    let many: Vec<_> =
        chain(3).into_iter().chain((0..30).map(|n| OutboundMessage::new("away", format!("{n}"), ""))).collect();
    assert!(kinds(&publish(&publisher, &many).await).iter().all(Option::is_none));
    world.blocking(RocketServer::kill).await;
    // The open connection may break unnoticed, with unconfirmed messages.
    publish(&publisher, &many).await;
    let begun = Instant::now();
    let results = publish(&publisher, &many).await;
    assert!(kinds(&results).iter().all(|kind| *kind == Some(Kind::Unsent)), "{results:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // A publisher that has never reached the broker.
    let late = RocketPublisher::builder(world.server.url()).give_up_after(Duration::from_secs(2)).build().unwrap();
    let results = publish(&late, &many).await;
    assert!(kinds(&results).iter().all(|kind| *kind == Some(Kind::Unsent)), "{results:?}");
    world.blocking(RocketServer::restart).await;
    until("all messages are published", async || {
        kinds(&publish(&publisher, &many).await).iter().all(Option::is_none).then_some(())
    })
    .await;
    // A stopped process does not respond.
    world.blocking(RocketServer::pause).await;
    let begun = Instant::now();
    let results = publish(&publisher, &many).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let expected = |at: usize| if (1..3).contains(&at) { Kind::Unsent } else { Kind::Unconfirmed };
    assert!(kinds(&results).iter().enumerate().all(|(at, kind)| *kind == Some(expected(at))), "{results:?}");
    world.blocking(RocketServer::resume).await;
}

#[tokio::test]
async fn all_messages_of_a_call_share_one_time_limit() {
    let (server, proxy) = start_with_proxy(Ipv4Addr::new(127, 0, 0, 3)).await;
    let publisher = publisher(&server, 4);
    assert_eq!(kinds(&publish(&publisher, &chain(1)).await), [None]);
    proxy.delay_all(Duration::from_millis(200));
    let begun = Instant::now();
    let results = kinds(&publish(&publisher, &chain(50)).await);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let sent = results.iter().take_while(|kind| kind.is_none()).count();
    assert!((1..25).contains(&sent), "{sent}: {results:?}");
    assert!(results[sent + 1..].iter().all(|kind| *kind == Some(Kind::Unsent)), "{results:?}");
}

#[tokio::test]
async fn a_message_that_does_not_arrive_is_sent_again_and_stored_once() {
    let (server, proxy) = start_with_proxy(Ipv4Addr::new(127, 0, 0, 4)).await;
    let publisher = publisher(&server, 30);
    assert_eq!(kinds(&publish(&publisher, &chain(1)).await), [None]);
    for (there, fault) in (1..).zip([Fault::CutBeforeSend, Fault::HalfOpen]) {
        proxy.fail_next_with("not-sent", fault);
        let results = publish(&publisher, &[OutboundMessage::new("away", "not-sent", "{}")]).await;
        assert_eq!(kinds(&results), [None], "{fault:?}: {results:?}");
        within("the fault", proxy.until_met(there)).await;
        // The broker confirms a message before the queue counts it.
        until("the queue counts the message", async || (published(&server).await > there).then_some(())).await;
        assert_eq!(published(&server).await, there + 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_message_without_a_response_is_sent_again_or_reported_as_unconfirmed() {
    let world = World::alone("away").await;
    let (patient, hasty) = (publisher(&world.server, 60), publisher(&world.server, 2));
    for publisher in [&patient, &hasty] {
        assert_eq!(kinds(&publish(publisher, &chain(1)).await), [None]);
    }
    world.blocking(RocketServer::pause).await;
    let results = publish(&hasty, &[OutboundMessage::new("away", "unconfirmed", "{}")]).await;
    assert_eq!(kinds(&results), [Some(Kind::Unconfirmed)], "{results:?}");
    let messages = [OutboundMessage::new("away", "twice", "{}")];
    let sending = publish(&patient, &messages);
    // An attempt takes 4 s.
    let resume = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.blocking(RocketServer::resume).await;
    };
    let (results, ()) = tokio::join!(sending, resume);
    assert_eq!(kinds(&results), [None], "{results:?}");
    // A broker may drop requests that waited too long. Only the last attempt is certainly stored.
    let offset = results[0].as_ref().unwrap().position.as_ref().unwrap().offset.as_deref().unwrap();
    let offset = offset.parse::<u64>().unwrap();
    assert!(offset >= 2, "{results:?}");
    until("the queue counts the message", async || (published(&world.server).await > offset).then_some(())).await;
}

//! What an outbox's relay is told while the broker is away, slow or silent.
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_mq::{OutboundMessage, PublishErrorKind as Kind};
use idempotent_rocketmq::{RocketPublisher, RocketSource};
use idempotent_testkit::proxy::{Fault, Proxy};
use idempotent_testkit::servers::RocketServer;

use crate::broker::outbox::{kinds, publish};
use crate::broker::world::{World, until, within};

fn chain(count: usize) -> Vec<OutboundMessage> {
    (0..count).map(|n| OutboundMessage::new("away", format!("m{n}"), "{}").aggregate("a")).collect()
}

fn publisher(server: &RocketServer, seconds: u64) -> RocketPublisher {
    RocketPublisher::builder(server.name_server()).give_up_after(Duration::from_secs(seconds)).build().unwrap()
}

/// With a topic `away` of one queue, on a broker that is reached by a proxy.
async fn behind(told: Ipv4Addr) -> (Arc<RocketServer>, Proxy) {
    let started = move || RocketServer::behind(told, "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h");
    let server = Arc::new(tokio::task::spawn_blocking(started).await.unwrap());
    let port = server.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::start_at((told, port).into(), &server.address()).await;
    RocketSource::builder(server.name_server(), "away", "group").build().unwrap().declare(1).await.unwrap();
    (server, proxy)
}

async fn published(server: &Arc<RocketServer>) -> u64 {
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.published("away")).await.unwrap()
}

/// An outage must not use resends up, which [`Kind::Unconfirmed`] does.
#[tokio::test]
async fn b29_without_a_broker_all_is_unsent_in_the_time_of_one_and_with_it_again_all_goes() {
    let world = World::alone("away").await;
    let publisher = publisher(&world.server, 2);
    let many: Vec<_> =
        chain(3).into_iter().chain((0..30).map(|n| OutboundMessage::new("away", format!("{n}"), ""))).collect();
    assert!(kinds(&publish(&publisher, &many).await).iter().all(Option::is_none));
    world.blocking(RocketServer::kill).await;
    // The connection that was may break unnoticed, and then nobody knows.
    publish(&publisher, &many).await;
    let begun = Instant::now();
    let told = publish(&publisher, &many).await;
    assert!(kinds(&told).iter().all(|kind| *kind == Some(Kind::Unsent)), "{told:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // One that never saw it.
    let late =
        RocketPublisher::builder(world.server.name_server()).give_up_after(Duration::from_secs(2)).build().unwrap();
    let told = publish(&late, &many).await;
    assert!(kinds(&told).iter().all(|kind| *kind == Some(Kind::Unsent)), "{told:?}");
    world.blocking(RocketServer::restart).await;
    until("all goes", async || kinds(&publish(&publisher, &many).await).iter().all(Option::is_none).then_some(()))
        .await;
    // Stopped, it answers nothing.
    world.blocking(RocketServer::pause).await;
    let begun = Instant::now();
    let told = publish(&publisher, &many).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let expected = |at: usize| if (1..3).contains(&at) { Kind::Unsent } else { Kind::Unconfirmed };
    assert!(kinds(&told).iter().enumerate().all(|(at, kind)| *kind == Some(expected(at))), "{told:?}");
    world.blocking(RocketServer::resume).await;
}

#[tokio::test]
async fn b29_one_time_is_for_all_messages_and_not_anew_for_each_of_a_chain() {
    let (server, proxy) = behind(Ipv4Addr::new(127, 0, 0, 3)).await;
    let publisher = publisher(&server, 4);
    assert_eq!(kinds(&publish(&publisher, &chain(1)).await), [None]);
    proxy.delay_all(Duration::from_millis(200));
    let begun = Instant::now();
    let told = kinds(&publish(&publisher, &chain(50)).await);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let sent = told.iter().take_while(|kind| kind.is_none()).count();
    assert!((1..25).contains(&sent), "{sent}: {told:?}");
    assert!(told[sent + 1..].iter().all(|kind| *kind == Some(Kind::Unsent)), "{told:?}");
}

#[tokio::test]
async fn b41_what_does_not_arrive_is_sent_again_and_lies_there_once() {
    let (server, proxy) = behind(Ipv4Addr::new(127, 0, 0, 4)).await;
    let publisher = publisher(&server, 30);
    assert_eq!(kinds(&publish(&publisher, &chain(1)).await), [None]);
    for (there, fault) in (1..).zip([Fault::CutBeforeSend, Fault::HalfOpen]) {
        proxy.fail_next_with("not-sent", fault);
        let told = publish(&publisher, &[OutboundMessage::new("away", "not-sent", "{}")]).await;
        assert_eq!(kinds(&told), [None], "{fault:?}: {told:?}");
        within("the fault", proxy.until_met(there)).await;
        assert_eq!(published(&server).await, there + 1, "{fault:?}");
    }
}

#[tokio::test]
async fn b41_what_is_not_answered_is_sent_again_until_it_is_or_else_nobody_knows() {
    let world = World::alone("away").await;
    let (patient, hasty) = (publisher(&world.server, 60), publisher(&world.server, 2));
    for publisher in [&patient, &hasty] {
        assert_eq!(kinds(&publish(publisher, &chain(1)).await), [None]);
    }
    world.blocking(RocketServer::pause).await;
    let told = publish(&hasty, &[OutboundMessage::new("away", "nobody-knows", "{}")]).await;
    assert_eq!(kinds(&told), [Some(Kind::Unconfirmed)], "{told:?}");
    let messages = [OutboundMessage::new("away", "twice", "{}")];
    let sending = publish(&patient, &messages);
    // A try takes 4 s.
    let resume = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.blocking(RocketServer::resume).await;
    };
    let (told, ()) = tokio::join!(sending, resume);
    assert_eq!(kinds(&told), [None], "{told:?}");
    // A broker may drop what has waited for it too long: of the others only this one is known to be there.
    let offset = told[0].as_ref().unwrap().position.as_ref().unwrap().offset.as_deref().unwrap().parse::<u64>();
    assert!((2..published(&world.server).await).contains(&offset.unwrap()), "{told:?}");
}

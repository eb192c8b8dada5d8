//! PgBouncer between a source and the server.
use std::sync::Arc;

use idempotent_core::Timestamp;
use idempotent_harness::servers::PgBouncer;
use idempotent_mq::{
    DeadLetter, DeadLetters, OutboundMessage, Publish, PublishErrorKind, Settlement, Source, SourceErrorKind,
};
use idempotent_pgmq::{PgmqDeadLetters, PgmqPublisher, PgmqSource};

use crate::world::{World, ms, one, pgmq_url, retry, settle};

const TRANSACTION: &str = "pool_mode = transaction\n";

async fn pooler(world: &World, settings: &str) -> (PgBouncer, String) {
    let (server, settings) = (world.database.server.clone(), settings.to_owned());
    let pooler = tokio::task::spawn_blocking(move || PgBouncer::start(&server, &settings)).await.unwrap();
    let url = pgmq_url(&pooler.url_of(&world.database.name));
    (pooler, url)
}

/// Sends, receives and settles in each way.
async fn uses(world: &World, queue: &str, url: &str) {
    let builder = PgmqSource::builder(url, queue).declare().visibility_timeout(ms(60_000)).poll(ms(50));
    let mut source = builder.connect().await.unwrap();
    let (settler, publisher) = (source.settler(), PgmqPublisher::new(url));
    for how in [retry(ms(1)), Settlement::GiveBack, Settlement::Ack] {
        let message = OutboundMessage::new(queue, "m", format!("\"{queue}\""));
        if let Settlement::Retry(_) = how {
            publisher.publish(&[message]).await.pop().unwrap().unwrap();
        }
        let held = one(&mut source).await;
        assert_eq!(held.0.body, format!("\"{queue}\"").into_bytes());
        settler.keep_alive(&[&held.1]).await.unwrap();
        settle(&settler, &held, how).await;
    }
    publisher.publish(&[OutboundMessage::new(queue, "dead", "1")]).await.pop().unwrap().unwrap();
    let held = one(&mut source).await;
    settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))).await;
    let mut letters = PgmqDeadLetters::new(url, queue);
    assert_eq!(letters.count().await.unwrap(), 1);
    letters.next().await.unwrap().unwrap();
    assert!(letters.put_back().await.unwrap());
    assert_eq!(world.number(&format!("SELECT count(*) FROM pgmq.q_{queue}")).await, 1);
}

#[tokio::test]
async fn a_source_works_behind_a_session_pooler() {
    let world = World::new().await;
    let (_pooler, url) = pooler(&world, "pool_mode = session").await;
    uses(&world, "orders", &url).await;
}

#[tokio::test]
async fn a_source_works_with_the_only_server_connection_of_a_session_pooler() {
    let world = World::new().await;
    drop(world.source().await);
    world.send("1").await;
    let (_pooler, url) = pooler(&world, "pool_mode = session\ndefault_pool_size = 1\n").await;
    let mut source = PgmqSource::connect(format!("{url}?connections=1"), "orders").await.unwrap();
    let held = one(&mut source).await;
    settle(&source.settler(), &held, Settlement::Ack).await;
    assert_eq!(world.open().await, 0);
}

/// PgBouncer 1.24 and later keeps prepared statements by default. `cargo xtask nightly` runs this test on such a version. An older
/// one is used with session pooling.
#[tokio::test]
async fn sources_of_several_queues_share_the_connections_of_a_pooler_that_keeps_prepared_statements() {
    let world = Arc::new(World::new().await);
    let kept = format!("{TRANSACTION}default_pool_size = 3\n");
    let is_kept = PgBouncer::keeps_prepared_statements();
    let (_pooler, url) = pooler(&world, if is_kept { &kept } else { "pool_mode = session\n" }).await;
    let queues = ["orders", "payments", "refunds", "parcels"].map(|queue| {
        let (world, url) = (world.clone(), url.clone());
        tokio::spawn(async move { uses(&world, queue, &url).await })
    });
    for queue in queues {
        queue.await.unwrap();
    }
}

/// PgBouncer would pass `LISTEN` on, and the channel would stay with a server connection that other clients use next.
#[tokio::test]
async fn a_source_polls_behind_a_transaction_pooler_and_listens_behind_a_session_pooler() {
    let world = World::new().await;
    drop(world.source().await);
    world.execute("SELECT pgmq.enable_notify_insert('orders')").await;
    let (session, kept) = ("pool_mode = session\n", TRANSACTION);
    let more = if PgBouncer::keeps_prepared_statements() { (kept, false) } else { (session, true) };
    for (settings, listens) in [(session, true), more] {
        let (_pooler, url) = pooler(&world, settings).await;
        let mut source = PgmqSource::connect(url, "orders").await.unwrap();
        assert!(format!("{source:?}").contains(&format!("listens: {listens}")), "{settings}: {source:?}");
        world.send("17").await;
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn a_startup_parameter_that_a_pooler_refuses_is_named_with_the_remedy() {
    let world = World::new().await;
    let (_pooler, url) = pooler(&world, "pool_mode = session").await;
    let url = format!("{url}?options[statement_timeout]=5000");
    let error = PgmqSource::connect(url, "orders").await.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("remove `options`"), "{error}");
}

#[tokio::test]
async fn a_pooler_that_loses_prepared_statements_is_refused_with_the_remedy() {
    let world = World::new().await;
    world.source().await;
    let off = if PgBouncer::keeps_prepared_statements() { "max_prepared_statements = 0\n" } else { "" };
    for more in ["", "server_round_robin = 1\n"] {
        let (_pooler, url) = pooler(&world, &format!("{TRANSACTION}{off}{more}")).await;
        for _ in 0..5 {
            let error = PgmqSource::builder(&*url, "orders").declare().connect().await.map(drop).unwrap_err();
            assert!(
                error.kind() == SourceErrorKind::Fatal && error.to_string().contains("pool_mode=session"),
                "{error}"
            );
            let error = PgmqDeadLetters::new(&*url, "orders").count().await.unwrap_err();
            assert!(error.to_string().contains("max_prepared_statements=100"), "{error}");
            let message = OutboundMessage::new("orders", "m", "1");
            let error = PgmqPublisher::new(&*url).publish(&[message]).await.pop().unwrap().unwrap_err();
            assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("a pooler"), "{error}");
        }
    }
    assert_eq!(world.open().await, 0);
}

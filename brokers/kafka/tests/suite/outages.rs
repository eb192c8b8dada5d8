//! Cut connections, a broker that stops for a while, and rejected commits.
use idempotent_kafka::{KafkaPublisher, KafkaSource};
use idempotent_mq::{OutboundMessage, Publish, Settlement, Source};
use rdkafka::ClientConfig;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::world::{GROUP, World, counting, one, settle, simulated, until_committed};

#[tokio::test]
async fn a_consumer_continues_after_its_broker_refused_connections() {
    let world = World::new(1).await;
    let (handling, mut runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("before").await;
    runs.until(1).await;
    world.between.refuse();
    world.between.cut_all();
    world.between.listen();
    world.send("after").await;
    world.until_committed(0, 2).await;
    running.ended().await.unwrap();
    assert_eq!(runs.number(), 2);
}

#[tokio::test]
async fn a_commit_that_the_broker_rejected_is_repeated_without_another_message() {
    let (cluster, url) = simulated();
    // The client does not repeat a request with this error.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error, error]);
    let mut source = KafkaSource::connect(&*url, "orders", GROUP).await.unwrap();
    let sent = KafkaPublisher::new(&*url).publish(&[OutboundMessage::new("orders", "m-1", "body")]).await;
    sent.into_iter().for_each(|sent| drop(sent.unwrap()));
    let held = one(&mut source).await;
    settle(&source, &held, Settlement::Ack).await;
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", GROUP);
    until_committed(client.create().unwrap(), 0, 1).await;
    source.close().await;
}

//! Commits that the broker rejects.
use idempotent_kafka::{KafkaPublisher, KafkaSource};
use idempotent_mq::{OutboundMessage, Publish, Settlement, Source};
use rdkafka::ClientConfig;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::world::{GROUP, one, settle, simulated, until_committed};

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

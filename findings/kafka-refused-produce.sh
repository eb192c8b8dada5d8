#!/usr/bin/env bash
# A producer of librdkafka after one produce request that the broker refused for lack of a right.
#
# Versions: rdkafka 0.39.0 with rdkafka-sys 4.10.0+2.12.1 (librdkafka 2.12.1) and its simulated cluster. Seen on 2026-11-30.
# Guess: the error belongs to one request. The next message of the same producer, which the broker would accept, is sent and confirmed.
# Seen:  after TOPIC_AUTHORIZATION_FAILED, the next message fails with the same error, although the cluster refuses no second request. A
#        message some 100 ms later is confirmed. After INVALID_RECORD, the next message is confirmed.
# Effect: one refused request also fails messages that the broker would accept. Repeat such a message after a pause, and do not take the
#        error for a fault of the message.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cargo init --quiet --name probe .
cargo add --quiet rdkafka@=0.39.0 --no-default-features --features libz,tokio
cargo add --quiet rdkafka-sys@=4.10.0
cargo add --quiet tokio@1 --features macros,rt,time
cat >src/main.rs <<'RS'
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::time::{Duration, Instant};

async fn sent(producer: &FutureProducer) -> String {
    let record = FutureRecord::<[u8], str>::to("orders").payload("body");
    match producer.send(record, Duration::ZERO).await {
        Ok(_) => "confirmed".to_owned(),
        Err((error, _)) => format!("{:?}", error.rdkafka_error_code().unwrap()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for (name, error) in [
        ("TOPIC_AUTHORIZATION_FAILED", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
        ("INVALID_RECORD", RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD),
    ] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("linger.ms", "0");
        let producer: FutureProducer = config.create().unwrap();
        let first = sent(&producer).await;
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        let refused = sent(&producer).await;
        let start = Instant::now();
        let mut after = vec![];
        while start.elapsed() < Duration::from_secs(20) {
            after.push(sent(&producer).await);
            if after.last().unwrap() == "confirmed" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("{name}: {first}, {refused}, then {after:?}");
        assert_eq!((&*first, &**after.last().unwrap()), ("confirmed", "confirmed"));
        let is_topic = name == "TOPIC_AUTHORIZATION_FAILED";
        assert_eq!(after[0], if is_topic { refused } else { first });
    }
}
RS
cargo run --quiet

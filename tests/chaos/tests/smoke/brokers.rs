//! Consumers of real brokers.
use idempotent_chaos::mq::{Flaw, Kind as Broker};
use idempotent_testkit::history::{History, Kind};

use crate::command::{holds, violated};

/// `cargo xtask test rocketmq` runs this test.
#[cfg(feature = "rocketmq")]
#[test]
fn no_message_of_rocketmq_is_lost_whatever_is_killed_stopped_and_cut() {
    let closing = holds(&["rocketmq", "--seconds", "20", "--seed", "5"]);
    assert!(closing["dead_letters"].as_u64() > Some(0), "{closing}");
}

#[cfg(feature = "kafka")]
#[test]
fn no_message_of_kafka_is_lost_whatever_is_killed_stopped_and_cut() {
    for play in ["kafka", "kafka-retry-topic"] {
        let closing = holds(&[play, "--seconds", "29", "--seed", "5"]);
        assert!(closing["dead_letters"].as_u64() > Some(0), "{closing}");
        assert!(closing["takeovers"].as_u64() > Some(0), "{closing}");
    }
}

#[cfg(feature = "kafka")]
#[test]
fn a_message_of_kafka_that_is_acknowledged_before_its_run_is_found() {
    violated(&["kafka", "--seconds", "29", "--seed", "5", "--weakness", "ack-before-run"], "");
}

#[cfg(feature = "sqs")]
#[test]
fn no_message_of_sqs_is_lost_whatever_is_killed_stopped_and_cut() {
    let closing = holds(&["sqs", "--seconds", "20", "--seed", "5"]);
    assert!(closing["dead_letters"].as_u64() > Some(0), "{closing}");
}

mod extras {
    use super::*;

    #[test]
    fn no_message_of_a_broker_is_lost_whatever_is_killed_stopped_and_cut() {
        for broker in ["rabbitmq", "nats", "pgmq"] {
            let closing = holds(&[broker, "--seconds", "8", "--seed", "5"]);
            assert!(closing["dead_letters"].as_u64() > Some(0), "{closing}");
        }
    }

    #[test]
    fn no_entry_of_a_stream_is_lost_whatever_is_killed_stopped_cut_and_locked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        let arguments = ["redis-streams", "--store", "sqlite", "--seconds", "8", "--seed", "5"];
        let closing = holds(&[&arguments[..], &["--history", file.to_str().unwrap()]].concat());
        assert_eq!(closing["name"].as_str(), Some("redis-streams"));
        let history: History = std::fs::read_to_string(file).unwrap().parse().unwrap();
        let count = |kind| history.lines.iter().filter(|line| line.event == kind).count() as u64;
        assert_eq!(closing["kills"].as_u64(), Some(count(Kind::Crash)));
        assert_eq!(closing["published_keys"].as_u64(), Some(count(Kind::Produced)));
        assert!(count(Kind::DeadLettered) > 0);
    }

    #[test]
    fn a_dead_letter_without_its_headers_is_found() {
        violated(&["redis-streams", "--seconds", "4", "--seed", "1", "--weakness", "bare-dead-letter"], "D1");
    }
}

/// Minutes each: `cargo xtask soak chaos`, which `cargo xtask nightly` runs.
mod soak {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn each_flaw_of_a_worker_or_a_publisher_is_found() {
        for broker in Broker::ALL {
            for flaw in Flaw::ALL {
                let found = violated(&[broker.name(), "--seconds", "10", "--seed", "1", "--weakness", flaw.name()], "");
                println!("{} on {}: {found:?}", flaw.name(), broker.name());
            }
        }
    }
}

//! Members that join, leave, and are killed.
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use idempotent_kafka::KafkaSource;
use idempotent_mq::{Received, Settlement, Source, SourceErrorKind};
use rdkafka::message::OwnedHeaders;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::world::{GROUP, LIMIT, World, builder_at, counting, one, receive, retry, settle, simulated};

/// The variable that contains the URL for the process.
const URL: &str = "IDEMPOTENT_TEST_KAFKA";

/// In a process of the next test, receives five messages, acknowledges one, and waits for the kill.
#[tokio::test]
#[allow(clippy::print_stdout, reason = "the parent process waits for this line")]
async fn member_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let mut source = builder_at(&url).connect().await.unwrap();
    let mut held = Vec::new();
    while held.len() < 5 {
        held.extend(receive(&mut source, 5 - held.len()).await);
    }
    settle(&source, &held[0], Settlement::Ack).await;
    println!("\nholding");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn messages_of_a_killed_process_are_taken_over_and_each_runs_once() {
    let world = World::new(1).await;
    for number in 0..20 {
        world.send(&number.to_string()).await;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rebalances::member_process", "--nocapture"]).env(URL, world.url());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let is_holding = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "holding")).await.unwrap();
    world.until_committed(0, 1).await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(is_holding, "the process has received messages");
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.until_committed(0, 20).await;
    running.ended().await.unwrap();
    assert_eq!(runs.number(), 19, "all but the acknowledged one");
}

/// Receives until partitions are revoked, and returns the numbers of the partitions.
async fn revoked(source: &mut KafkaSource) -> BTreeSet<u32> {
    let waiting = async {
        loop {
            if let Received::Revoked(areas) = source.receive(1).await.unwrap() {
                return areas.into_iter().filter_map(|area| area.partition).collect();
            }
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap()
}

#[tokio::test]
async fn a_second_member_gets_partitions_whose_settled_messages_are_committed_and_old_tags_are_gone() {
    let world = World::new(2).await;
    let mut first = world.source().await;
    let mut held = Vec::new();
    for partition in [0, 1] {
        for number in 0..3 {
            let body = format!("{partition}{number}");
            world.send_to(partition, None, Some(body.as_bytes()), OwnedHeaders::new()).await;
        }
    }
    while held.len() < 6 {
        held.extend(receive(&mut first, 6 - held.len()).await);
    }
    let mut second = world.source().await;
    // Settled just before the rebalance, so no earlier commit contains them.
    for (delivery, tag) in &held {
        if delivery.body.ends_with(b"0") {
            first.settler().settle(delivery, tag, &Settlement::Ack).await.unwrap();
        }
    }
    let moved = revoked(&mut first).await;
    let (delivery, tag) = one(&mut second).await;
    assert_eq!(moved, [delivery.position.partition.unwrap()].into(), "one partition moves");
    assert!(delivery.body.ends_with(b"1"), "the acknowledged message is committed");
    for held in held.iter().filter(|(delivery, _)| !delivery.body.ends_with(b"0")) {
        let settled = first.settler().settle(&held.0, &held.1, &Settlement::Ack).await;
        let is_moved = moved.contains(&held.0.position.partition.unwrap());
        assert_eq!(settled.map_err(|error| error.kind()), if is_moved { Err(SourceErrorKind::Gone) } else { Ok(()) });
    }
    drop((delivery, tag));
}

#[tokio::test]
async fn a_partition_that_was_paused_when_it_was_revoked_is_read_after_its_return() {
    let world = World::new(2).await;
    let mut first = world.source().await;
    for partition in [0, 1] {
        world.send_to(partition, None, Some(b"x"), OwnedHeaders::new()).await;
    }
    for _ in 0..2 {
        let held = one(&mut first).await;
        // The partition pauses until the retry is due, for longer than the test.
        settle(&first, &held, retry(LIMIT * 30)).await;
    }
    let mut second = world.source().await;
    let (moved, taken) = tokio::join!(revoked(&mut first), one(&mut second));
    assert_eq!(taken.0.position.partition.into_iter().collect::<BTreeSet<_>>(), moved);
    second.close().await;
    settle(&second, &taken, Settlement::GiveBack).await;
    let again = one(&mut first).await;
    assert_eq!(again.0.position.partition, taken.0.position.partition);
    settle(&first, &again, Settlement::Ack).await;
}

#[tokio::test]
async fn a_closed_source_stays_a_member_until_its_deliveries_are_settled() {
    let world = World::new(1).await;
    let mut source = world.source().await;
    for body in ["0", "1"] {
        world.send(body).await;
    }
    let (first, second) = (one(&mut source).await, one(&mut source).await);
    source.close().await;
    settle(&source, &second, Settlement::Ack).await;
    // The last settlement waits for the commit and for the end of the membership.
    settle(&source, &first, Settlement::Ack).await;
    assert_eq!(world.committed(0), Some(2));
    let error = source.receive(1).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
    // The other member waits for no session timeout.
    let mut other = world.source().await;
    world.send("2").await;
    assert_eq!(one(&mut other).await.0.body, b"2");
}

#[tokio::test]
async fn a_static_member_continues_after_a_restart() {
    let world = World::new(1).await;
    for body in ["0", "1"] {
        world.send(body).await;
    }
    for number in 0..2 {
        let mut source = world.builder().member("billing-0").connect().await.unwrap();
        let held = one(&mut source).await;
        assert_eq!(held.0.body, number.to_string().into_bytes());
        settle(&source, &held, Settlement::Ack).await;
        source.close().await;
    }
    assert_eq!(world.committed(0), Some(2));
}

#[tokio::test]
async fn a_member_has_joined_with_its_first_assignment_which_may_be_empty() {
    let world = World::new(1).await;
    let mut first = world.source().await;
    tokio::time::timeout(LIMIT, first.joined()).await.unwrap();
    world.send("only").await;
    let held = one(&mut first).await;
    let second = world.source().await;
    tokio::time::timeout(LIMIT, second.joined()).await.unwrap();
    settle(&first, &held, Settlement::Ack).await;
    // A source that has ended never joins.
    let mut third = world.source().await;
    let joined = third.joined();
    third.close().await;
    tokio::time::timeout(LIMIT, joined).await.unwrap();
}

#[tokio::test]
async fn a_static_member_that_restarts_gets_its_partition_back_and_others_keep_theirs() {
    let world = World::new(2).await;
    let member = |name: &str| world.builder().member(name).connect();
    let (mut first, mut second) = (member("billing-0").await.unwrap(), member("billing-1").await.unwrap());
    for partition in [0, 1] {
        world.send_to(partition, None, Some(b"before"), OwnedHeaders::new()).await;
    }
    // Each member receives in a task, because the members wait for each other during a rebalance.
    let (of_first, of_second) = tokio::join!(one(&mut first), one(&mut second));
    let partition = of_first.0.position.partition;
    assert_ne!(partition, of_second.0.position.partition);
    settle(&first, &of_first, Settlement::Ack).await;
    first.close().await;
    let mut first = member("billing-0").await.unwrap();
    for partition in [0, 1] {
        world.send_to(partition, None, Some(b"after"), OwnedHeaders::new()).await;
    }
    let (again, kept) = tokio::join!(one(&mut first), second.receive(1));
    assert_eq!((again.0.position.partition, &*again.0.body), (partition, &b"after"[..]));
    assert!(matches!(kept.unwrap(), Received::Deliveries(_)), "nothing is revoked");
    // The delivery is from before the restart, and still belongs to its member.
    settle(&second, &of_second, Settlement::Ack).await;
}

#[tokio::test]
async fn a_static_member_whose_name_another_process_has_ends_with_the_remedy() {
    let (cluster, url) = simulated();
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    cluster.request_errors(RDKafkaApiKey::JoinGroup, &[fenced]);
    let mut source = KafkaSource::builder(url, "orders", GROUP).member("billing-0").connect().await.unwrap();
    let waiting = async {
        loop {
            if let Err(error) = source.receive(1).await
                && error.kind() == SourceErrorKind::Fatal
            {
                return error.to_string();
            }
        }
    };
    let error = tokio::time::timeout(LIMIT, waiting).await.unwrap();
    assert!(error.contains("another process has the same `member`"), "{error}");
}

#[tokio::test]
async fn a_full_consumer_keeps_its_partitions_and_delivers_the_rest_later() {
    const MESSAGES: usize = 5;
    let world = World::new(2).await;
    let mut source = world.source().await;
    for partition in [0, 1] {
        for _ in 0..MESSAGES {
            world.send_to(partition, None, Some(b"x"), OwnedHeaders::new()).await;
        }
    }
    let first = one(&mut source).await;
    // A source without a request reacts to a rebalance only while it is full, with paused partitions.
    let mut other = world.source().await;
    let moved = one(&mut other).await.0.position.partition;
    let (mut held, mut rest) = (Vec::from([first]), Vec::new());
    held.retain(|(delivery, _)| delivery.position.partition != moved);
    while held.len() + rest.len() < MESSAGES {
        rest.extend(receive(&mut source, MESSAGES).await);
    }
    held.extend(rest);
    let offsets: Vec<_> = held.iter().filter_map(|(delivery, _)| delivery.position.offset.as_deref()).collect();
    assert_eq!(offsets, ["0", "1", "2", "3", "4"]);
    assert!(held.iter().all(|(delivery, _)| delivery.position.partition != moved));
    for held in held.iter().rev() {
        settle(&source, held, Settlement::Ack).await;
    }
    world.until_committed(i32::from(moved == Some(0)), 5).await;
}

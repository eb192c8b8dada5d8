//! The example `redrive`, from outside, on private servers.
use crate::example;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use idempotent::Timestamp;
use idempotent::mq::{DeadLetter, DeadLetters, OutboundMessage, Received, Settlement, Source};
use idempotent::rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::{RabbitServer, RedisServer};

fn redrive(url: &str, more: &[&str]) -> Command {
    let mut command = Command::new(example::binary("redrive"));
    command.args(["--url", url, "--queue", "orders"]).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn next(source: &mut RabbitSource) -> (idempotent::mq::Delivery, <RabbitSource as Source>::Tag) {
    loop {
        let received = tokio::time::timeout(Duration::from_secs(60), source.receive(1)).await.unwrap().unwrap();
        if let Received::Deliveries(mut one) = received
            && !one.is_empty()
        {
            return one.remove(0);
        }
    }
}

fn ready(server: &RabbitServer, queue: &str) -> u64 {
    let ready = server.queues("/", "messages_ready");
    *ready.get(queue).unwrap_or_else(|| panic!("no {queue}: {ready:?}"))
}

/// Waits until the number of dead letters meets the condition and no consumer holds one.
async fn dead(url: &str, so: impl Fn(u64) -> bool) -> u64 {
    let mut letters = RabbitDeadLetters::new(url, "orders").unwrap();
    let start = Instant::now();
    loop {
        let letters = letters.count().await.unwrap();
        if so(letters) {
            return letters;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{letters} lie there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_that_is_killed_loses_nothing_and_the_next_one_puts_the_rest_back() {
    const LETTERS: usize = 400;
    let server = RabbitServer::start();
    let url = server.url();
    let source = || RabbitSource::builder(&url, Queue::classic("orders")).build().unwrap();
    source().declare().await.unwrap();
    // One letter is from the consumer, and the others are from another program.
    let publisher = RabbitPublisher::builder(&url).build().unwrap();
    let body = |number: usize| [&[0xff, 0, b'{'][..], &number.to_be_bytes(), &[7; 4_000]].concat();
    let mut first = source();
    for number in 0..LETTERS {
        let queue = if number > 0 { "orders.dead" } else { "orders" };
        let message = OutboundMessage::new(queue, format!("m-{number}"), body(number)).header("trace", [0xfe, 0, 10]);
        publisher.publish(&message).await.unwrap();
        if number > 0 {
            continue;
        }
        let (delivery, tag) = next(&mut first).await;
        let mut letter = DeadLetter::because("no stock", Timestamp(1_700_000_000_000_000));
        letter.attempts = 17;
        first.settler().settle(&delivery, &tag, &Settlement::DeadLetter(letter)).await.unwrap();
    }
    drop(first);

    let shown = redrive(&url, &["--dry-run", "--limit", "2"]).output().unwrap();
    let lines = "1. m-0, 4011 bytes: no stock; attempt 17, death 1, 2023-11-14T22:13:20Z\n\
                 2. m-1, 4011 bytes: dead-lettered by another program\n2 of 400 would be put back into orders\n";
    assert_eq!((text(&shown), shown.status.success()), (lines.to_owned(), true));
    dead(&url, |letters| letters == 400).await;

    let mut killed = redrive(&url, &[]).spawn().unwrap();
    dead(&url, |letters| letters < 390).await;
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success(), "it was done already: more letters are needed");
    // The held messages are in the queue again after the broker has noticed the kill. Then the numbers are stable.
    let moved = async || ready(&server, "orders") + dead(&url, |_| true).await;
    let start = Instant::now();
    while moved().await < 400 {
        assert!(start.elapsed() < Duration::from_secs(60), "something is lost");
    }
    assert!(moved().await <= 401, "one was under way");
    let rest = dead(&url, |letters| letters > 0).await;
    let done = redrive(&url, &[]).output().unwrap();
    assert_eq!((text(&done), done.status.success()), (format!("{rest} of {rest} put back into orders\n"), true));

    let mut came = BTreeMap::<String, u32>::new();
    let mut again = source();
    for _ in 0..ready(&server, "orders") {
        let (delivery, tag) = next(&mut again).await;
        let id = delivery.id.clone().unwrap();
        assert!(delivery.body == body(id["m-".len()..].parse().unwrap()), "{id}");
        assert_eq!(delivery.headers.first("trace"), Some(&[0xfe, 0, 10][..]));
        assert_eq!((delivery.attempt, delivery.headers.len()), (Some(1), 1));
        again.settler().settle(&delivery, &tag, &Settlement::Ack).await.unwrap();
        *came.entry(id).or_default() += 1;
    }
    assert_eq!((came.len(), came.values().filter(|times| **times > 1).count() <= 1), (LETTERS, true));

    // Nothing to put them back into.
    publisher.publish(&OutboundMessage::new("orders.dead", "m", "x")).await.unwrap();
    drop(again);
    server.ctl(&["delete_queue", "orders"]);
    let failed = redrive(&url, &[]).output().unwrap();
    assert!(!failed.status.success() && text(&failed).starts_with("0 of 1 put back into orders\n"), "{failed:?}");
    assert!(text(&failed).contains("declare it"), "{}", text(&failed));
    dead(&url, |letters| letters == 1).await;
}

#[test]
fn the_letters_of_a_stream_are_moved_back_field_by_field() {
    let server = RedisServer::start();
    let url = server.url();
    let fields: [&[u8]; 6] = [b"trace", b"\xfe\0", b"body", b"\xff{", b"idempotent-deaths", b"1"];
    for _ in 0..3 {
        let command = [&b"XADD"[..], b"orders:dead", b"*"].into_iter().chain(fields);
        server.command(&command.collect::<Vec<_>>());
    }
    // No source would read these messages.
    let failed = redrive(&url, &[]).output().unwrap();
    assert!(!failed.status.success() && text(&failed).starts_with("0 of 3 put back"), "{}", text(&failed));
    server.command(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    let shown = redrive(&url, &["--dry-run"]).output().unwrap();
    assert!(text(&shown).ends_with("3 of 3 would be put back into orders\n"), "{}", text(&shown));
    for (limit, told) in [("1", "1 of 3"), ("9", "2 of 2"), ("9", "0 of 0")] {
        let done = redrive(&url, &["--limit", limit, "--store", &url]).output().unwrap();
        assert_eq!(text(&done), format!("{told} put back into orders\n"));
    }
    let back = server.command(&["XRANGE", "orders", "-", "+"]);
    assert_eq!(back.items().len(), 3);
    for entry in back.items() {
        let flat: Vec<_> = entry.items()[1]
            .items()
            .iter()
            .map(|field| match field {
                idempotent_harness::servers::Value::Bytes(bytes) => &bytes[..],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(flat, fields);
    }
    assert_eq!(server.command(&["XLEN", "orders:dead"]).integer(), Some(0));
}

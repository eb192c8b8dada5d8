//! The delay queue with more and more waiting messages.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent::delay_queue::{DelayMessage, DelayQueue, SettleResult};
use idempotent_harness::servers::RedisServer;

use crate::report::Report;
use crate::sizes::{FLAT, at_size, compare, grouped};

const STORE: &str = "delay queue";
const CASES: [&str; 2] = ["send", "receive and commit"];
const BATCH: usize = 64;

pub async fn waiting(report: &Report) {
    if !CASES.iter().any(|case| report.wants(STORE, case)) {
        return;
    }
    let (numbers, messages) = if report.is_tried() { ([100, 200], 64) } else { ([10_000, 1_000_000], 4_096) };
    let server = RedisServer::start();
    let mut queues = Vec::new();
    for waiting in numbers {
        let queue = DelayQueue::connect(server.url(), &format!("bench{waiting}")).await.unwrap();
        send(&queue, "waiting", waiting, Duration::from_secs(24 * 3_600)).await;
        queues.push(Arc::new(queue));
    }
    // The order of a round is the same for both cases: a queue receives what it was sent before.
    for case in CASES {
        let sizes: Vec<_> = queues
            .iter()
            .map(|queue| {
                let queue = queue.clone();
                at_size(move |round| {
                    let queue = queue.clone();
                    async move {
                        let began = Instant::now();
                        send(&queue, &format!("{case}-{round}"), messages, Duration::ZERO).await;
                        let sent = began.elapsed();
                        let received = receive(&queue, messages).await;
                        if case == CASES[0] { sent } else { received }
                    }
                })
            })
            .collect();
        let pairs = compare(report, 21, messages, &sizes).await;
        let line = format!("{case}, {} waiting, to {}", grouped(numbers[1]), grouped(numbers[0]));
        report.pair((STORE, &line, Some(BATCH)), "ns", pairs[1], FLAT);
    }
}

async fn send(queue: &DelayQueue, name: &str, messages: u64, delay: Duration) {
    for first in (0..messages).step_by(BATCH) {
        let message = |number| DelayMessage::after(delay, "{\"order\": 17}").id(format!("{name}-{number}"));
        let some: Vec<_> = (first..(first + BATCH as u64).min(messages)).map(message).collect();
        assert!(queue.send_all(&some).await.into_iter().all(|sent| sent.unwrap().is_new));
    }
}

async fn receive(queue: &DelayQueue, messages: u64) -> Duration {
    let (mut receiver, began, mut taken) = (queue.receiver(), Instant::now(), 0);
    while taken < messages {
        let some = receiver.receive_now(BATCH).await.unwrap();
        taken += some.len() as u64;
        let committed = queue.commit_all(&some).await.unwrap();
        assert!(committed.iter().all(|closing| *closing == SettleResult::Done));
    }
    began.elapsed()
}

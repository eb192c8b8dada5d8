//! The delay queue.
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use idempotent::Micros;
use idempotent::delay_queue::{Closing, DelayMessage, DelayQueue};
use idempotent_testkit::servers::RedisServer;
use tokio::time::sleep;

use crate::report::{Goal, Report};
use crate::{BATCHES, by_hand, rates};

const STORE: &str = "delay queue";

/// So many messages, due so much later, sent side by side.
async fn fill(queue: &DelayQueue, messages: u64, delay: Duration) {
    for first in (0..messages).step_by(500) {
        let sent = (first..(first + 500).min(messages)).map(async |number| {
            let message = DelayMessage::after(delay, by_hand::body()).id(format!("message-{number}"));
            assert!(queue.send(&message).await.unwrap().is_new);
        });
        join_all(sent).await;
    }
}

/// Beside `ZPOPMIN` and `HGET` in a loop, which is one taker, too.
pub async fn take_and_commit(report: &Report) {
    for (batch, goal) in BATCHES {
        let case = "take and commit";
        if !report.wants(STORE, case) {
            continue;
        }
        let messages = if batch == 1 { 3_000 } else { 20_000 };
        let (rounds, messages) = if report.is_tried() { (1, 200) } else { (15, messages) };
        let server = RedisServer::start();
        let queue = DelayQueue::connect(server.url(), "bench").await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let mut line = client.get_multiplexed_async_connection().await.unwrap();
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            server.command(&["FLUSHALL", "SYNC"]);
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    fill(&queue, messages, Duration::ZERO).await;
                    ours.push(drain(&queue, messages, batch).await);
                } else {
                    by_hand::fill(&mut line, messages).await;
                    floor.push(by_hand::drain(&mut line, messages, batch).await);
                }
            }
        }
        let at = (STORE, case, Some(batch));
        report.pair(at, "messages/s", rates(messages, &ours, &floor), goal);
    }
}

async fn drain(queue: &DelayQueue, messages: u64, batch: usize) -> Duration {
    let mut taker = queue.taker();
    let began = Instant::now();
    let mut taken = 0;
    while taken < messages {
        let some = taker.take_now(batch).await.unwrap();
        assert!(!some.is_empty());
        assert!(queue.commit_all(&some).await.unwrap().iter().all(|closing| *closing == Closing::Done));
        taken += some.len() as u64;
    }
    began.elapsed()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros().try_into().unwrap()
}

/// Of a thousand messages a second that have a time, among many that wait: from its time to its taker. The tick is 1 ms.
pub async fn lateness(report: &Report) {
    let case = "lateness p99 at 1,000 messages/s, 100,000 waiting";
    if !report.wants(STORE, case) {
        return;
    }
    let (waiting, messages) = if report.is_tried() { (1_000, 200) } else { (100_000, 10_000_u64) };
    let server = RedisServer::start();
    let queue = DelayQueue::connect(server.url(), "bench").await.unwrap();
    fill(&queue, waiting, Duration::from_secs(86_400)).await;
    let begin = now() + 1_500_000;
    let sender = queue.clone();
    // Each half a second before its time, as fast as they come due.
    let sending = tokio::spawn(async move {
        for number in 0..messages {
            let due = begin + number * 1_000;
            sleep(Duration::from_micros((due - 500_000).saturating_sub(now()))).await;
            let message = DelayMessage::at(Micros(due), due.to_string()).id(format!("timed-{number}"));
            assert!(sender.send(&message).await.unwrap().is_new);
        }
    });
    let mut taker = queue.taker();
    let mut late = Vec::new();
    while (late.len() as u64) < messages {
        let some = taker.take(64).await.unwrap();
        let now = now();
        for taken in &some {
            let due: u64 = String::from_utf8_lossy(&taken.body).parse().unwrap();
            late.push(now.checked_sub(due).expect("not before its time"));
        }
        queue.commit_all(&some).await.unwrap();
    }
    sending.await.unwrap();
    late.sort_unstable();
    let p99 = late[late.len() * 99 / 100] as f64 / 1_000.0;
    report.value((STORE, case, None), "ms", p99, Goal::AtMost(11.0));
}

//! The delay queue.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use idempotent::Timestamp;
use idempotent::delay_queue::{DelayMessage, DelayQueue, SettleResult};
use idempotent_harness::servers::RedisServer;
use tokio::time::sleep;

use crate::report::{Goal, Report};
use crate::{BATCHES, by_hand, rates};

const STORE: &str = "delay queue";

/// Sends `messages` messages with this delay.
async fn fill(queue: &DelayQueue, messages: u64, delay: Duration) {
    for first in (0..messages).step_by(5_000) {
        let message = |number| DelayMessage::after(delay, by_hand::body()).id(format!("message-{number}"));
        let some: Vec<_> = (first..(first + 5_000).min(messages)).map(message).collect();
        assert!(queue.send_all(&some).await.into_iter().all(|sent| sent.unwrap().is_new));
    }
}

/// Compares with `ZPOPMIN` and `HGET` in a loop, also with one receiver. At 64, this is `ZPOPMIN 64` and one `HMGET` of
/// 64, and in a separate line `ZPOPMIN 64` and 64 `HGET`s in one pipeline.
pub async fn take_and_commit(report: &Report) {
    for (batch, goal) in BATCHES {
        two_steps_or_one(report, batch, goal).await;
    }
}

async fn two_steps_or_one(report: &Report, batch: usize, goal: Goal) {
    let cases = [("take and commit, two steps", false), ("take and commit, one step", true)];
    if !cases.iter().any(|(case, _)| report.wants(STORE, case)) {
        return;
    }
    let messages = if batch == 1 { 3_000 } else { 20_000 };
    let (rounds, messages) = if report.is_tried() { (1, 200) } else { (15, messages) };
    let server = RedisServer::start();
    let queue = DelayQueue::connect(server.url(), "bench").await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut line = client.get_multiplexed_async_connection().await.unwrap();
    let (mut ours, mut floors) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    // A single message is read by the same command in both cases.
    let ways = if batch == 1 { 3 } else { 4 };
    for round in 0..rounds {
        server.command(&["FLUSHALL", "SYNC"]);
        for turn in 0..ways {
            match (round + turn) % ways {
                floor @ 2.. => {
                    by_hand::fill(&mut line, messages).await;
                    floors[floor - 2].push(by_hand::drain(&mut line, messages, batch, floor == 3).await);
                }
                way => {
                    fill(&queue, messages, Duration::ZERO).await;
                    ours[way].push(drain(&queue, messages, batch, cases[way].1).await);
                }
            }
        }
    }
    for ((case, at_once), ours) in cases.iter().zip(&ours) {
        // The goal applies to the best form of the loop.
        let goal = if *at_once { goal } else { Goal::None };
        report.pair((STORE, case, Some(batch)), "messages/s", rates(messages, ours, &floors[0]), goal);
    }
    if batch > 1 {
        let case = "take and commit, one step; by hand with HGET of each";
        report.pair((STORE, case, Some(batch)), "messages/s", rates(messages, &ours[1], &floors[1]), goal);
    }
}

async fn drain(queue: &DelayQueue, messages: u64, batch: usize, at_once: bool) -> Duration {
    let mut receiver = queue.receiver();
    let began = Instant::now();
    let mut some = receiver.receive_now(batch).await.unwrap();
    let mut taken = 0;
    while !some.is_empty() {
        taken += some.len() as u64;
        let (committed, next) = if at_once {
            let next = receiver.commit_and_receive_now(&some, batch).await.unwrap();
            (next.committed.unwrap(), next.taken)
        } else {
            (queue.commit_all(&some).await.unwrap(), receiver.receive_now(batch).await.unwrap())
        };
        assert!(committed.iter().all(|closing| *closing == SettleResult::Done));
        some = next;
    }
    assert_eq!(taken, messages);
    began.elapsed()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros().try_into().unwrap()
}

const SENDERS: u64 = 8;

/// Sends each message a second before its time, as fast as the messages become due. Returns how many were sent after
/// their time.
async fn send_timed(queue: DelayQueue, begin: u64, numbers: impl Iterator<Item = u64>) -> u64 {
    let mut behind = 0;
    for number in numbers {
        let due = begin + number * 1_000;
        sleep(Duration::from_micros((due - 1_000_000).saturating_sub(now()))).await;
        // A time in the past is valid, too: a slow sender shows as a late message.
        let message = DelayMessage::due(Timestamp(due), due.to_string()).id(format!("timed-{number}"));
        assert!(queue.send(&message).await.unwrap().is_new);
        behind += u64::from(now() >= due);
    }
    behind
}

/// Measures the time from the due time of a message to its receiver, with a thousand due messages a second among many
/// waiting ones. The tick is 1 ms.
pub async fn lateness(report: &Report) {
    let case = "lateness p99 at 1,000 messages/s, 100,000 waiting";
    if !report.wants(STORE, case) {
        return;
    }
    let (waiting, messages) = if report.is_tried() { (1_000, 200) } else { (100_000, 10_000_u64) };
    let server = RedisServer::start();
    let queue = DelayQueue::connect(server.url(), "bench").await.unwrap();
    fill(&queue, waiting, Duration::from_secs(86_400)).await;
    let begin = now() + 2_500_000;
    let senders = (0..SENDERS)
        .map(|first| tokio::spawn(send_timed(queue.clone(), begin, (first..messages).step_by(SENDERS as usize))));
    let senders: Vec<_> = senders.collect();
    let mut receiver = queue.receiver();
    let machine = Machine::watch();
    let (mut late, mut some) = (Vec::new(), Vec::new());
    while (late.len() as u64) < messages {
        let next = receiver.commit_and_receive(&some, 64).await.unwrap();
        let now = now();
        assert!(next.committed.unwrap().iter().all(|closing| *closing == SettleResult::Done));
        for taken in &next.taken {
            let due: u64 = String::from_utf8_lossy(&taken.body).parse().unwrap();
            late.push(now.checked_sub(due).expect("not before its time"));
        }
        some = next.taken;
    }
    let mut behind = 0;
    for sender in senders {
        behind += sender.await.unwrap();
    }
    if behind > 0 {
        eprintln!(
            "{behind} of {messages} messages were sent behind their time: the figure is that of busy senders, too"
        );
    }
    let (overslept, most) = machine.overslept();
    eprintln!("meanwhile a thread that sleeps for 1 ms overslept by {overslept:.1} ms (p99), {most:.1} ms at most");
    report.value((STORE, case, None), "ms", p99(late).0, Goal::AtMost(11.0));
}

/// Returns the p99 and the maximum in ms, from µs.
fn p99(mut late: Vec<u64>) -> (f64, f64) {
    late.sort_unstable();
    let ms = |at: usize| late[at] as f64 / 1_000.0;
    (ms(late.len() * 99 / 100), ms(late.len() - 1))
}

/// The lateness of the machine itself, measured by a thread that repeatedly sleeps for 1 ms. If it is late, a late
/// message may be due to the machine.
struct Machine {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Machine {
    fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let tick = Duration::from_millis(1);
        let thread = std::thread::spawn(move || {
            let mut late = Vec::new();
            while late.is_empty() || !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(tick);
                late.push(began.elapsed().saturating_sub(tick).as_micros().try_into().unwrap());
            }
            late
        });
        Self { is_over, thread }
    }

    fn overslept(self) -> (f64, f64) {
        self.is_over.store(true, Ordering::Relaxed);
        p99(self.thread.join().unwrap())
    }
}

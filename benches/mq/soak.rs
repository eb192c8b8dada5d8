//! A check that a worker's memory does not grow: `cargo xtask soak mq`.
//!
//! One worker process with a private RabbitMQ and Redis handles a million messages. Of ten messages, three are
//! duplicates, and one fails at first and is redelivered. The resident memory is read a hundred times at equal
//! distances. The test passes if the maximum of the last half is at most 8 MiB above the maximum of the first tenth, in
//! which all buffers and tables reach their size.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[allow(dead_code, reason = "the bench uses more of this module")]
mod broker;
mod queue;
mod worker;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use idempotent_harness::servers::{RabbitServer, RedisServer};

use crate::queue::Queue;

/// The rise in KiB that counts as flat.
const RISE: u64 = 8 * 1024;
/// The number of messages published ahead of the worker.
const AHEAD: u64 = 20_000;
const STEP: u64 = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [word, rabbit, redis] if word == worker::WORD => {
            worker::run(rabbit, redis);
            ExitCode::SUCCESS
        }
        [messages] => {
            let messages = messages.parse().expect("a number of messages");
            judge(&soak(messages), messages)
        }
        // In `cargo test`, a functional test that is too short for a verdict.
        _ => {
            assert!(!soak(3_000).is_empty());
            ExitCode::SUCCESS
        }
    }
}

fn soak(messages: u64) -> Vec<Sample> {
    let (rabbit, redis) = (RabbitServer::start(), RedisServer::start());
    let (url, (told, progress)) = (rabbit.url(), mpsc::channel());
    let worker = Worker::start(&url, &redis.url(), told);
    let publishing = thread::spawn(move || publish(&url, messages, &progress, worker));
    publishing.join().unwrap()
}

/// The memory of the worker after a number of messages.
struct Sample {
    done: u64,
    kib: u64,
}

/// Keeps the queue filled, and reads the worker's memory in the meantime.
fn publish(url: &str, messages: u64, progress: &mpsc::Receiver<u64>, worker: Worker) -> Vec<Sample> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let queue = runtime.block_on(Queue::declared(url));
    let (every, print) = ((messages / 100).max(1), (messages / 10).max(1));
    let (mut samples, mut sent, mut done, began) = (Vec::new(), 0, 0, Instant::now());
    println!("{:>9}  {:>9}  {:>10}", "messages", "seconds", "RSS in KiB");
    while done < messages {
        while sent < messages && sent < done + AHEAD {
            let some = STEP.min(messages - sent);
            // Three of ten ids repeat recent messages.
            runtime.block_on(queue.fill(sent, some, |number| if number % 10 < 3 { number / 10 * 10 } else { number }));
            sent += some;
        }
        let now = progress.recv().expect("the worker goes on");
        if now / every > done / every || now >= messages {
            samples.push(Sample { done: now, kib: worker.resident() });
        }
        if now / print > done / print || now >= messages {
            println!("{now:>9}  {:>9.0}  {:>10}", began.elapsed().as_secs_f64(), worker.resident());
        }
        done = now;
    }
    samples
}

fn judge(samples: &[Sample], messages: u64) -> ExitCode {
    let most = |from: u64, to: u64| {
        let within = samples.iter().filter(|sample| (from..=to).contains(&sample.done));
        within.map(|sample| sample.kib).max().unwrap_or_default()
    };
    let (first, last) = (most(0, messages / 10 + messages / 100), most(messages / 2, u64::MAX));
    let flat = last <= first + RISE;
    let verdict = if flat { "flat" } else { "NOT flat" };
    println!(
        "soak mq: {verdict}: at most {last} KiB in the last half, {first} KiB in the first tenth, {RISE} KiB more are allowed"
    );
    if flat { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This program, started as a worker. Dropping the value ends it.
struct Worker(Child);

impl Worker {
    fn start(rabbit: &str, redis: &str, told: mpsc::Sender<u64>) -> Self {
        let mut worker = Command::new(std::env::current_exe().unwrap());
        let mut child = worker.args([worker::WORD, rabbit, redis]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if told.send(line.parse().unwrap()).is_err() {
                    return;
                }
            }
        });
        Self(child)
    }

    /// Returns the resident memory in KiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("of a process that runs");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Four processes on one queue of RabbitMQ, with keys in Redis and effects in one place, without kills.
use std::collections::HashSet;
use std::fmt::Write;
use std::time::Instant;

use idempotent_harness::servers::RedisServer;

use crate::consume::queues::RABBIT;
use crate::consume::support::Job;

const PROCESSES: usize = 4;

/// Returns the key of a message. Of ten messages, three are duplicates: two directly after the original, and one much
/// later.
fn key(number: u64, all: u64) -> u64 {
    match number % 10 {
        3 | 7 => number - 1,
        9 => (number + all / 2) % all / 10 * 10,
        _ => number,
    }
}

#[allow(clippy::print_stdout, reason = "how long it took, and who had how much of it")]
fn fleet(messages: u64) {
    let queue = format!("fleet-{messages}");
    let mut lines = String::new();
    for number in 0..messages {
        writeln!(lines, "{{\"delivery_id\":{},\"copy\":{number}}}", key(number, messages)).unwrap();
    }
    let keys: HashSet<_> = (0..messages).map(|number| key(number, messages)).collect();
    assert_eq!(keys.len() as u64, messages * 7 / 10);
    let (redis, job) = (RedisServer::start(), Job::over(lines.as_bytes()));
    let source = format!("rabbitmq://guest:guest@{}/?queue={queue}", RABBIT.address());
    let on = ["--json", "--store", &redis.url(), "--workers", "16", "--source", &source, "--idle", "15s"];
    let began = Instant::now();
    // One fills the queue: the others are there before, so that each has its share.
    let others = (1..PROCESSES).map(|_| job.spawn(&on)).collect::<Vec<_>>();
    let consumed = || RABBIT.queues("/", "consumers").get(&queue).is_some_and(|count| *count == PROCESSES as u64 - 1);
    crate::wait::until("the others consume", consumed);
    let fills = job.spawn(&[&on[..], &["--publish", "in.jsonl"]].concat());
    let ended: Vec<_> = others.into_iter().chain([fills]).map(|running| running.ended().exits(0)).collect();
    let took = began.elapsed();
    let sums = ended.iter().map(|ended| ended.counts(["deliveries", "executed", "replayed", "failed"]));
    let sums: Vec<_> = sums.collect();
    let sum = |at: usize| sums.iter().map(|sums| sums[at]).sum::<u64>();
    println!("{messages} messages by {PROCESSES} processes in {took:.1?}: {sums:?}");
    // A message whose confirm stays out, as while a disk is busy, is sent once more.
    assert!(sum(0) >= messages, "{sums:?}");
    assert_eq!((sum(1), sum(2)), (keys.len() as u64, sum(0) - keys.len() as u64), "{sums:?}");
    assert!(sums.iter().all(|[deliveries, ..]| *deliveries > 0), "each had its share: {sums:?}");
    let effects = job.effects();
    assert_eq!(effects.len(), keys.len());
    let twice: Vec<_> = effects.iter().filter(|(_, rows)| **rows != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(keys.iter().all(|key| effects.contains_key(&key.to_string())));
    let left = RABBIT.queues("/", "messages").into_iter();
    let left: Vec<_> = left.filter(|(name, count)| name.starts_with(&queue) && *count > 0).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `cargo xtask soak released` runs the same test on release builds.
mod extras {
    #[test]
    fn each_key_of_100_000_messages_with_30_percent_duplicates_has_one_effect_by_four_processes() {
        super::fleet(100_000);
    }
}

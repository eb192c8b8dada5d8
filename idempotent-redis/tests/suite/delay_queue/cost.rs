//! The cost of a message: server time, as reported by the server, and memory.
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{DelayMessage, DelayQueue};

use crate::delay_queue::world::MINUTE;

const BODY: usize = 100;
/// Maximum memory of a message without an id, in bytes.
const MOST: u64 = (BODY as u64 + 200) * 13 / 10;

/// Sends waiting messages with the given numbers.
async fn fill(queue: &DelayQueue, from: u32, to: u32, named: bool) {
    for some in (from..to).collect::<Vec<_>>().chunks(500) {
        let sent = join_all(some.iter().map(async |number| {
            // Due times are spread, so that later messages are inserted between them.
            let later = Duration::from_secs(3_600 + u64::from(number.wrapping_mul(7_919) % 100_000));
            let message = DelayMessage::after(later, vec![b'x'; BODY]);
            let id = format!("order-{number:010}");
            queue.send(&if named { message.id(id) } else { message }).await.unwrap();
        }));
        sent.await;
    }
}

/// Returns the server time per script call during `work`, in µs.
async fn spent(server: &RedisServer, work: impl AsyncFnOnce()) -> f64 {
    server.command(&["CONFIG", "RESETSTAT"]);
    work().await;
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    line.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
}

/// Returns the server time to send and to take a message, in µs: the least of five rounds, since a busy machine prolongs some.
async fn send_and_take(server: &RedisServer, queue: &DelayQueue) -> (f64, f64) {
    let (mut least_sent, mut least_took) = (f64::MAX, f64::MAX);
    for round in 0..5 {
        let sent = spent(server, async || {
            for number in 0..200 {
                let message = DelayMessage::after(Duration::ZERO, vec![b'y'; BODY]).id(format!("now-{round}-{number}"));
                queue.send(&message).await.unwrap();
            }
        });
        least_sent = least_sent.min(sent.await);
        let mut receiver = queue.receiver();
        let mut taken = Vec::new();
        let took = spent(server, async || {
            for _ in 0..200 {
                taken.extend(receiver.receive_now(1).await.unwrap());
            }
        });
        least_took = least_took.min(took.await);
        assert_eq!(taken.len(), 200);
        queue.commit_all(&taken).await.unwrap();
    }
    (least_sent, least_took)
}

fn used_memory(server: &RedisServer) -> u64 {
    server.info("used_memory").parse().unwrap()
}

/// Fills a queue in these steps. Checks the memory of a message, and that the server time to send and to take one does
/// not grow.
async fn costs_the_same(server: &RedisServer, steps: &[u32]) -> DelayQueue {
    let queue = DelayQueue::builder(server.url(), "orders").visibility(MINUTE * 60).connect().await.unwrap();
    let (before, mut filled, mut first) = (used_memory(server), 0, None);
    for many in steps.iter().copied() {
        fill(&queue, filled, many, false).await;
        filled = many;
        let each = (used_memory(server) - before) / u64::from(many);
        let (sent, took) = send_and_take(server, &queue).await;
        println!(
            "{many} wait: {sent:.1} µs of the server's to send, {took:.1} to take; {each} bytes a message with a body of \
             {BODY}, {MOST} allowed"
        );
        assert!(each <= MOST, "{each} bytes are more than {MOST}");
        // Ten times as many messages need three or four more comparisons. A linear cost would be ten times as high.
        let (sent_first, took_first) = *first.get_or_insert((sent, took));
        assert!(sent < 3.0 * sent_first && took < 3.0 * took_first, "the cost grows with the queue");
    }
    queue
}

#[tokio::test]
async fn the_cost_of_a_message_does_not_depend_on_the_queue_length() {
    let server = RedisServer::start();
    let queue = costs_the_same(&server, &[10_000, 100_000]).await;
    let before = used_memory(&server);
    // As many as fill a hash table of 2^14 to the same degree as 100,000 fill one of 2^17.
    fill(&queue.for_topic("named").unwrap(), 0, 12_500, true).await;
    let named = (used_memory(&server) - before) / 12_500;
    // An id is stored twice, once as an index.
    let most = MOST + 2 * 16 + 64;
    assert!(named <= most, "{named} bytes for a message with an id of 16 bytes are more than {most}");
}

/// Run by `cargo xtask soak delivery`.
#[tokio::test]
#[ignore = "takes minutes"]
async fn the_cost_of_a_message_is_the_same_among_a_million() {
    costs_the_same(&RedisServer::start(), &[10_000, 100_000, 1_000_000]).await;
}

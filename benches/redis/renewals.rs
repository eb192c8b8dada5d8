//! The cost of a heartbeat for the server.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Json, Rejection};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_testkit::VirtualClock;
use tokio::sync::Notify;

use crate::calls::{calls, forget};
use crate::report::{Goal, Report, median};
use crate::{keys, ours, server_name};

const LEASES: u64 = 10_000;
const TICKS: usize = 21;
/// The default heartbeat: a third of the lease.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Measures waiting runs with leases by the server's clock. The executor's clock is moved from heartbeat to heartbeat.
pub async fn all(report: &Report, server: &RedisServer) {
    let (count, longest) = ("script calls to renew 10,000 leases", "longest of them");
    if !report.wants(server_name(), count) && !report.wants(server_name(), longest) {
        return;
    }
    let (leases, ticks) = if report.is_tried() { (600, 1) } else { (LEASES, TICKS) };
    server.command(&["FLUSHALL", "SYNC"]);
    let clock = VirtualClock::new();
    let store = ours::store(server, None).await;
    let executor = Executor::builder(store).clock(Arc::new(clock.clone())).build().unwrap();
    let (go, begun) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
    let run = |number| {
        let (executor, go, begun) = (executor.clone(), go.clone(), begun.clone());
        tokio::spawn(async move {
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
                let over = go.notified();
                begun.fetch_add(1, Ordering::Relaxed);
                over.await;
                Ok::<(), Rejection>(())
            });
            executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
        })
    };
    let runs: Vec<_> = (0..leases).map(run).collect();
    until(|| begun.load(Ordering::Relaxed) == leases).await;
    // Every command is slow enough for the log.
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    server.command(&["CONFIG", "SET", "slowlog-max-len", "10000"]);
    let (mut counts, mut times) = (Vec::new(), Vec::new());
    // In the first tick, the server does not know the script.
    for tick in 0..=ticks {
        forget(server);
        server.command(&["SLOWLOG", "RESET"]);
        clock.jump(HEARTBEAT);
        until(|| calls(server, "set") >= leases).await;
        if tick > 0 {
            counts.push(calls(server, "evalsha") as f64 + calls(server, "eval") as f64);
            times.push(slowest(server));
        }
    }
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"]);
    go.notify_waiters();
    for run in runs {
        run.await.unwrap();
    }
    // One call for each 256 leases.
    let most = leases.div_ceil(256) as f64;
    let worst = times.iter().copied().fold(0.0, f64::max);
    report.value((server_name(), count, None), "calls", counts.into_iter().fold(0.0, f64::max), Goal::AtMost(most));
    report.value((server_name(), longest, None), "ms", worst, Goal::AtMost(2.0));
    report.value((server_name(), "longest of them, of half the ticks", None), "ms", median(times), Goal::None);
}

async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the longest execution time of the server's own log, in ms.
fn slowest(server: &RedisServer) -> f64 {
    let Value::Array(entries) = server.command(&["SLOWLOG", "GET", "10000"]) else { panic!("no log") };
    let time = |entry: &Value| match entry {
        Value::Array(fields) => match (&fields[2], &fields[3]) {
            (Value::Integer(micros), Value::Array(words)) if is_script(&words[0]) => *micros,
            _ => 0,
        },
        _ => 0,
    };
    entries.iter().map(time).max().unwrap() as f64 / 1_000.0
}

fn is_script(word: &Value) -> bool {
    matches!(word, Value::Bytes(name) if name.starts_with(b"EVAL"))
}

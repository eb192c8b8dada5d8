//! Larger and larger results, which are stored and compared with the fingerprint of a request of the same size.
use std::sync::Arc;

use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Fingerprint, Handler, Json, MemoryStore, Policy, RedisStore, Rejection, Scene};
use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Pair, Report, drive};
use crate::runs;
use crate::sizes::{FLAT, at_size, compare, grouped};

const CASES: [&str; 2] = ["run with a result of", "duplicate with a result of"];
/// Sizes in bytes. The last two are compared by the byte.
const SIZES: [usize; 5] = [100, 1_024, 10_240, 102_400, 1_048_576];
const TASKS: u64 = 4;

pub async fn all(report: &Report) {
    let wanted = |store| CASES.iter().any(|case| report.wants(store, case));
    let policy = Policy::of(&Scene::Rest).max_result(2 << 20);
    if wanted("memory") {
        let executor = Executor::builder(MemoryStore::new()).policy(Scene::Rest, policy).build().unwrap();
        of(report, "memory", &executor).await;
    }
    if wanted("redis") {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
        let executor = Executor::builder(store).policy(Scene::Rest, policy).build().unwrap();
        of(report, "redis", &executor).await;
    }
}

async fn of(report: &Report, name: &'static str, executor: &Executor) {
    let operations = if report.is_tried() { 4 } else { 32 };
    for case in CASES {
        let sizes: Vec<_> = SIZES
            .iter()
            .map(|size| {
                let (executor, body) = (executor.clone(), Arc::<str>::from("a".repeat(*size)));
                at_size(move |round| {
                    let (executor, body) = (executor.clone(), body.clone());
                    // Each size and round has keys of its own, and the duplicates are those of the runs.
                    let from = ((body.len() as u64) << 32) + round * operations;
                    let operation = move |number| store(executor.clone(), body.clone(), number);
                    async move { drive(TASKS, from, operations, &Arc::new(operation)).await }
                })
            })
            .collect();
        let pairs = compare(report, 11, operations, &sizes).await;
        for (size, pair) in SIZES.iter().zip(&pairs).skip(1) {
            let line = format!("{case} {} bytes, to {}", grouped(*size as u64), SIZES[0]);
            report.pair((name, &line, usize::try_from(TASKS).ok()), "ns", *pair, Goal::None);
        }
        let by_the_byte = |at: usize| pairs[at].value / SIZES[at] as f64;
        let (value, floor) = (by_the_byte(4), by_the_byte(3));
        let line = format!("{case} {} bytes, by the byte, to {}", grouped(SIZES[4] as u64), grouped(SIZES[3] as u64));
        report.pair(
            (name, &line, usize::try_from(TASKS).ok()),
            "ns",
            Pair { value, floor, ratio: value / floor },
            FLAT,
        );
    }
}

/// Runs a handler whose result is as large as its request.
async fn store(executor: Executor, body: Arc<str>, number: u64) {
    let call = Call::new(runs::identity(number)).fingerprint(Ok(Fingerprint::of_bytes(&*body)));
    let result = body.clone();
    let handler =
        Handler::<DefaultReply, Json, _, _>::new(|| async move { Ok::<String, Rejection>(result.as_ref().to_owned()) });
    assert_eq!(executor.run(call, handler).await.unwrap().len(), body.len());
}

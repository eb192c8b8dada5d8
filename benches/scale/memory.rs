//! The memory of records that the store writes.
use std::sync::Arc;
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::store::{Claim, ClaimRequest};
use idempotent::{Call, Executor, Fingerprint, Handler, Json, RedisStore, Rejection, Store};
use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Report, drive};
use crate::{REDIS, keys, ours};

const RECORDS: u64 = 100_000;
/// A namespace with which storage keys have 40 characters.
const NAMESPACE: &str = "orders";
const EMPTY: &str = "memory of an empty server";
const TASKS: u64 = 64;

/// The form of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Consumed,
    Fingerprint,
    /// A consumed record with a result of this encoded length.
    Result(usize),
    InFlight,
}

const FORMS: [(Form, &str); 5] = [
    (Form::Consumed, "memory of a consumed record"),
    (Form::Fingerprint, "memory of one with a fingerprint"),
    (Form::Result(100), "memory of one with a result of 100 B"),
    (Form::Result(500), "memory of one with a result of 500 B"),
    (Form::InFlight, "memory of a record in flight"),
];

pub async fn all(report: &Report) {
    if !report.wants(REDIS, EMPTY) && !FORMS.iter().any(|(_, case)| report.wants(REDIS, case)) {
        return;
    }
    // Memory is freed at once; otherwise it would be counted in the next measurement.
    let lazy = ["--lazyfree-lazy-user-flush", "no", "--lazyfree-lazy-user-del", "no"];
    let server = RedisServer::builder().args(lazy).start();
    let records = if report.is_tried() { 1_000 } else { RECORDS };
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let executor = Executor::builder(store.clone()).namespace(NAMESPACE).build().unwrap();
    assert_eq!(keys::identity(0).key(NAMESPACE).unwrap().as_str().len(), 40);
    report.value((REDIS, EMPTY, None), "B", used(&server).await, Goal::None);
    for (form, case) in FORMS {
        let (executor, store) = (executor.clone(), store.clone());
        let write = Arc::new(move |number| write(form, executor.clone(), store.clone(), number));
        // The scripts and the buffers of the connection exist before the measurement.
        drive(TASKS, records, records / 10, &write).await;
        server.command(&["FLUSHALL", "SYNC"]);
        let before = used(&server).await;
        drive(TASKS, 0, records, &write).await;
        assert_eq!(server.command(&["DBSIZE"]).integer(), Some(records as i64));
        report.value((REDIS, case, None), "B", (used(&server).await - before) / records as f64, Goal::None);
    }
}

async fn write(form: Form, executor: Executor, store: RedisStore, number: u64) {
    match form {
        Form::Consumed => ours::run(executor, number).await,
        Form::Fingerprint => {
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
            let call = Call::new(keys::identity(number)).fingerprint(Ok(Fingerprint::of_bytes(keys::text(number))));
            executor.run(call, handler).await.unwrap();
        }
        Form::Result(length) => {
            // JSON adds two quotation marks.
            let result = "r".repeat(length - 2);
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async move { Ok::<String, Rejection>(result) });
            executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
        }
        Form::InFlight => {
            let mut request = ClaimRequest::new(keys::identity(number).key(NAMESPACE).unwrap()).unwrap();
            request.lease = Duration::from_secs(3_600);
            assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
        }
    }
}

/// Returns the allocated memory when two readings are equal, because the table of keys is resized gradually.
async fn used(server: &RedisServer) -> f64 {
    let used = || server.info("used_memory").parse::<f64>().unwrap();
    let mut last = used();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = used();
        if (now - last).abs() < 8_192.0 {
            return now;
        }
        last = now;
    }
}

//! A server whose memory is full, and a server whose script cache is flushed.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{Disposition, Outcome, Policy, State, StateKind, Store, StoreErrorKind};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{RedisStore, RedisStoreBuilder};
use tokio::task::JoinSet;

use crate::support::runs::{End, Job, Worker, lease_end, record, secs};
use crate::support::{ask, calls, open, open_without_cache, until};

fn set(server: &RedisServer, bytes: &str) {
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", bytes]).text(), "OK");
}

/// The test uses the scripts of Redis 7, which declare flags, and those of Redis 6.2, which use a workaround.
#[tokio::test]
async fn full_memory_delays_claims_and_lets_runs_end() {
    let forms: [fn(RedisStoreBuilder) -> RedisStoreBuilder; 2] = [|builder| builder, RedisStoreBuilder::plain_scripts];
    for form in forms {
        let server = RedisServer::builder().args(["--maxmemory-policy", "noeviction"]).start();
        let store = form(RedisStore::builder(server.url())).cache(None).connect().await.unwrap();
        let worker = Worker::new(store.clone(), Policy::new().lease(secs(6)));
        let jobs = ["completes", "fails", "goes on"].map(|part| (part, Job::held()));
        let mut runs = Vec::new();
        for (part, job) in &jobs {
            runs.push(worker.begin(part, job).await);
        }
        assert_eq!(worker.outcome("done", &Job::quick()).await, Outcome::Ran);
        set(&server, "1");

        let error = store.claim(&ask("new", 1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
        assert!(error.to_string().contains("the server's memory is full"), "{error}");
        let new = Job::quick();
        let put_off = worker.outcome("new", &new).await;
        assert_eq!(put_off, Outcome::StoreDown(StoreErrorKind::NotApplied));
        assert_eq!((put_off.disposition(), new.runs()), (Disposition::Retry { after: secs(1) }, 0));

        let end = lease_end(&store, "goes on").await;
        until("a renewal", async || lease_end(&store, "goes on").await > end).await;
        for ((_, job), end) in jobs.iter().zip([End::Ok, End::Err, End::Ok]) {
            job.end(end);
        }
        let mut outcomes = Vec::new();
        for run in runs {
            outcomes.push(run.await.unwrap().0.name());
        }
        assert_eq!(outcomes, ["ran", "released", "ran"]);
        assert_eq!([worker.failed("complete"), worker.failed("release"), worker.failed("renew")], [0; 3]);
        let Some(State::Consumed { value, .. }) = record(&store, "completes").await.map(|found| found.state) else {
            panic!()
        };
        assert_eq!(value.as_deref(), Some(&b"1"[..]), "with its result");
        assert_eq!(record(&store, "fails").await.unwrap().state.kind(), StateKind::Vacant);
        assert_eq!(record(&store, "new").await, None);

        // The message is deferred, not lost.
        set(&server, "0");
        assert_eq!(worker.outcome("new", &new).await, Outcome::Ran);
        assert_eq!(new.attempts(), [1]);
    }
}

/// The test uses both dialects of the scripts.
#[tokio::test]
async fn full_memory_lets_order_tables_shrink_and_not_grow() {
    let forms: [fn(RedisStoreBuilder) -> RedisStoreBuilder; 2] = [|builder| builder, RedisStoreBuilder::plain_scripts];
    for form in forms {
        let server = RedisServer::builder().args(["--maxmemory-policy", "noeviction"]).start();
        let store = form(RedisStore::builder(server.url())).cache(None).connect().await.unwrap();
        let (order, stream, keep) = (store.capabilities().order.unwrap(), ask("stream", 1).key, secs(60));
        assert!(order.compare_and_swap(&stream, None, b"first", keep).await.unwrap());
        set(&server, "1");
        assert!(order.compare_and_swap(&stream, Some(b"first"), b"other", keep).await.unwrap());
        assert!(
            !order.compare_and_swap(&stream, Some(b"first"), b"late", keep).await.unwrap(),
            "another has changed it"
        );
        assert!(order.compare_and_swap(&stream, Some(b"other"), b"less", keep).await.unwrap());
        let fresh = ask("another stream", 1).key;
        for (stream, seen, next) in [(&stream, Some(&b"less"[..]), &b"longer"[..]), (&fresh, None, b"new")] {
            let error = order.compare_and_swap(stream, seen, next, keep).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
            assert!(error.to_string().contains("the server's memory is full"), "{error}");
        }
        assert_eq!(order.load(&stream).await.unwrap().table.as_deref(), Some(&b"less"[..]));
    }
}

/// The cache knows another process's key without a command.
#[tokio::test]
async fn full_memory_does_not_affect_duplicates_of_cached_keys() {
    let server = RedisServer::start();
    let (worker, job) = (Worker::new(open(&server).await, Policy::new()), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    set(&server, "1");
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
}

/// Repeatedly under load: no caller notices, and each flush costs one more call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_flushed_script_cache_gets_the_scripts_again() {
    let server = Arc::new(RedisServer::start());
    let over = Arc::new(AtomicBool::new(false));
    let flushing = std::thread::spawn({
        let (server, over) = (server.clone(), over.clone());
        move || {
            let (mut connection, mut times) = (server.connect(), 0);
            while !over.load(SeqCst) {
                assert_eq!(connection.ask(&["SCRIPT", "FLUSH"]).unwrap().text(), "OK");
                times += 1;
                std::thread::sleep(Duration::from_millis(3));
            }
            times
        }
    });
    let worker = Worker::new(open_without_cache(&server).await, Policy::new());
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let worker = worker.clone();
        tasks.spawn(async move {
            for round in 0..60 {
                let (part, failing, job) = (format!("{task}-{round}"), Job::ends(End::Err), Job::quick());
                assert!(matches!(worker.outcome(&part, &failing).await, Outcome::Released { .. }));
                assert_eq!(worker.outcome(&part, &job).await, Outcome::Ran);
                assert_eq!(worker.outcome(&part, &job).await, Outcome::Replayed);
                assert_eq!((job.runs(), job.attempts()), (1, vec![2]));
            }
        });
    }
    tasks.join_all().await;
    over.store(true, SeqCst);
    let flushed = flushing.join().unwrap();
    assert!(flushed > 20 && calls(&server, "eval") > 20, "{flushed} times, sent {} times", calls(&server, "eval"));
    for step in ["claim", "complete", "release", "renew"] {
        assert_eq!(worker.failed(step), 0, "{step}");
    }
}

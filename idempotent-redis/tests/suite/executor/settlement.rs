//! Ends of runs: failures, an unreachable store, changed payloads, attempts.
use std::sync::{Arc, Mutex};

use idempotent_core::{
    BatchItem, Call, DefaultReply, Disposition, Fingerprint, Handler, Json, OnStoreError, Outcome, Policy, Rejection,
    StateKind, SystemClock,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use idempotent_testkit::{FaultStore, StoreCall, StoreOperation};

use crate::support::runs::{AppError, End, Job, Worker, assert_in_flight, id, lease_end, raw, record, secs};
use crate::support::{key, open, open_without_cache, until};

/// Creates a worker with a proxy.
async fn far(server: &RedisServer, policy: Policy) -> (Proxy, Worker) {
    let proxy = Proxy::start(&server.address()).await;
    let store = RedisStore::connect(proxy.url()).await.unwrap();
    (proxy, Worker::new(store, policy))
}

/// A failure is not recorded as done, and the key can be claimed again at once.
#[tokio::test]
async fn a_failed_run_frees_its_key() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for (part, policy) in [("vacant", Policy::new()), ("absent", Policy::new().max_retries(Policy::NO_LIMIT))] {
        let (worker, job) = (Worker::new(store.clone(), policy), Job::ends(End::Err));
        assert!(matches!(worker.outcome(part, &job).await, Outcome::Released { .. }));
        assert_eq!(record(&store, part).await.is_none(), part == "absent");
        assert!(matches!(worker.outcome(part, &job).await, Outcome::Released { .. }));
        assert_eq!(job.runs(), 2);
    }
}

/// A failed completion is neither ignored nor final.
#[tokio::test]
async fn a_completion_that_fails_once_is_retried() {
    let server = RedisServer::start();
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply] {
        let part = format!("{fault:?}");
        let (proxy, worker) = far(&server, Policy::new()).await;
        let job = Job::held();
        let run = worker.begin(&part, &job).await;
        proxy.fail_next_with(key(&part).as_str(), fault);
        job.end(End::Ok);
        assert_eq!(run.await.unwrap().0, Outcome::Ran);
        assert_eq!((proxy.met(), worker.failed("complete")), (1, 1));
        let other = Worker::new(open(&server).await, Policy::new());
        assert_eq!(other.outcome(&part, &job).await, Outcome::Replayed);
        assert_eq!(job.runs(), 1);
    }
}

/// An unrecorded completion never counts as a success.
#[tokio::test]
async fn a_completion_that_keeps_failing_is_neither_acknowledged_nor_released() {
    let server = RedisServer::start();
    let near = open_without_cache(&server).await;
    let policy = Policy::new().lease(secs(3));
    let ((proxy, a), b) = (far(&server, policy).await, Worker::new(near.clone(), policy));
    let job = Job::held();
    let run = a.begin("k", &job).await;
    proxy.refuse();
    proxy.cut_all();
    job.end(End::Ok);
    let (outcome, answer) = run.await.unwrap();
    assert_eq!(outcome, Outcome::Unrecorded);
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Unrecorded { cause: Some(_) }))), "{answer:?}");
    assert!(a.failed("complete") > 1, "tried more than once");
    assert!(matches!(outcome.disposition(), Disposition::Retry { .. }), "never acked");
    // The worker has given up, but the lease continues: the key is not released.
    let end = lease_end(&near, "k").await;
    let (outcome, _) = b.redeliver("k", &job).await;
    assert_eq!((outcome, job.runs()), (Outcome::Ran, 2), "crash point 6 given up");
    assert!(job.fencing()[1].0 >= end);
}

/// No error counts as a duplicate or as permission to run.
#[tokio::test]
async fn no_handler_runs_while_the_store_is_down() {
    let server = RedisServer::builder().aof().start();
    let (worker, job) = (Worker::new(open(&server).await, Policy::new()), Job::quick());
    server.kill();
    let (outcome, answer) = worker.deliver("k", &job).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Store(_)))), "{answer:?}");
    assert_eq!((job.runs(), outcome.disposition()), (0, Disposition::Retry { after: secs(1) }));
    server.restart();
    until("the store is back", async || worker.outcome("k", &job).await == Outcome::Ran).await;
    assert_eq!((job.runs(), job.attempts()), (1, vec![1]));
}

#[tokio::test]
async fn unprotected_runs_must_be_enabled_and_are_counted() {
    let server = RedisServer::start();
    let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
    let (worker, job) = (Worker::new(open(&server).await, policy), Job::quick());
    server.kill();
    assert_eq!(worker.outcome("k", &job).await, Outcome::Unprotected);
    assert_eq!((job.runs(), worker.executor.counts().of("unprotected")), (1, 1));
    assert!(job.attempts().is_empty(), "there was no lease");
}

#[tokio::test]
async fn a_claim_with_a_lost_reply_is_retried_with_the_same_token() {
    let server = RedisServer::start();
    let mut owners = Vec::new();
    for fault in [Fault::CutAfterApply, Fault::CutMidReply, Fault::CutBeforeSend] {
        let part = format!("{fault:?}");
        let proxy = Proxy::start(&server.address()).await;
        let store = RedisStore::connect(proxy.url()).await.unwrap();
        let logged = FaultStore::on_clock(store, Arc::new(SystemClock::new()));
        let worker = Worker::new(logged.clone(), Policy::new());
        // The script is cached, so the cut-off call is the claim and not the rejection of an unknown script.
        worker.outcome("warm", &Job::quick()).await;
        proxy.fail_next_with(key(&part).as_str(), fault);
        let job = Job::quick();
        assert_eq!(worker.outcome(&part, &job).await, Outcome::Ran, "not in flight for a whole lease");
        assert_eq!((proxy.met(), worker.failed("claim")), (1, 1));
        assert_eq!(job.attempts(), [1], "counted at the claim, and once");
        let is_claim = |call: &StoreCall| call.verb == StoreOperation::Claim && call.key == Some(key(&part).hash());
        let claims: Vec<_> = logged.log().into_iter().filter(is_claim).map(|call| call.owner.unwrap()).collect();
        let [first, retried] = claims[..] else { panic!("{claims:?}") };
        assert_eq!(first, retried, "{fault:?}");
        assert!(!owners.contains(&first), "each call has its own token");
        owners.push(first);
    }
}

/// The key comes from the business, and the payload is compared.
#[tokio::test]
async fn a_changed_payload_is_refused_while_in_flight_and_after_completion() {
    let server = RedisServer::start();
    let workers = [Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new())];
    let call = |payload: &str| Call::new(id("k")).fingerprint(Ok(Fingerprint::of_bytes(payload)));
    let job = Job::held();
    let first = tokio::spawn({
        let (worker, job, call) = (workers[0].clone(), job.clone(), call("one"));
        async move { worker.deliver_call(call, &job).await.0 }
    });
    job.begun(1).await;
    for worker in &workers {
        assert_eq!(worker.deliver_call(call("two"), &job).await.0, Outcome::Mismatch);
        assert_in_flight(&worker.deliver_call(call("one"), &job).await.0);
    }
    job.end(End::Ok);
    assert_eq!(first.await.unwrap(), Outcome::Ran);
    for worker in &workers {
        assert_eq!(worker.deliver_call(call("two"), &job).await.0, Outcome::Mismatch);
        assert_eq!(worker.deliver_call(call("one"), &job).await.0, Outcome::Replayed);
        assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed, "no fingerprint: nothing to compare");
    }
    assert_eq!(job.runs(), 1);
}

/// One duplicate in flight does not stop the rest of a batch.
#[tokio::test]
async fn each_item_of_a_batch_is_settled_separately() {
    let server = RedisServer::start();
    let (worker, other) =
        (Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new()));
    assert_eq!(other.outcome("b", &Job::quick()).await, Outcome::Ran);
    let held = Job::held();
    let run = other.begin("c", &held).await;
    // The items of each call of the handler.
    let calls = Arc::new(Mutex::new(Vec::new()));
    let deliver = async |parts: &[&'static str]| {
        let items: Vec<_> = parts.iter().map(|part| (Call::new(id(part)), *part)).collect();
        let seen = calls.clone();
        let handler =
            Handler::<DefaultReply, Json, _, _>::batch(move |items: Vec<BatchItem<&'static str>>| async move {
                seen.lock().unwrap().push(items.iter().map(|given| given.item).collect::<Vec<_>>());
                items.iter().map(|_| Ok::<_, AppError>(1)).collect::<Vec<Result<u32, AppError>>>()
            });
        let answers = worker.executor.run_batch(items, handler).await;
        answers.into_iter().map(|answer| answer.outcome.name()).collect::<Vec<_>>()
    };
    assert_eq!(deliver(&["a", "b", "c", "d", "a"]).await, ["ran", "replayed", "in_flight", "ran", "replayed"]);
    assert_eq!(*calls.lock().unwrap(), [["a", "d"]], "each once");
    assert_eq!(deliver(&["d", "a"]).await, ["replayed"; 2], "not run twice afterwards");
    held.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(deliver(&["c", "a", "c"]).await, ["replayed"; 3]);
    assert_eq!(calls.lock().unwrap().len(), 1, "the handler is not called for duplicates alone");
}

#[tokio::test]
async fn a_handler_that_always_fails_runs_17_times_and_is_dead_lettered() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let (worker, job) = (Worker::new(store.clone(), Policy::new()), Job::ends(End::Err));
    for attempt in 1..=16 {
        assert!(matches!(worker.outcome("k", &job).await, Outcome::Released { .. }), "{attempt}");
    }
    let Outcome::Dead { fencing } = worker.outcome("k", &job).await else { panic!("the 17th run buries at once") };
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Dead);
    let (outcome, answer) = worker.deliver("k", &job).await;
    assert_eq!(outcome, Outcome::Dead { fencing }, "copies of the dead letter collapse");
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Dead { attempts: 17, .. }))), "{answer:?}");
    assert_eq!((job.runs(), job.attempts()), (17, (1..=17).collect()));
}

/// The old connection is dead and another server process has the data. The completion is retried until the guard time.
#[tokio::test]
async fn a_completion_survives_a_restart_of_the_server() {
    let server = RedisServer::builder().aof().start();
    let (worker, other) =
        (Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new()));
    let job = Job::held();
    let run = worker.begin("k", &job).await;
    let held = raw(&server, "k");
    server.kill();
    job.end(End::Ok);
    // More failures than stale pooled connections could cause.
    until("the flip fails, again and again", async || worker.failed("complete") >= 3).await;
    assert!(!run.is_finished());
    server.restart();
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_ne!(raw(&server, "k"), held);
    assert_eq!(other.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// Like a failover: the connections are gone, and the same address leads to another server with the record.
#[tokio::test]
async fn a_completion_reaches_the_server_that_took_over() {
    let servers = RedisServer::builder().start_replicas(1);
    let (old, new) = (servers.primary(), servers.replica());
    let way = Detour::to(old.address()).await;
    let worker = Worker::new(RedisStore::connect(way.url()).await.unwrap(), Policy::new());
    let job = Job::held();
    let run = worker.begin("k", &job).await;
    until("the replica has the record", async || new.command(&["EXISTS", key("k").as_str()]).integer() == Some(1))
        .await;
    old.kill();
    job.end(End::Ok);
    until("the flip fails", async || worker.failed("complete") >= 2).await;
    assert_eq!(new.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");
    way.leads_to(new.address());
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(job.runs(), 1);
    let store = open_without_cache(new).await;
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Consumed);
}

/// An address that leads to one server and later to another, like a DNS name.
struct Detour {
    port: u16,
    target: std::sync::Arc<std::sync::Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Detour {
    async fn to(address: String) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = std::sync::Arc::new(std::sync::Mutex::new(address));
        let leads = target.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let address = leads.lock().unwrap().clone();
                tokio::spawn(async move {
                    if let Ok(mut server) = tokio::net::TcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, target, task }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn leads_to(&self, address: String) {
        *self.target.lock().unwrap() = address;
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.task.abort();
    }
}

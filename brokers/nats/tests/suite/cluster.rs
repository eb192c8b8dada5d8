//! A cluster of three servers, with three replicas of each stream and bucket: what survives the death of a leader.
mod extras;
mod journal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::ServerAddr;
use async_nats::jetstream::{self, Context};
use idempotent_core::{
    Call, Cas, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene,
};
use idempotent_harness::servers::NatsCluster;
use idempotent_mq::{Consumer, KeyFrom, Message, Messages, OutboundMessage, PublishErrorKind};
use idempotent_nats::{JetStreamPublisher, JetStreamSource, KvBackend};
use idempotent_testkit::history::Recording;
use idempotent_testkit::history::check::{Invariant, Judge};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;

use self::journal::Lines;
use crate::publisher::publish;
use crate::world::{Running, secs, until};

/// Limit for the work during an election, which takes some seconds.
const LIMIT: Duration = Duration::from_secs(180);
/// The number of messages, or of keys.
const COUNT: u32 = 60;
const WORKERS: u32 = 4;

/// Connects a plain client to all nodes.
async fn client(cluster: &NatsCluster) -> Context {
    let addresses: Vec<ServerAddr> = cluster.url().split(',').map(|url| url.parse().unwrap()).collect();
    jetstream::new(async_nats::connect(addresses).await.unwrap())
}

/// Repeats a request until the cluster answers. A node may still be looking for a leader.
async fn answered<T, E>(request: impl AsyncFn() -> Result<T, E>) -> T {
    let mut answer = None;
    let is_answered = async || {
        answer = request().await.ok();
        answer.is_some()
    };
    until("the cluster answers", is_answered).await;
    answer.unwrap()
}

/// Kills the leader of a stream, and returns its name.
async fn kill_leader(cluster: &NatsCluster, client: &Context, stream: &str) -> String {
    let leader = answered(async || {
        let info = client.get_stream(stream).await.map_err(drop)?.cached_info().clone();
        info.cluster.and_then(|cluster| cluster.leader).ok_or(())
    });
    let leader = leader.await;
    cluster.node(&leader).kill();
    leader
}

/// Publishes a message until the stream confirms it. The next server may not have noticed the death.
async fn confirmed(publisher: &JetStreamPublisher, number: u32) {
    let message = || OutboundMessage::new("orders.new", format!("m-{number}"), "body");
    let published = async || {
        let sent = publish(publisher, message()).await;
        if let Err(error) = &sent {
            assert_ne!(error.kind(), PublishErrorKind::Refused, "{error}");
        }
        sent
    };
    answered(published).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_survive_the_death_of_their_leader_and_each_runs_once() {
    let cluster = NatsCluster::start();
    let client = client(&cluster).await;
    let builder = || JetStreamSource::builder(cluster.url(), "ORDERS", "billing").declare(["orders.>"]);
    let source = answered(async || builder().replicas(3).ack_wait(secs(2)).connect().await).await;
    for stream in ["ORDERS-dead", "KV_idempotent-ORDERS-billing"] {
        let created = answered(async || client.get_stream(stream).await).await;
        assert_eq!(created.cached_info().config.num_replicas, 3, "{stream}");
    }
    let runs: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
        *counted.lock().unwrap().entry(message.delivery.id.clone().unwrap_or_default()).or_default() += 1;
        async { Ok::<_, String>(()) }
    });
    let executor = Executor::new(MemoryStore::new());
    let running = Running::new(Consumer::builder(source, "billing", &executor).build(handling).unwrap());

    let publisher = JetStreamPublisher::new(cluster.url());
    let mut killed = None;
    for number in 0..COUNT {
        if number == COUNT / 2 {
            killed = Some(kill_leader(&cluster, &client, "ORDERS").await);
        }
        timeout(LIMIT, confirmed(&publisher, number)).await.unwrap();
    }
    let open = async || {
        let stream = client.get_stream("ORDERS").await.ok()?;
        let info = stream.consumer_info("billing").await.ok()?;
        Some((stream.cached_info().state.messages, info.num_pending, info.num_ack_pending))
    };
    let all_are_acknowledged = Some((u64::from(COUNT), 0, 0));
    until("all messages are stored once and acknowledged", async || open().await == all_are_acknowledged).await;
    cluster.restart(&killed.unwrap());
    until("nothing returns with the dead node", async || open().await == all_are_acknowledged).await;
    running.ended().await.unwrap();
    let once: BTreeMap<_, _> = (0..COUNT).map(|number| (format!("m-{number}"), 1)).collect();
    assert_eq!(*runs.lock().unwrap(), once);
}

/// Runs each key until its result is recorded, and returns the results.
async fn work(executor: Executor, first: u32, runs: Arc<AtomicU32>, done: Arc<Semaphore>) -> Vec<(u32, u32)> {
    let mut results = Vec::new();
    for number in (0..COUNT).map(|step| (first + step) % COUNT) {
        // Until then, the key is in flight, or the bucket has no leader.
        let recorded = async || {
            let run = runs.clone();
            let handler = Handler::<DefaultReply, Json, _, _>::new(move || {
                let run = run.fetch_add(1, SeqCst);
                async move { Ok::<_, Rejection>(run) }
            });
            let call = Call::new(Identity::new(Scene::Mq, "orders", &number));
            match Outcome::capture(executor.run(call, handler)).await {
                (Ok(result), Some(Outcome::Ran | Outcome::Replayed)) => Ok(result),
                _ => Err(()),
            }
        };
        let result = answered(recorded).await;
        results.push((number, result));
        done.add_permits(1);
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_stay_exclusive_and_results_stay_recorded_while_the_leader_of_the_bucket_dies() {
    let cluster = NatsCluster::start();
    let client = client(&cluster).await;
    answered(async || KvBackend::create(cluster.url(), "idempotent", 3).await).await;
    let (journal, runs, done) = (Arc::new(Lines::new()), Arc::<AtomicU32>::default(), Arc::new(Semaphore::new(0)));
    let (local, mut workers) = (LocalSet::new(), Vec::new());
    for worker in 0..WORKERS {
        let backend = answered(async || KvBackend::open(cluster.url(), "idempotent").await).await;
        let store = Recording::new(Arc::new(Cas(backend)), journal.clone(), worker);
        let work = work(Executor::new(store), worker * COUNT / WORKERS / 2, runs.clone(), done.clone());
        workers.push(local.spawn_local(timeout(LIMIT, work)));
    }
    let mut results = BTreeMap::<u32, BTreeSet<u32>>::new();
    let working = async {
        // A part of the keys is recorded, and others are in flight.
        timeout(LIMIT, done.acquire_many(COUNT / 2)).await.unwrap().unwrap().forget();
        let killed = kill_leader(&cluster, &client, "KV_idempotent").await;
        for worker in workers {
            for (number, result) in worker.await.unwrap().unwrap() {
                results.entry(number).or_default().insert(result);
            }
        }
        killed
    };
    let killed = local.run_until(working).await;
    assert!(results.values().all(|results| results.len() == 1), "each key has one result: {results:?}");
    let report = Judge::new().margin(secs(1)).check(&journal.history());
    assert!(report.held(), "{:?}", report.findings);
    let is_judged = |invariant| report.tallies.get(&invariant).is_some_and(|tally| tally.judged > 0);
    assert!([Invariant::I5, Invariant::I6].into_iter().all(is_judged), "{report:?}");
    assert!(report.counts.grants >= u64::from(COUNT), "{report:?}");

    cluster.restart(&killed);
    let late = answered(async || KvBackend::open(cluster.node(&killed).url(), "idempotent").await).await;
    let late = Executor::new(Cas(late));
    let before = runs.load(SeqCst);
    let again = timeout(LIMIT, work(late, 0, runs.clone(), done)).await.unwrap();
    assert!(again.iter().all(|(number, result)| results[number].contains(result)), "{again:?}");
    assert_eq!(runs.load(SeqCst), before, "the results are replayed");
}

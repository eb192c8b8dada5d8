//! A store with three nodes, of which some fail.
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    BatchItem, Call, Claim, ClaimHandle, ClaimRequest, Completion, DefaultReply, Executor, Handler, Identity, Json,
    Key, Policy, Record, Rejection, Release, Scene, Settled, Store, StoreCapabilities, StoreError, StoreErrorKind,
    StoreNode, StoreNodes,
};
use idempotent_mq::{Consumer, KeyFrom, MessageHandler, Messages};
use idempotent_testkit::FaultStore;

use crate::world::{Job, Process, World, key_of, ms, secs};

const CONCURRENCY: usize = 8;
const PREFETCH: usize = 16;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Health {
    Up,
    /// No call gets an answer.
    Silent,
    /// Each call is refused at once.
    Refusing,
    /// Only claims are refused.
    RefusingClaims,
}

/// A store whose nodes fail on demand. A key belongs to a node by its hash.
#[derive(Clone, Debug)]
struct NodeStore {
    inner: FaultStore,
    health: Arc<Mutex<[Health; 3]>>,
    /// The node that has the keys of the first node.
    first: Arc<Mutex<usize>>,
    /// The number of claims of each node.
    claims: Arc<Mutex<[usize; 3]>>,
}

impl NodeStore {
    fn set(&self, node: usize, health: Health) {
        self.health.lock().unwrap()[node] = health;
    }

    fn claims(&self, node: usize) -> usize {
        self.claims.lock().unwrap()[node]
    }

    fn owner(&self, key: &Key) -> usize {
        match node_of(key) {
            0 => *self.first.lock().unwrap(),
            node => node,
        }
    }

    async fn call<T>(
        &self,
        key: &Key,
        is_claim: bool,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let node = self.owner(key);
        let health = self.health.lock().unwrap()[node];
        match health {
            Health::Silent => pending().await,
            Health::RefusingClaims if !is_claim => call.await,
            Health::Refusing | Health::RefusingClaims => Err(StoreError::new(StoreErrorKind::NotApplied)),
            Health::Up => call.await,
        }
    }
}

fn node_of(key: &Key) -> usize {
    usize::try_from(key.hash() % 3).unwrap()
}

#[async_trait::async_trait]
impl Store for NodeStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claims.lock().unwrap()[self.owner(&request.key)] += 1;
        self.call(&request.key, true, self.inner.claim(request)).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.call(&held.key, false, self.inner.renew(held, lease)).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.call(&held.key, false, self.inner.complete(held, completion)).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.call(&held.key, false, self.inner.release(held, release)).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(key, false, self.inner.peek(key)).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_nodes(self)
    }
}

impl StoreNodes for NodeStore {
    fn node_of(&self, key: &Key) -> Option<StoreNode> {
        Some(StoreNode::new(self.owner(key).to_string()))
    }

    fn node_count(&self) -> usize {
        3
    }
}

/// Returns the names of messages, the first `each` of every node, in turn.
fn names(each: usize) -> Vec<String> {
    let of = |node| (0..).map(|number| format!("m{number}")).filter(move |name| node_of(&key_of(name)) == node);
    let nodes = [0, 1, 2].map(|node| of(node).take(each).collect::<Vec<_>>());
    (0..each).flat_map(|at| nodes.clone().map(|names| names[at].clone())).collect()
}

fn send(world: &World, names: &[String]) {
    for name in names {
        world.broker.send(name, "{}");
    }
}

fn of_nodes(names: &[String], nodes: &[usize]) -> Vec<String> {
    names.iter().filter(|name| nodes.contains(&node_of(&key_of(name)))).cloned().collect()
}

async fn start(world: &World, handling: MessageHandler) -> (NodeStore, Process) {
    let store = NodeStore {
        inner: world.store.clone(),
        health: Arc::new(Mutex::new([Health::Up; 3])),
        first: Arc::default(),
        claims: Arc::default(),
    };
    let clock = Arc::new(world.clock.clone());
    let executor = Executor::builder(store.clone()).clock(clock).policy(Scene::Mq, Policy::new().jitter(0));
    let executor = executor.build().unwrap();
    let builder = Consumer::builder(world.broker.connect(), "billing", &executor);
    let consumer = builder.concurrency(CONCURRENCY).prefetch(PREFETCH).build(handling).unwrap();
    let process = world.start(world.store.clone(), executor, consumer).await;
    (store, process)
}

/// Returns a handler that claims the key of `by_id` itself.
fn annotated(job: &Arc<Job>) -> MessageHandler {
    let job = job.clone();
    Messages::raw().annotated(move |message| {
        let (job, executor) = (job.clone(), Executor::current().unwrap());
        async move {
            let id = message.delivery.id.clone().unwrap();
            let call = Call::new(Identity::new(Scene::Mq, "billing", &id));
            let handler = Handler::<DefaultReply, Json, _, _>::new(|| async move {
                job.run(message).await;
                Ok::<(), Rejection>(())
            });
            executor.run(call, handler).await
        }
    })
}

fn all_acked(world: &World, names: &[String]) -> bool {
    names.iter().all(|name| world.broker.is_acked(name))
}

#[tokio::test]
async fn deliveries_of_the_other_nodes_are_handled_while_a_node_is_silent() {
    let handlings: [fn(&Arc<Job>) -> MessageHandler; 2] = [Job::by_id, annotated];
    for handling in handlings {
        let world = World::new();
        let job = Job::ok(&world, ms(10));
        let (store, process) = start(&world, handling(&job)).await;
        let names = names(100);
        store.set(0, Health::Silent);
        send(&world, &names);
        // The claims of the silent node occupy all handlers for two seconds, and a quarter of the prefetch afterwards.
        world.clock.advance(secs(3)).await;
        let (failed, healthy) = (of_nodes(&names, &[0]), of_nodes(&names, &[1, 2]));
        assert!(all_acked(&world, &healthy), "{:?}", process.counts());
        assert_eq!(job.runs(), 200);
        let (gauges, counts) = (process.gauges(), process.counts());
        assert!(gauges.running <= (PREFETCH / 4) as u64, "{gauges:?}");
        assert_eq!((gauges.failed_nodes, gauges.paused), (1, false));
        assert_eq!((counts.pauses, counts.node_outages), (0, 1));

        // A long outage: the claims that waited fail, and further ones are refused without a call of the store.
        world.clock.advance(secs(60)).await;
        let claims = store.claims(0);
        world.clock.advance(secs(120)).await;
        assert_eq!(store.claims(0), claims, "claims of a silent node");
        assert_eq!((process.gauges().running, process.gauges().failed_nodes), (0, 1));
        assert_eq!(process.counts().pauses, 0);
        assert!(process.counts().deferred > counts.deferred, "the deliveries of the failed node still arrive");

        store.set(0, Health::Up);
        world.clock.advance(secs(120)).await;
        assert!(all_acked(&world, &failed), "{:?}", process.counts());
        assert_eq!((job.runs(), world.broker.left()), (300, 0));
        assert_eq!((process.gauges().failed_nodes, process.counts().node_outages), (0, 1));
    }
}

#[tokio::test]
async fn a_node_that_refuses_defers_its_deliveries_only() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let (store, process) = start(&world, job.by_id()).await;
    let names = names(20);
    store.set(2, Health::Refusing);
    send(&world, &names);
    world.clock.advance(ms(900)).await;
    assert!(all_acked(&world, &of_nodes(&names, &[0, 1])), "{:?}", process.counts());
    let counts = process.counts();
    assert_eq!((counts.pauses, counts.node_outages, counts.retried), (0, 1, 0));
    // Each claim that was sent before the first failure is tried four times.
    assert!(store.claims(2) <= 4 * CONCURRENCY, "{}", store.claims(2));
    store.set(2, Health::Up);
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.left()), (60, 0));
}

#[tokio::test]
async fn a_node_that_answers_peeks_and_no_claims_is_tried_by_one_claim_at_a_time() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let (store, process) = start(&world, job.by_id()).await;
    let names = names(20);
    store.set(1, Health::RefusingClaims);
    send(&world, &names);
    world.clock.advance(ms(900)).await;
    let first = store.claims(1);
    world.clock.advance(secs(120)).await;
    // 1, 2, 4, 8, 16, 30, 30 … s apart, each tried four times.
    let trials = (store.claims(1) - first) / 4;
    assert!((4..=9).contains(&trials), "{trials}");
    assert_eq!((process.counts().pauses, process.counts().node_outages), (0, 1));
    store.set(1, Health::Up);
    world.clock.advance(secs(120)).await;
    assert_eq!((job.runs(), world.broker.left()), (60, 0));
}

#[tokio::test]
async fn the_intake_pauses_while_half_of_the_nodes_fail() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let (store, process) = start(&world, job.by_id()).await;
    for node in [1, 2] {
        store.set(node, Health::Refusing);
    }
    send(&world, &names(20));
    world.clock.advance(ms(500)).await;
    assert!(process.gauges().paused);
    assert_eq!((process.counts().pauses, process.counts().node_outages), (1, 2));
    for node in [1, 2] {
        store.set(node, Health::Up);
    }
    world.clock.advance(secs(120)).await;
    assert_eq!((job.runs(), world.broker.left()), (60, 0));
    assert_eq!((process.gauges().paused, process.gauges().failed_nodes), (false, 0));
}

#[tokio::test]
async fn a_failed_node_whose_keys_have_moved_defers_nothing() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let (store, process) = start(&world, job.by_id()).await;
    store.set(0, Health::Silent);
    send(&world, &names(20));
    world.clock.advance(secs(3)).await;
    assert_eq!(process.gauges().failed_nodes, 1);
    // A failover: another node has the keys, and the failed node stays silent.
    *store.first.lock().unwrap() = 1;
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.left()), (60, 0));
    assert_eq!((process.gauges().failed_nodes, process.counts().pauses), (0, 0));
}

#[tokio::test]
async fn a_batch_leaves_the_messages_of_a_failed_node_out() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let ran = job.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run_batch(4, move |items: Vec<BatchItem<_>>| {
        let job = ran.clone();
        async move {
            let mut results = Vec::new();
            for item in items {
                results.push(job.run(item.item).await);
            }
            results
        }
    });
    let (store, process) = start(&world, handling).await;
    let names = names(20);
    store.set(0, Health::Refusing);
    send(&world, &names);
    world.clock.advance(secs(3)).await;
    assert!(all_acked(&world, &of_nodes(&names, &[1, 2])), "{:?}", process.counts());
    assert_eq!((process.counts().pauses, process.counts().node_outages), (0, 1));
    store.set(0, Health::Up);
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.left()), (60, 0));
}

#[tokio::test]
async fn a_run_without_protection_does_not_wait_for_its_node() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let policy = Policy::new().on_store_error(idempotent_core::OnStoreError::RunUnprotected);
    let handling = Messages::raw().keyed(KeyFrom::message_id()).policy(policy).run(job.function());
    let (store, process) = start(&world, handling).await;
    store.set(0, Health::Refusing);
    send(&world, &names(4));
    world.clock.advance(secs(1)).await;
    let counts = process.counts();
    assert_eq!((job.runs(), counts.unprotected, counts.node_outages, world.broker.left()), (12, 4, 0, 0));
}

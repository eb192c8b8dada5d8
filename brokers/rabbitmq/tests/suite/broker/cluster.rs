//! Queues on a cluster of three nodes, of which some die.
mod extras;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use idempotent_core::{MemoryStore, Policy};
use idempotent_harness::servers::{RabbitCluster, RabbitServer};
use idempotent_mq::{HandlerResult, KeyFrom, MessageHandler, Messages, OutboundMessage};
use idempotent_rabbitmq::{DelayTopology, Exchange, Queue, RabbitPublisher, RabbitSource, Topology};
use tokio::sync::MutexGuard;

use crate::broker::world::{Process, executor, until, within};

static CLUSTER: LazyLock<RabbitCluster> = LazyLock::new(RabbitCluster::start);
/// Each test kills nodes, so that only one runs at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The cluster of all tests of this binary, for one test at a time. All nodes run at its start.
pub struct Cluster {
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    pub async fn new() -> Self {
        let cluster = Self { _turn: TURN.lock().await };
        cluster.restart_killed().await;
        cluster
    }

    /// Declares a queue and its dead letter queue over this node.
    pub async fn declare(&self, queue: Queue, node: usize) {
        let declared = async { Topology::new().queue(queue).declare(&self.url(node).await).await };
        within("a declaration", declared).await.unwrap();
    }

    /// Declares a fanout exchange over this node, and binds the queue.
    pub async fn bind(&self, queue: &str, exchange: &str, node: usize) {
        let topology = Topology::new().exchange(Exchange::fanout(exchange)).bind(queue, exchange, "");
        within("a binding", async { topology.declare(&self.url(node).await).await }).await.unwrap();
    }

    /// Returns the node of the queue's leader, after all nodes have a replica of the queue that is online.
    pub async fn leader(&self, queue: &'static str) -> usize {
        let leader = async || {
            let replicas = blocking(|cluster| cluster.replicas(queue)).await;
            replicas.leader.filter(|_| replicas.online == [0, 1, 2])
        };
        until("a leader and all replicas", leader).await
    }

    /// Kills nodes with SIGKILL, after all nodes have stored the metadata of their queues. All nodes run.
    pub async fn kill(&self, killed: Vec<usize>) {
        let kill = move |cluster: &RabbitCluster| {
            cluster.nodes().iter().for_each(RabbitServer::sync);
            killed.iter().for_each(|node| cluster.node(*node).kill());
        };
        blocking(kill).await;
    }

    pub async fn is_running(&self, node: usize) -> bool {
        blocking(move |cluster| cluster.node(node).is_running()).await
    }

    pub async fn restart_killed(&self) {
        blocking(RabbitCluster::restart_killed).await;
    }

    /// Waits until the queue is empty.
    pub async fn empty(&self, queue: &'static str) {
        let messages = |cluster: &RabbitCluster| cluster.node(0).queues("/", "messages").get(queue).copied();
        until("an empty queue", async || (blocking(messages).await == Some(0)).then_some(())).await;
    }

    /// Returns a source that is connected to this node.
    pub async fn source(&self, queue: Queue, node: usize) -> RabbitSource {
        RabbitSource::builder(&self.url(node).await, queue).build().unwrap()
    }

    /// Returns a publisher that is connected to this node, and gives up after this time.
    pub async fn publisher(&self, node: usize, delays: DelayTopology, time: Duration) -> RabbitPublisher {
        let builder = RabbitPublisher::builder(&self.url(node).await).delays(delays);
        builder.confirm_within(time / 4).give_up_after(time).build().unwrap()
    }

    async fn url(&self, node: usize) -> String {
        blocking(move |cluster| cluster.node(node).url()).await
    }
}

/// Returns the nodes other than this one.
pub fn others(node: usize) -> [usize; 2] {
    [(node + 1) % 3, (node + 2) % 3]
}

/// Runs a method of the cluster, which blocks its thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce(&RabbitCluster) -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| work(&CLUSTER)).await.unwrap()
}

/// The effects of all workers of a test, by key, and the store that the workers share.
#[derive(Clone, Default)]
pub struct Effects {
    store: Arc<MemoryStore>,
    by_key: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Effects {
    /// Returns a handler keyed by the message id. A run that is `Done` has an effect.
    pub fn handler<F>(&self, run: impl Fn() -> F + Send + Sync + 'static) -> MessageHandler
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        let (by_key, run) = (self.by_key.clone(), Arc::new(run));
        Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
            let (by_key, run) = (by_key.clone(), run.clone());
            async move {
                let id = message.delivery.id.clone().unwrap();
                let result = run().await;
                if matches!(result, HandlerResult::Done) {
                    *by_key.lock().unwrap().entry(id).or_default() += 1;
                }
                result
            }
        })
    }

    pub fn worker(&self, source: RabbitSource, handling: MessageHandler) -> Process {
        Process::start(source, "billing", &executor(&self.store, Policy::new()), handling, |b| b.concurrency(4))
    }

    pub fn get(&self) -> BTreeMap<String, u32> {
        self.by_key.lock().unwrap().clone()
    }

    /// Waits for effects of this number of keys.
    pub async fn reach(&self, keys: usize) {
        until("the effects", async || (self.get().len() >= keys).then_some(())).await;
    }
}

pub fn message(queue: &str, id: impl ToString) -> OutboundMessage {
    OutboundMessage::new(queue, id.to_string(), "{}")
}

pub async fn done() -> HandlerResult {
    HandlerResult::Done
}

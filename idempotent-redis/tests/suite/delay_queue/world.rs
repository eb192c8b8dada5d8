//! Servers with a clock that the tests set, and queues on them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_harness::servers::{RedisCluster, RedisServer, Value};
use idempotent_mq::{DeadLetter, DeadLetters, Delivery, StoredLetter};
use idempotent_redis::{DelayDeadLetters, DelayDelivery, DelayQueue, DelayQueueBuilder, DelayReceiver, SendReceipt};

use crate::support::calls;

pub(crate) type Edit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// One server or a cluster.
pub(crate) enum Place {
    Single(RedisServer),
    Cluster(RedisCluster),
}

impl Place {
    pub(crate) fn nodes(&self) -> &[RedisServer] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Sends a command to the node of this key.
    pub(crate) fn command(&self, key: &str, arguments: &[&str]) -> Value {
        let said = match self {
            Self::Single(server) => server.command(arguments),
            Self::Cluster(cluster) => cluster.node(cluster.owner_of(cluster.slot_of(key))).command(arguments),
        };
        assert!(!said.is_error(), "{arguments:?}: {said:?}");
        said
    }

    /// Returns the number of calls of a command on all nodes, including calls by scripts.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.nodes().iter().map(|server| calls(server, command)).sum()
    }
}

/// A queue on servers whose clock only a test moves.
pub(crate) struct World {
    pub(crate) place: Arc<Place>,
    pub(crate) edit: Edit,
}

/// Start time of each test, in µs.
pub(crate) const BEGIN: u64 = 1_700_000_000_000_000;
pub(crate) const TOPIC: &str = "orders";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Creates a world on servers without keys.
    pub(crate) fn new(place: Arc<Place>, edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        for node in place.nodes() {
            node.command(&["FLUSHALL"]);
        }
        let world = Self { place, edit: Arc::new(edit) };
        world.at(0);
        world
    }

    /// Sets the clock to `ms` after the start.
    pub(crate) fn at(&self, ms: u64) {
        self.at_micros(ms * 1_000);
    }

    pub(crate) fn at_micros(&self, micros: u64) {
        for slot in 0..4 {
            let key = format!("{{{TOPIC}:{slot}}}:clock");
            self.place.command(&key, &["SET", &key, &(BEGIN + micros).to_string()]);
        }
    }

    pub(crate) async fn queue(&self) -> DelayQueue {
        self.queue_with(|builder| builder.visibility(MINUTE)).await
    }

    pub(crate) async fn receiving(&self) -> (DelayQueue, DelayReceiver) {
        let queue = self.queue().await;
        let receiver = queue.receiver();
        (queue, receiver)
    }

    pub(crate) async fn queue_with(&self, set: impl FnOnce(DelayQueueBuilder) -> DelayQueueBuilder) -> DelayQueue {
        let edit = self.edit.clone();
        let builder = DelayQueue::builder(self.place.url(), TOPIC).edit_scripts(move |text| stopped(&edit(text)));
        set(builder).connect().await.unwrap()
    }

    /// Returns the content of a key of the first slot.
    pub(crate) fn look(&self, command: &str, part: &str, more: &[&str]) -> Value {
        let key = format!("idempotent:delay:{{{TOPIC}:0}}:{part}");
        let mut arguments = vec![command, &key];
        arguments.extend(more);
        self.place.command(&key, &arguments)
    }
}

/// Replaces the server's clock in a script by the test's clock.
fn stopped(text: &str) -> String {
    const TIME: &str = "local time = call('TIME')";
    assert!(text.contains(TIME), "{text}");
    text.replace(
        TIME,
        "local clock = tonumber(call('GET', string.match(due, '{.*}') .. ':clock'))\n\
         local time = {math.floor(clock / 1000000), clock % 1000000}",
    )
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns the time `ms` after the start.
pub(crate) fn time(ms: u64) -> Timestamp {
    Timestamp(BEGIN + ms * 1_000)
}

/// Takes the due messages and returns their bodies.
pub(crate) async fn due(receiver: &mut DelayReceiver) -> Vec<String> {
    bodies(&receiver.receive_now(100).await.unwrap())
}

pub(crate) fn bodies(taken: &[DelayDelivery]) -> Vec<String> {
    taken.iter().map(|taken| String::from_utf8(taken.body.clone()).unwrap()).collect()
}

#[track_caller]
pub(crate) fn only<T>(mut all: Vec<T>) -> T {
    assert_eq!(all.len(), 1, "one is due");
    all.remove(0)
}

pub(crate) fn new(sent: SendReceipt) -> SendReceipt {
    assert!(sent.is_new, "{sent:?}");
    sent
}

pub(crate) async fn letters(queue: &DelayQueue) -> Vec<(Delivery, DeadLetter)> {
    let mut letters = DelayDeadLetters::new(queue);
    let mut all = Vec::new();
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
        all.push((delivery, letter.unwrap()));
    }
    all
}

//! Tests that need the cluster, which takes a minute to start on a busy machine.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_mq::{HandlerResult, Publish, PublishError, PublishErrorKind};
use idempotent_rabbitmq::{DelayTopology, Queue};
use tokio::sync::{Notify, watch};

use super::{Cluster, Effects, done, message, others};
use crate::broker::world::{LIMIT, until, within};

/// Far longer than it takes to kill a node, so that a message waits in its queue when the node dies.
const DELAY: Duration = Duration::from_secs(20);

fn quorum() -> DelayTopology {
    DelayTopology::quorum()
}

#[tokio::test]
async fn confirmed_messages_survive_the_death_of_their_queues_leader_and_each_runs_once_by_a_worker_on_another_node() {
    const QUEUE: &str = "replicated";
    const MESSAGES: usize = 80;
    let cluster = Cluster::new().await;
    cluster.declare(Queue::quorum(QUEUE), 0).await;
    let leader = cluster.leader(QUEUE).await;
    let [near, far] = others(leader);
    let publisher = cluster.publisher(far, quorum(), LIMIT).await;
    for n in 0..MESSAGES / 2 {
        within("a confirm", publisher.publish(&message(QUEUE, n))).await.unwrap();
    }
    // Ten messages run before the leader dies. Some are held then, and the others are in the queue.
    let (effects, begun) = (Effects::default(), Arc::new(AtomicU32::new(0)));
    let (open, gate) = watch::channel(false);
    let counted = begun.clone();
    let handling = effects.handler(move || {
        let (number, mut gate) = (counted.fetch_add(1, SeqCst), gate.clone());
        async move {
            if number >= 10 {
                gate.wait_for(|open| *open).await.unwrap();
            }
            HandlerResult::Done
        }
    });
    let worker = effects.worker(cluster.source(Queue::quorum(QUEUE), near).await, handling);
    effects.reach(10).await;
    until("some are held", async || (begun.load(SeqCst) > 10).then_some(())).await;
    let sending = tokio::spawn(async move {
        for n in MESSAGES / 2..MESSAGES {
            publisher.publish(&message(QUEUE, n)).await.unwrap();
        }
    });
    cluster.kill(vec![leader]).await;
    open.send(true).unwrap();
    within("confirms", sending).await.unwrap();
    effects.reach(MESSAGES).await;
    worker.until("all are acknowledged", |counts| counts.acked >= MESSAGES as u64).await;
    assert!(!cluster.is_running(leader).await, "the other nodes have all messages");
    let once = (0..MESSAGES).map(|n| (n.to_string(), 1)).collect::<BTreeMap<_, _>>();
    assert_eq!(effects.get(), once);
    assert_eq!(worker.stop().await.dead_lettered, 0);
}

#[tokio::test]
async fn held_retried_and_delayed_messages_survive_the_death_of_a_node_and_run_once_on_another_node() {
    const QUEUE: &str = "replicated.retried";
    let cluster = Cluster::new().await;
    cluster.declare(Queue::quorum(QUEUE), 0).await;
    let source = async |node| cluster.source(Queue::quorum(QUEUE), node).await;
    let effects = Effects::default();
    let again = || async { HandlerResult::Again { after: Some(DELAY), error: "no stock".into() } };
    let first = effects.worker(source(0).await, effects.handler(again));
    within("a confirm", cluster.publisher(0, quorum(), LIMIT).await.publish(&message(QUEUE, "retried"))).await.unwrap();
    first.until("it is retried", |counts| counts.retried == 1).await;
    first.stop().await;

    // The node that leads the retry queue dies, with a worker that holds a message, and with the first queue of a delay.
    let dying = cluster.leader("replicated.retried.retry.20000").await;
    let publisher = cluster.publisher(dying, quorum(), LIMIT).await;
    within("a confirm", publisher.publish_after(&message(QUEUE, "delayed"), DELAY)).await.unwrap();
    let (open, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (gate, begun) = (open.clone(), held.clone());
    let holds = effects.handler(move || {
        let (gate, begun) = (gate.clone(), begun.clone());
        async move {
            begun.notify_one();
            gate.notified().await;
            HandlerResult::Done
        }
    });
    let holding = effects.worker(source(dying).await, holds);
    within("a confirm", publisher.publish(&message(QUEUE, "held"))).await.unwrap();
    within("it runs", held.notified()).await;
    let worker = effects.worker(source(others(dying)[0]).await, effects.handler(done));
    cluster.kill(vec![dying]).await;
    worker.until("the held message is in flight", |counts| counts.deferred >= 1).await;
    open.notify_one();
    effects.reach(3).await;
    worker.until("all are acknowledged", |counts| counts.acked >= 3).await;
    assert!(!cluster.is_running(dying).await, "the other nodes have all messages");
    assert_eq!(effects.get(), ["delayed", "held", "retried"].map(|id| (id.to_owned(), 1)).into());
    holding.kill();
    assert_eq!(worker.stop().await.dead_lettered, 0);
}

#[tokio::test]
async fn a_message_to_a_queue_without_its_majority_is_never_confirmed_and_has_one_effect_when_it_is_sent_again() {
    const QUEUE: &str = "replicated.majority";
    let cluster = Cluster::new().await;
    cluster.declare(Queue::quorum(QUEUE), 0).await;
    let alive = cluster.leader(QUEUE).await;
    let effects = Effects::default();
    let worker = effects.worker(cluster.source(Queue::quorum(QUEUE), alive).await, effects.handler(done));
    let publisher = cluster.publisher(alive, quorum(), LIMIT).await;
    within("a confirm", publisher.publish(&message(QUEUE, "before"))).await.unwrap();
    effects.reach(1).await;

    cluster.kill(others(alive).to_vec()).await;
    let impatient = cluster.publisher(alive, quorum(), Duration::from_secs(8)).await;
    let error = within("an answer", impatient.publish(&message(QUEUE, "m"))).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    assert_eq!(effects.get().len(), 1, "without a majority, the queue delivers nothing");

    cluster.restart_killed().await;
    within("a confirm", publisher.publish(&message(QUEUE, "m"))).await.unwrap();
    effects.reach(2).await;
    cluster.empty(QUEUE).await;
    assert_eq!(effects.get(), ["before", "m"].map(|id| (id.to_owned(), 1)).into());
    assert_eq!(worker.stop().await.dead_lettered, 0);
}

#[tokio::test]
async fn a_message_to_a_classic_queue_is_not_sent_while_its_node_is_down_and_a_worker_waits_for_the_node() {
    const QUEUE: &str = "unreplicated";
    const OTHER: &str = "unreplicated.other";
    let cluster = Cluster::new().await;
    cluster.declare(Queue::classic(QUEUE), 0).await;
    cluster.declare(Queue::classic(OTHER), 1).await;
    cluster.bind(QUEUE, "unreplicated.all", 0).await;
    let publisher = cluster.publisher(1, quorum(), LIMIT).await;
    within("a confirm", publisher.publish(&message(QUEUE, "before"))).await.unwrap();
    cluster.kill(vec![0]).await;
    // The first message lets the others share a channel. Then each of them that was returned is sent again separately.
    let impatient = cluster.publisher(1, quorum(), Duration::from_secs(20)).await;
    within("a confirm", impatient.publish(&message(OTHER, "first"))).await.unwrap();
    let to_others = ["unreplicated.missing", "unreplicated.all/"].map(|topic| message(topic, topic));
    let batch = [&[message(OTHER, "second"), message(QUEUE, "m")][..], &to_others].concat();
    let results = within("answers", Publish::publish(&impatient, &batch)).await;
    let errors: Vec<_> = results.into_iter().map(Result::err).collect();
    let kinds = errors.iter().map(|error| error.as_ref().map(PublishError::kind)).collect::<Vec<_>>();
    // The other nodes of RabbitMQ 3 return messages for the queue and for a missing queue, and do not name the queues of an
    // exchange. Those of RabbitMQ 4 reject messages for the queue.
    let (refused, unsent) = (Some(PublishErrorKind::Refused), Some(PublishErrorKind::Unsent));
    let text = errors[1].as_ref().unwrap().to_string();
    let is_rejected = text.contains("rejected the message for now");
    assert_eq!(kinds, [None, unsent, refused, if is_rejected { unsent } else { refused }], "{errors:?}");
    assert!(is_rejected || text.contains("the node of its queue is down"), "{text}");
    let effects = Effects::default();
    let worker = effects.worker(cluster.source(Queue::classic(QUEUE), 2).await, effects.handler(done));
    worker.until("the queue is missed", |counts| counts.source_errors > 0).await;
    assert!(effects.get().is_empty());
    cluster.restart_killed().await;
    within("a confirm", publisher.publish(&message(QUEUE, "m"))).await.unwrap();
    effects.reach(2).await;
    assert_eq!(effects.get(), ["before", "m"].map(|id| (id.to_owned(), 1)).into());
    assert_eq!(worker.stop().await.dead_lettered, 0);
}

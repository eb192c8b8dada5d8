//! A source as Kafka's client would have it: partitions, an offset to commit, a seek instead of a retry, rebalances.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use async_trait::async_trait;
use idempotent_core::{Clock, Policy};
use idempotent_mq::{
    Consumer, DelaySupport, Delivery, HandlerResult, KeyFrom, Messages, Position, Received, Settle, Settlement, Source,
    SourceCapabilities, SourceError, SourceErrorKind,
};
use idempotent_testkit::VirtualClock;
use tokio::sync::Notify;

use crate::world::{World, ms, secs};

/// The log, and its one consumer group.
#[derive(Clone)]
struct Log {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    clock: VirtualClock,
}

#[derive(Default)]
struct State {
    partitions: BTreeMap<u32, Partition>,
    revoked: Vec<Position>,
    generation: u32,
}

#[derive(Default)]
struct Partition {
    messages: Vec<String>,
    /// The position of the next fetch.
    next: usize,
    /// The position at which a new member starts.
    committed: usize,
    settled: BTreeSet<usize>,
    paused_until: Option<Instant>,
    /// True if the partition belongs to another member.
    away: bool,
}

/// Partition, offset, generation of the assignment.
type Tag = (u32, usize, u32);

impl Log {
    fn new(clock: &VirtualClock) -> Self {
        Self { state: Arc::default(), changed: Arc::default(), clock: clock.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn append(&self, partition: u32, names: &[&str]) {
        let mut state = self.state();
        state.partitions.entry(partition).or_default().messages.extend(names.iter().map(|name| (*name).to_owned()));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The partition goes to another member, or comes back from it.
    fn assign(&self, partition: u32, here: bool) {
        let mut state = self.state();
        state.generation += 1;
        let part = state.partitions.entry(partition).or_default();
        // The new member starts at the committed position.
        (part.away, part.next, part.paused_until) = (!here, part.committed, None);
        part.settled.clear();
        if !here {
            state.revoked.push(Position::of("log").partition(partition));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn committed(&self, partition: u32) -> usize {
        self.state().partitions[&partition].committed
    }

    fn fetch(&self, room: usize) -> Result<Received<Tag>, Option<Instant>> {
        let now = self.clock.now();
        let mut state = self.state();
        if !state.revoked.is_empty() {
            return Ok(Received::Revoked(std::mem::take(&mut state.revoked)));
        }
        let generation = state.generation;
        let (mut fetched, mut wake) = (Vec::new(), None);
        for (number, part) in &mut state.partitions {
            if let Some(until) = part.paused_until.filter(|until| *until > now) {
                wake = Some(wake.map_or(until, |wake: Instant| wake.min(until)));
                continue;
            }
            while fetched.len() < room && !part.away && part.next < part.messages.len() {
                let name = &part.messages[part.next];
                let position = Position::of("log").partition(*number).offset(part.next);
                let delivery = Delivery::new(position, Vec::new()).header("user", &name[..1]).header("name", &**name);
                fetched.push((delivery, (*number, part.next, generation)));
                part.next += 1;
            }
        }
        if fetched.is_empty() { Err(wake) } else { Ok(Received::Deliveries(fetched)) }
    }
}

struct Member(Log);

#[async_trait]
impl Source for Member {
    type Tag = Tag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any).keeps_order()
    }

    fn settler(&self) -> Arc<dyn Settle<Tag>> {
        Arc::new(self.0.clone())
    }

    async fn receive(&mut self, room: usize) -> Result<Received<Tag>, SourceError> {
        loop {
            let changed = self.0.changed.notified();
            match self.0.fetch(room) {
                Ok(received) => return Ok(received),
                Err(None) => changed.await,
                Err(Some(wake)) => tokio::select! {
                    () = changed => {}
                    () = self.0.clock.sleep_until(wake) => {}
                },
            }
        }
    }

    async fn close(&mut self) {}
}

#[async_trait]
impl Settle<Tag> for Log {
    async fn settle(&self, _: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError> {
        let (number, offset, generation) = *tag;
        let mut state = self.state();
        let current = state.generation;
        let part = state.partitions.get_mut(&number).unwrap();
        if part.away || generation != current {
            return Err(SourceError::new(SourceErrorKind::Gone, "the partition was assigned anew"));
        }
        match settlement {
            Settlement::Ack | Settlement::DeadLetter(_) => {
                part.settled.insert(offset);
                while part.settled.remove(&part.committed) {
                    part.committed += 1;
                }
            }
            // All later messages of the partition are delivered again, too.
            Settlement::Retry(retry) => {
                part.next = part.next.min(offset);
                let until = self.clock.now() + retry.after;
                part.paused_until = Some(part.paused_until.map_or(until, |paused| paused.max(until)));
            }
            _ => {}
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn keep_alive(&self, _: &[&Tag]) -> Result<(), SourceError> {
        Ok(())
    }
}

type Runs = Arc<Mutex<Vec<String>>>;

async fn consume(world: &World, log: &Log, runs: &Runs) -> tokio::task::JoinHandle<()> {
    let (_, executor) = world.executor(Policy::new());
    let (runs, clock) = (runs.clone(), world.clock.clone());
    let handling = Messages::raw().ordered_by(KeyFrom::header("user")).keyed(KeyFrom::position()).run(move |message| {
        let (runs, clock) = (runs.clone(), clock.clone());
        async move {
            clock.sleep_until(clock.now() + ms(100)).await;
            let name = String::from_utf8(message.delivery.headers.first("name").unwrap().into()).unwrap();
            let first = !runs.lock().unwrap().contains(&name);
            runs.lock().unwrap().push(name.clone());
            match name.ends_with('!') && first {
                true => HandlerResult::Again { after: None, error: "as told".into() },
                false => HandlerResult::Done,
            }
        }
    });
    let consumer = Consumer::builder(Member(log.clone()), "log", &executor).build(handling).unwrap();
    let task = tokio::spawn(async move { drop(consumer.run(std::future::pending()).await) });
    world.clock.settle().await;
    task
}

#[tokio::test]
async fn a_seek_redelivers_later_messages_and_completed_ones_do_not_run_again() {
    let world = World::new();
    let (log, runs) = (Log::new(&world.clock), Runs::default());
    consume(&world, &log, &runs).await;
    log.append(0, &["a1!", "b1", "a2", "b2", "a3"]);
    log.append(1, &["c1", "c2"]);
    world.clock.advance(ms(900)).await;
    // The partition with the failed message waits, including later messages. The other partition continues.
    assert_eq!((log.committed(0), log.committed(1)), (0, 2));
    world.clock.advance(secs(10)).await;
    let runs = runs.lock().unwrap();
    let of = |user: char| runs.iter().filter(|name| name.starts_with(user)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (of('a'), of('b')),
        (["a1!", "a1!", "a2", "a3"].map(Into::into).to_vec(), ["b1", "b2"].map(Into::into).to_vec())
    );
    assert_eq!((log.committed(0), log.committed(1)), (5, 2));
}

#[tokio::test]
async fn after_a_rebalance_nothing_is_settled_for_the_old_member_and_nothing_done_is_run_again() {
    let world = World::new();
    let (log, runs) = (Log::new(&world.clock), Runs::default());
    consume(&world, &log, &runs).await;
    log.append(0, &["a1", "a2", "b1"]);
    world.clock.advance(ms(50)).await;
    log.assign(0, false);
    world.clock.advance(secs(1)).await;
    // What ran is recorded, what waited was not run, and nothing is committed.
    assert_eq!((runs.lock().unwrap().join(" "), log.committed(0)), ("a1 b1".to_owned(), 0));
    log.assign(0, true);
    world.clock.advance(secs(5)).await;
    assert_eq!((runs.lock().unwrap().join(" "), log.committed(0)), ("a1 b1 a2".to_owned(), 3));
}

#[tokio::test]
async fn a_member_that_dies_loses_nothing_that_was_not_committed() {
    let world = World::new();
    let (log, runs) = (Log::new(&world.clock), Runs::default());
    let first = consume(&world, &log, &runs).await;
    log.append(0, &["a1", "b1!", "c1", "a2"]);
    world.clock.advance(ms(150)).await;
    // b1 failed, c1 after it is done, and a2 runs. The committed prefix ends with a1.
    assert_eq!(log.committed(0), 1);
    first.abort();
    assert!(first.await.is_err());
    log.assign(0, false);
    log.assign(0, true);
    log.state().revoked.clear();
    consume(&world, &log, &runs).await;
    world.clock.advance(secs(120)).await;
    let mut all = runs.lock().unwrap().clone();
    all.sort();
    assert_eq!((log.committed(0), all.join(" ")), (4, "a1 a2 b1! b1! c1".to_owned()));
}

//! The adapter of the simulated broker: it is pushed to, as far as its prefetch goes.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, DelaySupport, Delivery, Position, Received, Settle, Settlement, Source, SourceCapabilities,
    SourceError, SourceErrorKind,
};
use tokio::time::Instant;

use crate::broker::bugs::Bug;
use crate::broker::simulated::{HELD_FOR, Holding, Simulated, Stored, last_of_each};

/// A session, whose deliveries return to the broker after the drop of the session and all its tags.
pub struct Session {
    number: u32,
    broker: Simulated,
    tags: Mutex<u64>,
    closed: AtomicBool,
}

#[derive(Clone)]
pub struct Tag {
    session: Arc<Session>,
    number: u64,
    /// The message that a bug settles a second time.
    stored: Stored,
}

pub struct Client {
    broker: Simulated,
    session: Arc<Session>,
    prefetch: Option<usize>,
    stock: VecDeque<(Delivery, Tag)>,
}

impl Session {
    pub fn open(broker: &Simulated) -> Arc<Self> {
        broker.state().sessions += 1;
        let number = broker.state().sessions;
        Arc::new(Self { number, broker: broker.clone(), tags: Mutex::default(), closed: AtomicBool::new(false) })
    }

    fn is_cut(&self) -> bool {
        self.number < self.broker.state().living
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.broker.requeue(|holding| holding.session == self.number);
    }
}

impl Client {
    pub fn new(broker: Simulated, session: Arc<Session>) -> Self {
        Self { broker, session, prefetch: None, stock: VecDeque::new() }
    }

    /// Fetches messages up to the prefetch.
    fn fill(&mut self, room: usize) -> Result<(), SourceError> {
        let prefetch = *self.prefetch.get_or_insert(room);
        let session = &self.session;
        loop {
            let held = self.broker.state().held.iter().filter(|holding| holding.session == session.number).count();
            if held >= prefetch {
                return Ok(());
            }
            let Some(stored) = self.broker.pop() else { return Ok(()) };
            if stored.is_unreadable {
                match self.broker.bug {
                    Some(Bug::UnreadableFailsForEver) => {
                        self.broker.state().waiting.push_front((Instant::now(), stored));
                        return Err(SourceError::new(SourceErrorKind::Transient, "the message cannot be read"));
                    }
                    Some(Bug::UnreadableIsAcked) => {}
                    bug => {
                        let reason = if bug == Some(Bug::UnreadableHasNoReason) { "" } else { "it cannot be read" };
                        self.broker.state().dead.push((stored, DeadLetter::because(reason, Timestamp(0))));
                    }
                }
                continue;
            }
            let number = {
                let mut tags = session.tags.lock().unwrap();
                *tags += 1;
                *tags
            };
            let delivery = self.read(&stored, number);
            let long = if self.broker.has(Bug::DroppedTagIsHeld) { 100 } else { 1 };
            let until = Instant::now() + HELD_FOR * long;
            let holding = Holding { session: session.number, tag: number, until, stored: stored.clone() };
            self.broker.state().held.push(holding);
            self.stock.push_back((delivery, Tag { session: session.clone(), number, stored }));
        }
    }

    fn read(&self, stored: &Stored, tag: u64) -> Delivery {
        let message = self.broker.shown(&stored.message);
        let id = if self.broker.has(Bug::IdOfTheDelivery) { format!("{tag}") } else { message.id };
        let mut delivery = Delivery::new(Position::of("queue"), message.body).id(id);
        delivery.headers = message.headers;
        if self.broker.by_time {
            delivery.headers.push("id", stored.message.id.as_str());
        }
        if self.broker.has(Bug::MarksShown) && stored.attempt > 1 {
            delivery.headers.push("attempt", stored.attempt.to_string());
        }
        (delivery.attempt, delivery.first_at) =
            (Some(stored.attempt).filter(|_| !self.broker.by_time), stored.first_at);
        delivery.deaths = if self.broker.has(Bug::DeathsNotRead) { 0 } else { stored.deaths };
        delivery
    }
}

#[async_trait]
impl Source for Client {
    type Tag = Tag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any).keep_alive(HELD_FOR / 3)
    }

    fn settler(&self) -> Arc<dyn Settle<Tag>> {
        Arc::new(Settler { broker: self.broker.clone(), last: Mutex::default() })
    }

    async fn receive(&mut self, room: usize) -> Result<Received<Tag>, SourceError> {
        loop {
            let broker = self.broker.clone();
            let changed = broker.changed.notified();
            if self.session.is_cut() && broker.has(Bug::EndsAtCut) {
                return Err(SourceError::new(SourceErrorKind::Fatal, "the connection was cut"));
            }
            broker.reached().await?;
            if self.session.is_cut() {
                (self.session, self.stock) = (Session::open(&broker), VecDeque::new());
                return Ok(Received::Revoked(vec![Position::of("queue")]));
            }
            broker.take_back();
            self.fill(room)?;
            let room = if broker.has(Bug::RoomIgnored) { usize::MAX } else { room };
            let ready: Vec<_> = self.stock.drain(..room.min(self.stock.len())).collect();
            if !ready.is_empty() {
                if broker.has(Bug::DroppedReceiveLoses) {
                    let numbers: Vec<_> = ready.iter().map(|(_, tag)| tag.number).collect();
                    let lost: Vec<_> = {
                        let mut state = broker.state();
                        state.held.extract_if(.., |holding| numbers.contains(&holding.tag)).collect()
                    };
                    tokio::task::yield_now().await;
                    broker.state().held.extend(lost);
                }
                return Ok(Received::Deliveries(ready));
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(broker.next_change()) => {}
            }
            if broker.by_time {
                return Ok(Received::Deliveries(Vec::new()));
            }
        }
    }

    async fn close(&mut self) {
        self.session.closed.store(true, SeqCst);
        let stock: Vec<_> = self.stock.iter().map(|(_, tag)| tag.number).collect();
        let all = self.broker.has(Bug::CloseGivesAllBack);
        if !self.broker.has(Bug::CloseKeepsStock) {
            let number = self.session.number;
            self.broker.requeue(|holding| holding.session == number && (all || stock.contains(&holding.tag)));
            self.stock.clear();
        }
    }
}

struct Settler {
    broker: Simulated,
    /// The message that a bug settles instead.
    last: Mutex<u64>,
}

#[async_trait]
impl Settle<Tag> for Settler {
    async fn settle(&self, _: &Delivery, tag: &Tag, settlement: &Settlement) -> Result<(), SourceError> {
        let broker = &self.broker;
        let session = tag.session.number;
        broker.reached().await?;
        if broker.has(Bug::DoneBehindTheEnd) && tag.session.closed.load(SeqCst) {
            return Ok(());
        }
        if broker.has(Bug::AckForgotten) && *settlement == Settlement::Ack {
            return Ok(());
        }
        let mut number = tag.number;
        if broker.has(Bug::TagOfTheLastCall) {
            *self.last.lock().unwrap() = number;
            tokio::task::yield_now().await;
            number = *self.last.lock().unwrap();
        }
        let stored = match broker.release(session, number) {
            Err(_) if broker.has(Bug::SecondRetryIsACopy) && matches!(settlement, Settlement::Retry(_)) => {
                tag.stored.clone()
            }
            Err(_) if broker.has(Bug::SecondDeadLetterIsKept) && matches!(settlement, Settlement::DeadLetter(_)) => {
                tag.stored.clone()
            }
            released => released?,
        };
        match settlement {
            Settlement::Ack if broker.has(Bug::AckTakesAllBefore) => {
                broker.state().held.retain(|holding| holding.session != session || holding.tag > tag.number);
            }
            Settlement::Ack => {}
            Settlement::Retry(retry) => self.retry(stored, retry),
            Settlement::GiveBack => self.give_back(stored),
            Settlement::DeadLetter(letter) => self.put_aside(stored, letter.clone()),
            _ => return Err(SourceError::new(SourceErrorKind::Fatal, "this broker cannot do that")),
        }
        broker.changed.notify_waiters();
        Ok(())
    }

    async fn keep_alive(&self, held: &[&Tag]) -> Result<(), SourceError> {
        self.broker.reached().await?;
        if self.broker.has(Bug::KeepAliveDoesNothing) {
            return Ok(());
        }
        self.broker.take_back();
        let is_held = |holding: &Holding| {
            held.iter().any(|tag| (tag.session.number, tag.number) == (holding.session, holding.tag))
        };
        for holding in self.broker.state().held.iter_mut().filter(|holding| is_held(holding)) {
            holding.until = Instant::now() + HELD_FOR;
        }
        Ok(())
    }
}

impl Settler {
    fn retry(&self, mut stored: Stored, retry: &idempotent_mq::Retry) {
        let broker = &self.broker;
        stored.message = broker.copy(&stored.message);
        let left = (retry.attempt, retry.first_at);
        (stored.attempt, stored.first_at) = match broker.bug {
            Some(Bug::AttemptNotLeft) => (stored.attempt, Some(left.1)),
            Some(Bug::AttemptInAByte) => (left.0 % 256, Some(left.1)),
            Some(Bug::RetryCounts) => (stored.attempt + 1, Some(left.1)),
            Some(Bug::FirstSeenInSeconds) => (left.0, Some(Timestamp(left.1.0 / 1_000_000 * 1_000_000))),
            _ => (left.0, Some(left.1)),
        };
        match broker.bug {
            Some(Bug::RetryAcked) => {}
            Some(Bug::DelayIgnored) => broker.put(Duration::ZERO, stored),
            Some(Bug::DeathsForgottenByRetry) => broker.put(retry.after, Stored { deaths: 0, ..stored }),
            _ => broker.put(retry.after, stored),
        }
    }

    fn give_back(&self, mut stored: Stored) {
        match self.broker.bug {
            Some(Bug::GiveBackAcks) => return,
            Some(Bug::GiveBackCounts) => stored.attempt += 1,
            Some(Bug::GiveBackBeginsAnew) => stored.attempt = 1,
            Some(Bug::GiveBackWaits) => return self.broker.put(Duration::from_secs(60), stored),
            _ => {}
        }
        self.broker.state().waiting.push_front((Instant::now(), stored));
    }

    fn put_aside(&self, mut stored: Stored, mut letter: idempotent_mq::DeadLetter) {
        match self.broker.bug {
            Some(Bug::DeadLetterNotKept) => return,
            Some(Bug::DeadLetterNotAcked) => self.broker.put(Duration::ZERO, stored.clone()),
            Some(Bug::DeadLetterWithoutHeaders) => stored.message.headers = idempotent_mq::Headers::default(),
            Some(Bug::DeadLetterWithOneHeaderOfAName) => stored.message.headers = last_of_each(&stored.message.headers),
            Some(Bug::DeadLetterWithoutReason) => letter.reason = "".into(),
            Some(Bug::DeathsNotLeft) => letter.deaths = 1,
            _ => {}
        }
        self.broker.state().dead.push((stored, letter));
    }
}

//! A small broker in memory, on tokio's paused time: it delays, puts aside, and takes back what is not kept alive.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{
    DeadLetter, DeadLetters, Delivery, Headers, LetterBox, Position, SourceError, SourceErrorKind, StoredLetter,
};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::broker::bugs::Bug;
use crate::broker::client::{Client, Session};

/// The visibility timeout.
pub const HELD_FOR: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct Simulated {
    pub bug: Option<Bug>,
    /// Holds for a time and not by a connection, has no place for attempts, shows the id among the headers, and does not
    /// wait for ever in one `receive`.
    pub by_time: bool,
    state: Arc<Mutex<State>>,
    pub changed: Arc<Notify>,
}

#[derive(Default)]
pub struct State {
    pub waiting: VecDeque<(Instant, Stored)>,
    pub held: Vec<Holding>,
    pub dead: Vec<(Stored, DeadLetter)>,
    /// The ids of letters that a reader has and others do not see.
    hidden: BTreeSet<String>,
    pub sessions: u32,
    /// The first session that is not closed.
    pub living: u32,
    pub outage: Option<Outage>,
}

/// A message, and the marks on it.
#[derive(Clone)]
pub struct Stored {
    pub message: Message,
    pub is_unreadable: bool,
    pub attempt: u32,
    pub first_at: Option<Timestamp>,
    pub deaths: u32,
}

impl Stored {
    fn new(message: Message) -> Self {
        Self { message, is_unreadable: false, attempt: 1, first_at: None, deaths: 0 }
    }
}

pub struct Holding {
    pub session: u32,
    /// A number of the session's.
    pub tag: u64,
    pub until: Instant,
    pub stored: Stored,
}

impl Simulated {
    /// Creates a broker on a clock that moves only for waiting tasks.
    pub async fn new(bug: Option<Bug>) -> Self {
        tokio::time::pause();
        let by_time = bug == Some(Bug::GoneAtCut);
        Self { bug, by_time, state: Arc::default(), changed: Arc::default() }
    }

    pub async fn by_time() -> Self {
        Self { by_time: true, ..Self::new(None).await }
    }

    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns messages to the head of the queue.
    pub fn requeue(&self, which: impl Fn(&Holding) -> bool) {
        let mut state = self.state();
        let (gone, kept) = state.held.drain(..).partition(|holding| which(holding));
        state.held = kept;
        for holding in Vec::<Holding>::into_iter(gone).rev() {
            state.waiting.push_front((Instant::now(), holding.stored));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns an error if the broker refuses connections, and never returns if it is silent.
    pub async fn reached(&self) -> Result<(), SourceError> {
        let outage = self.state().outage;
        match outage {
            None => Ok(()),
            Some(Outage::Silent) => std::future::pending().await,
            Some(_) => Err(SourceError::new(SourceErrorKind::Transient, "the broker cannot be reached")),
        }
    }

    pub fn take_back(&self) {
        let now = Instant::now();
        if self.has(Bug::LostAtCrash) {
            self.state().held.retain(|holding| holding.until > now);
        }
        if self.state().held.iter().any(|holding| holding.until <= now) {
            self.requeue(|holding| holding.until <= now);
        }
    }

    /// The next that is due, in the order they came.
    pub fn pop(&self) -> Option<Stored> {
        let now = Instant::now();
        let mut state = self.state();
        let is_due = |(due, _): &(Instant, Stored)| *due <= now;
        let at = match self.has(Bug::LastInFirstOut) {
            true => state.waiting.iter().rposition(is_due),
            false => state.waiting.iter().position(is_due),
        };
        state.waiting.remove(at?).map(|(_, stored)| stored)
    }

    /// Returns the time of the next possible change.
    pub fn next_change(&self) -> Instant {
        let state = self.state();
        let due = state.waiting.iter().map(|(due, _)| *due);
        let times = due.chain(state.held.iter().map(|holding| holding.until));
        times.min().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    pub fn put(&self, after: Duration, stored: Stored) {
        self.state().waiting.push_back((Instant::now() + after, stored));
        self.changed.notify_waiters();
    }

    /// Removes and returns the delivery of this tag.
    pub fn release(&self, session: u32, tag: u64) -> Result<Stored, SourceError> {
        self.take_back();
        let mut state = self.state();
        let stale = self.has(Bug::StaleTagAcks);
        let at = state.held.iter().position(|holding| holding.tag == tag && (stale || holding.session == session));
        let gone = || SourceError::new(SourceErrorKind::Gone, "it is not held any more");
        Ok(state.held.remove(at.ok_or_else(gone)?).stored)
    }

    /// Returns the message as the adapter decodes it.
    pub fn shown(&self, message: &Message) -> Message {
        let mut shown = message.clone();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned().into_bytes();
        match self.bug {
            Some(Bug::BodyEndsAtNul) => {
                let end = shown.body.iter().position(|byte| *byte == 0);
                shown.body.truncate(end.unwrap_or(usize::MAX));
            }
            Some(Bug::BodyCutOff) => shown.body.truncate(1 << 16),
            Some(Bug::HeadersAsText) => {
                shown.headers = message.headers.iter().map(|(name, value)| (name, text(value))).collect();
            }
            Some(Bug::LastHeaderOfAName) => shown.headers = last_of_each(&message.headers),
            _ => {}
        }
        shown
    }

    /// Returns the copy that replaces the original.
    pub fn copy(&self, message: &Message) -> Message {
        let mut copy = message.clone();
        match self.bug {
            Some(Bug::CopyWithoutHeaders) => copy.headers = Headers::default(),
            Some(Bug::CopyWithHeadersTurned) => {
                let mut headers: Vec<_> = copy.headers.iter().collect();
                headers.reverse();
                copy.headers = headers.into_iter().collect();
            }
            Some(Bug::CopyWithOneHeaderOfAName) => copy.headers = last_of_each(&copy.headers),
            Some(Bug::LongCopyCutOff) => copy.body.truncate(1 << 17),
            Some(Bug::CopyWithoutId) => copy.id.clear(),
            Some(Bug::CopyAsText) => copy.body = String::from_utf8_lossy(&copy.body).into_owned().into_bytes(),
            _ => {}
        }
        copy
    }
}

pub fn last_of_each(headers: &Headers) -> Headers {
    headers.iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[async_trait]
impl Broker for Simulated {
    type Source = Client;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.patience, limits.held_for) = (Duration::from_secs(10), Some(HELD_FOR));
        limits.stays_held = self.by_time;
        limits
    }

    async fn source(&self) -> Client {
        Client::new(self.clone(), Session::open(self))
    }

    async fn publish(&self, message: Message) {
        self.put(Duration::ZERO, Stored::new(message));
    }

    async fn publish_unreadable(&self) {
        self.put(Duration::ZERO, Stored { is_unreadable: true, ..Stored::new(Message::default()) });
    }

    async fn publish_forged(&self) {
        let attempt = if self.has(Bug::ForgedAttemptBelieved) { 70 } else { 1 };
        self.put(Duration::ZERO, Stored { attempt, ..Stored::new(Message::new("forged", "")) });
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let state = self.state();
        state.dead.iter().map(|(stored, letter)| (stored.message.clone(), letter.clone())).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(Letters { broker: self.clone(), seen: BTreeSet::new(), listed: None })
    }

    async fn is_empty(&self) -> bool {
        self.take_back();
        let state = self.state();
        state.waiting.is_empty() && state.held.is_empty()
    }

    async fn cut(&self) {
        if self.by_time && !self.has(Bug::GoneAtCut) {
            return;
        }
        let mut state = self.state();
        state.living = state.sessions + 1;
        if self.has(Bug::LostAtCut) {
            state.held.clear();
        }
        drop(state);
        self.requeue(|_| true);
    }

    async fn begin_outage(&self, outage: Outage) {
        self.cut().await;
        self.state().outage = Some(outage);
    }

    async fn end_outage(&self) {
        self.state().outage = None;
    }
}

/// A handle to the dead letters. No two of them have the same message id.
struct Letters {
    broker: Simulated,
    seen: BTreeSet<String>,
    listed: Option<Stored>,
}

impl Letters {
    /// Removes a letter. Returns whether it was there.
    fn take(&self, letter: &Stored) -> Option<DeadLetter> {
        let mut state = self.broker.state();
        let at = state.dead.iter().position(|(stored, _)| stored.message.id == letter.message.id)?;
        Some(state.dead.remove(at).1)
    }
}

#[async_trait]
impl LetterBox for Letters {
    type Letter = Stored;

    fn listed(&mut self) -> &mut Option<Stored> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let state = self.broker.state();
        Ok((state.dead.len() - state.hidden.len()) as u64)
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, Stored)>, SourceError> {
        tokio::task::yield_now().await;
        let mut state = self.broker.state();
        let is_new = |id: &String| !self.seen.contains(id) && !state.hidden.contains(id);
        let Some((stored, letter)) = state.dead.iter().find(|(stored, _)| is_new(&stored.message.id)).cloned() else {
            return Ok(None);
        };
        self.seen.insert(stored.message.id.clone());
        if self.broker.has(Bug::ReadLettersStayHidden) {
            state.hidden.insert(stored.message.id.clone());
        }
        let delivery = Delivery::new(Position::of("dead"), stored.message.body.clone()).id(stored.message.id.clone());
        Ok(Some((StoredLetter::at(&stored.message.id, delivery, Some(letter)), stored)))
    }

    async fn revive(&mut self, letter: &Stored) -> Result<bool, SourceError> {
        tokio::task::yield_now().await;
        let mut stored = letter.clone();
        match self.take(letter) {
            Some(_) if self.broker.has(Bug::ForgedQueueBelieved) && letter.message.id == "forged" => return Ok(true),
            Some(letter) => (stored.first_at, stored.deaths) = (Some(letter.first_at), letter.deaths),
            None if self.broker.has(Bug::GoneLetterPutBack) => stored.message.id.push('\''),
            None => return Ok(false),
        }
        if !self.broker.has(Bug::AttemptOutlivesDeath) {
            stored.attempt = 1;
        }
        self.broker.put(Duration::ZERO, stored);
        Ok(true)
    }

    async fn remove(&mut self, letter: &Stored) -> Result<bool, SourceError> {
        match self.broker.bug {
            Some(Bug::DiscardDoesNothing) => {}
            Some(Bug::DiscardTakesAllBefore) => {
                let mut state = self.broker.state();
                let at = state.dead.iter().position(|(stored, _)| stored.message.id == letter.message.id);
                drop(state.dead.drain(..=at.unwrap_or_default()));
            }
            _ => {
                self.take(letter);
                if self.broker.has(Bug::DiscardPutsBack) {
                    self.broker.put(Duration::ZERO, letter.clone());
                }
            }
        }
        Ok(true)
    }
}

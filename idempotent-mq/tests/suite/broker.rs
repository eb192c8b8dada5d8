//! A simulated broker in memory, on the test's clock. The broker keeps held messages until they are settled, delays
//! and counts messages, and records all calls.
#[path = "broker/client.rs"]
mod client;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use idempotent_core::Clock;
use idempotent_mq::{
    DeadLetter, DelaySupport, Delivery, Position, Received, Retry, Settlement, SourceCapabilities, SourceErrorKind,
};
use idempotent_testkit::VirtualClock;
use tokio::sync::Notify;

pub use self::client::SimulatedSource;

#[derive(Clone)]
pub struct Broker {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    clock: VirtualClock,
    start: Instant,
}

/// The properties of a simulated broker.
#[derive(Clone)]
pub struct Ways {
    pub capabilities: SourceCapabilities,
    /// Delays of its own, in place of those it is asked for.
    pub steps: Vec<Duration>,
    /// The visibility timeout, or `None` without one.
    pub hold: Option<Duration>,
    /// True if messages can carry marks.
    pub marks: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self { capabilities: SourceCapabilities::new(DelaySupport::Any), steps: Vec::new(), hold: None, marks: true }
    }
}

struct State {
    ways: Ways,
    waiting: VecDeque<(Instant, Stored)>,
    held: Vec<Holding>,
    events: Vec<Event>,
    dead: Vec<(Delivery, DeadLetter)>,
    faults: VecDeque<SourceErrorKind>,
    receive_faults: VecDeque<SourceErrorKind>,
    revoked: Vec<Position>,
    hanging: u32,
    rooms: Vec<usize>,
    strangers: usize,
    silent: u32,
    close_hangs: bool,
    next_tag: u64,
    session: u32,
}

/// A message as the broker keeps it.
#[derive(Clone)]
struct Stored {
    name: String,
    delivery: Delivery,
    times: u32,
}

struct Holding {
    tag: u64,
    session: u32,
    until: Option<Instant>,
    stored: Stored,
}

/// An event with its time in ms since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: u128,
    pub name: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Delivered,
    Settled(Settlement),
    Refused(SourceErrorKind),
    KeptAlive,
    TakenBack,
    Closed,
}

impl Broker {
    pub fn new(clock: &VirtualClock, ways: Ways) -> Self {
        let state = State {
            ways,
            waiting: VecDeque::new(),
            held: Vec::new(),
            events: Vec::new(),
            dead: Vec::new(),
            faults: VecDeque::new(),
            receive_faults: VecDeque::new(),
            revoked: Vec::new(),
            hanging: 0,
            rooms: Vec::new(),
            strangers: 0,
            silent: 0,
            close_hangs: false,
            next_tag: 0,
            session: 0,
        };
        let start = clock.now() - clock.elapsed();
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default(), clock: clock.clone(), start }
    }

    /// A consumer's connection.
    pub fn connect(&self) -> SimulatedSource {
        self.state().session += 1;
        let session = self.state().session;
        SimulatedSource::new(self.clone(), session)
    }

    pub fn send(&self, name: &str, body: &str) {
        self.send_delivery(name, Delivery::new(Position::of("orders"), body.into()).id(name));
    }

    pub fn send_all(&self, names: &[&str]) {
        names.iter().for_each(|name| self.send(name, "{}"));
    }

    /// Sends `m0`, `m1` and so on.
    pub fn send_numbered(&self, count: u32) {
        (0..count).for_each(|number| self.send(&format!("m{number}"), "{}"));
    }

    pub fn send_delivery(&self, name: &str, mut delivery: Delivery) {
        delivery.attempt = delivery.attempt.or(self.state().ways.marks.then_some(1));
        let stored = Stored { name: name.to_owned(), delivery, times: 0 };
        let now = self.clock.now();
        self.state().waiting.push_back((now, stored));
        self.changed.notify_waiters();
    }

    /// All connections so far are cut: what they held comes again, in order, and they can settle nothing any more.
    pub fn cut(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        state.session += 1;
        let held: Vec<_> = state.held.drain(..).collect();
        for Holding { stored, .. } in held.into_iter().rev() {
            // A broker with steps of its own counts a crash as a failed delivery.
            let step = state.ways.steps.get(stored.times as usize - 1).copied().unwrap_or_default();
            state.waiting.push_front((now + step, stored));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The next settlements fail so.
    pub fn fail_settling(&self, kind: SourceErrorKind, times: usize) {
        self.state().faults.extend(std::iter::repeat_n(kind, times));
    }

    /// The next receives fail so.
    pub fn fail_receiving(&self, kind: SourceErrorKind, times: usize) {
        self.state().receive_faults.extend(std::iter::repeat_n(kind, times));
        self.changed.notify_waiters();
    }

    /// The next settlements are not applied and never answered.
    pub fn hang_settling(&self, times: u32) {
        self.state().silent = times;
    }

    /// Sources do not come to an end of closing.
    pub fn hang_closing(&self) {
        self.state().close_hangs = true;
    }

    /// The next calls that keep deliveries alive do nothing and never end.
    pub fn hang_keep_alive(&self, times: u32) {
        self.state().hanging = times;
    }

    /// Assigns the messages of this position to another consumer, so that this one must not settle them.
    pub fn revoke(&self, area: Position) {
        let mut state = self.state();
        state.held.retain(|holding| !holding.stored.delivery.position.lies_in(&area));
        state.revoked.push(area);
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    /// Returns the events of a message, with times.
    pub fn story(&self, name: &str) -> Vec<(u128, What)> {
        self.events().into_iter().filter(|event| event.name == name).map(|event| (event.at, event.what)).collect()
    }

    /// Returns the settlements of a message in order.
    pub fn settlements(&self, name: &str) -> Vec<Settlement> {
        let settled = |(_, what)| match what {
            What::Settled(settlement) => Some(settlement),
            _ => None,
        };
        self.story(name).into_iter().filter_map(settled).collect()
    }

    pub fn retries(&self, name: &str) -> Vec<Retry> {
        let retry = |settlement| match settlement {
            Settlement::Retry(retry) => Some(retry),
            _ => None,
        };
        self.settlements(name).into_iter().filter_map(retry).collect()
    }

    /// At what times this message was delivered, in ms.
    pub fn delivered(&self, name: &str) -> Vec<u128> {
        self.story(name).into_iter().filter(|(_, what)| *what == What::Delivered).map(|(at, _)| at).collect()
    }

    pub fn is_acked(&self, name: &str) -> bool {
        self.settlements(name).last() == Some(&Settlement::Ack)
    }

    pub fn dead(&self) -> Vec<(Delivery, DeadLetter)> {
        self.state().dead.clone()
    }

    /// Messages neither settled nor given up.
    pub fn left(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.held.len()
    }

    /// The room of each receive.
    pub fn rooms(&self) -> Vec<usize> {
        self.state().rooms.clone()
    }

    /// Deliveries that were to be kept alive and are not held.
    pub fn strangers(&self) -> usize {
        self.state().strangers
    }

    pub fn held(&self) -> usize {
        self.state().held.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn write(&self, state: &mut State, name: &str, what: What) {
        let at = (self.clock.now() - self.start).as_millis();
        state.events.push(Event { at, name: name.to_owned(), what });
    }

    /// Takes back what was not kept alive; says when to look again.
    fn take_back(&self, state: &mut State) -> Option<Instant> {
        let now = self.clock.now();
        let (kept, lost): (Vec<_>, Vec<_>) =
            state.held.drain(..).partition(|holding| holding.until.is_none_or(|until| until > now));
        state.held = kept;
        for Holding { stored, .. } in lost {
            self.write(state, &stored.name, What::TakenBack);
            state.waiting.push_back((now, stored));
        }
        let due = state.waiting.iter().map(|(due, _)| *due);
        due.chain(state.held.iter().filter_map(|holding| holding.until)).min()
    }

    fn hand_out(&self, session: u32, room: usize) -> Result<Received<u64>, Option<Instant>> {
        let now = self.clock.now();
        let mut state = self.state();
        let next = self.take_back(&mut state);
        if !state.revoked.is_empty() {
            return Ok(Received::Revoked(std::mem::take(&mut state.revoked)));
        }
        let mut out = Vec::new();
        while out.len() < room {
            let Some(at) = state.waiting.iter().position(|(due, _)| *due <= now) else { break };
            let (_, mut stored) = state.waiting.remove(at).unwrap();
            stored.times += 1;
            state.next_tag += 1;
            let (tag, until) = (state.next_tag, state.ways.hold.map(|hold| now + hold));
            self.write(&mut state, &stored.name, What::Delivered);
            let counts = state.ways.capabilities.counts;
            let mut delivery = stored.delivery.clone();
            (delivery.delivered, delivery.redelivered) = (counts.then_some(stored.times), stored.times > 1);
            state.held.push(Holding { tag, session, until, stored });
            out.push((delivery, tag));
        }
        if out.is_empty() { Err(next) } else { Ok(Received::Deliveries(out)) }
    }
}

//! An exhaustive check of claims whose fencing number the client estimates, as the Redis store makes them.
//!
//! A client estimates a number, sends a conditional write, and reads the store's clock in the same pipeline. The adversary
//! picks the estimate, advances the clock between all steps, loses answers, applies a write after its sender has stopped
//! waiting, and lets a lease expire. Other claims are scripts, which the store executes at once. Each claim of the single key
//! is one client, so its owner token is its index.
//!
//! The check: the numbers of granted claims rise, in the order in which the store wrote them. A [`Fault`] removes one rule, and
//! then the check must fail.
use stateright::{Checker, Model, Property};

/// The number of clients.
const CLIENTS: usize = 3;
/// The largest value of the clock. Numbers may be one higher, and takeovers raise them further.
const LAST: u8 = 4;
const FIRST: u8 = 2;

/// A rule that is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Nothing is missing.
    None,
    /// A number below the clock after the write is granted.
    GrantsLate,
    /// The clock is read before the write.
    ReadsClockFirst,
    /// The script that raises a late number keeps the number.
    KeepsLateNumber,
    /// The script that raises a late number adds one, and ignores the clock.
    RaisesByOne,
    /// A client that repeats an unanswered claim gets the number that it had written.
    ForgetsUnanswered,
    /// A release deletes a record whose number the clock has not passed.
    DeletesAhead,
}

/// The record of the key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Record {
    number: u8,
    /// The client that holds the key, or `None` for a record that is kept only for its number.
    owner: Option<u8>,
    /// True if the lease has expired.
    is_expired: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Phase {
    #[default]
    Idle,
    /// The write and the reading of the clock are on their way. `read` is the clock, if it was read before the write.
    Sent {
        number: u8,
        read: Option<u8>,
    },
    /// The write was applied.
    Written {
        number: u8,
        read: Option<u8>,
    },
    /// The client calls the script next.
    Script {
        raises: bool,
    },
    Granted(u8),
    Over,
}

/// A write of a claim. The grant counts from here on, although its client learns of it later.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Write {
    client: usize,
    number: u8,
    is_granted: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State {
    clock: u8,
    record: Option<Record>,
    clients: [Phase; CLIENTS],
    /// Writes whose senders no longer wait.
    wire: [Option<u8>; CLIENTS],
    expiries: u8,
    /// The numbers of writes in the order of the store, from the first one whose claim may still be granted.
    writes: Vec<Write>,
    /// The highest granted number before these.
    highest: u8,
    /// True if a granted number was not higher than all before.
    is_violated: bool,
    seen: Seen,
}

/// Situations that must occur.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Seen {
    native: bool,
    raised: bool,
    late_write: bool,
    taken_over: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    /// Estimates a number, and sends the write with it.
    Send {
        client: usize,
        number: u8,
    },
    /// Calls the script without an estimate.
    SkipEstimate(usize),
    /// The store applies the write.
    Write(usize),
    /// The store reads its clock, and the client gets both answers.
    Answer(usize),
    /// The client stops waiting, and repeats its claim as a script.
    Repeat(usize),
    /// A write whose sender no longer waits is applied.
    LateWrite(usize),
    Script(usize),
    Release(usize),
    Tick,
    Expire,
    /// A record that was kept for its number expires.
    Forget,
}

struct NativeClaims(Fault);

/// The result of a check.
#[derive(Debug)]
pub struct Outcome {
    /// True if a granted number was not higher than all before.
    pub is_violated: bool,
    /// The names of the situations that never occurred.
    pub unseen: Vec<&'static str>,
    /// The number of different states.
    pub states: usize,
}

/// Checks the claims without one rule, exhaustively.
///
/// # Panics
/// If the checker stopped early although no property was violated.
#[must_use]
pub fn check(fault: Fault) -> Outcome {
    let checker = NativeClaims(fault).checker().spawn_bfs().join();
    let found = checker.discoveries();
    let is_violated = found.contains_key(RISES);
    assert!(is_violated || checker.is_done(), "the check is complete");
    let unseen = SIGHTS.into_iter().filter(|sight| !found.contains_key(sight)).collect();
    Outcome { is_violated, unseen, states: checker.unique_state_count() }
}

const RISES: &str = "numbers rise";
const SIGHTS: [&str; 4] = ["a native grant", "a raised number", "a late write", "a takeover"];

impl Model for NativeClaims {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            clock: FIRST,
            record: None,
            clients: [Phase::Idle; CLIENTS],
            wire: [None; CLIENTS],
            expiries: 1,
            writes: Vec::new(),
            highest: 0,
            is_violated: false,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            match state.clients[client] {
                Phase::Idle => {
                    // Too low, exact, and ahead of the clock.
                    let estimates = state.clock - 1..=state.clock + 1;
                    actions.extend(estimates.map(|number| Action::Send { client, number }));
                    actions.push(Action::SkipEstimate(client));
                }
                Phase::Sent { .. } => actions.extend([Action::Write(client), Action::Repeat(client)]),
                Phase::Written { .. } => actions.extend([Action::Answer(client), Action::Repeat(client)]),
                Phase::Script { .. } => actions.push(Action::Script(client)),
                Phase::Granted(_) => actions.push(Action::Release(client)),
                Phase::Over => {}
            }
            if state.wire[client].is_some() {
                actions.push(Action::LateWrite(client));
            }
        }
        if state.clock < LAST {
            actions.push(Action::Tick);
        }
        match state.record {
            Some(Record { owner: Some(_), is_expired: false, .. }) if state.expiries > 0 => {
                actions.push(Action::Expire)
            }
            Some(Record { owner: None, number, .. }) if number < state.clock => actions.push(Action::Forget),
            _ => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        match action {
            Action::Tick => next.clock += 1,
            Action::Expire => {
                next.expiries -= 1;
                if let Some(record) = &mut next.record {
                    record.is_expired = true;
                }
            }
            Action::Forget => next.record = None,
            Action::SkipEstimate(client) => next.clients[client] = Phase::Script { raises: false },
            Action::Send { client, number } => {
                let read = (self.0 == Fault::ReadsClockFirst).then_some(next.clock);
                next.clients[client] = Phase::Sent { number, read };
            }
            Action::Write(client) => {
                let Phase::Sent { number, read } = next.clients[client] else { return None };
                next.clients[client] = match next.write(client, number) {
                    true => Phase::Written { number, read },
                    false => Phase::Script { raises: false },
                };
            }
            Action::LateWrite(client) => {
                let number = next.wire[client].take()?;
                next.seen.late_write |= next.write(client, number);
            }
            Action::Answer(client) => {
                let Phase::Written { number, read } = next.clients[client] else { return None };
                if number >= read.unwrap_or(next.clock) || self.0 == Fault::GrantsLate {
                    next.seen.native = true;
                    next.grant(client, number);
                } else {
                    next.clients[client] = Phase::Script { raises: true };
                }
            }
            Action::Repeat(client) => {
                if let Phase::Sent { number, .. } = next.clients[client] {
                    next.wire[client] = Some(number);
                }
                next.clients[client] = Phase::Script { raises: self.0 != Fault::ForgetsUnanswered };
            }
            Action::Script(client) => self.script(&mut next, client),
            Action::Release(client) => self.release(&mut next, client),
        }
        next.compact();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let rises = Property::always(RISES, |_, state: &State| !state.is_violated);
        if self.0 != Fault::None {
            return vec![rises];
        }
        vec![
            rises,
            Property::sometimes(SIGHTS[0], |_, state: &State| state.seen.native),
            Property::sometimes(SIGHTS[1], |_, state: &State| state.seen.raised),
            Property::sometimes(SIGHTS[2], |_, state: &State| state.seen.late_write),
            Property::sometimes(SIGHTS[3], |_, state: &State| state.seen.taken_over),
            // The checker stops when every property has its trace. This property never has one.
            Property::always("the search goes on", |_, _| true),
        ]
    }
}

impl NativeClaims {
    /// Executes the claim script, which reads the clock and writes in one step.
    fn script(&self, state: &mut State, client: usize) {
        let Phase::Script { raises } = state.clients[client] else { return };
        let own = u8::try_from(client).ok();
        let higher = |number: u8| (number + 1).max(state.clock);
        let number = match state.record {
            None => state.clock,
            Some(Record { owner, number, .. }) if owner == own => match (raises, self.0) {
                (true, Fault::RaisesByOne) => number + 1,
                (true, fault) if fault != Fault::KeepsLateNumber => higher(number),
                _ => number,
            },
            Some(Record { owner: Some(_), is_expired: false, .. }) => {
                state.clients[client] = Phase::Over;
                return;
            }
            Some(Record { number, .. }) => higher(number),
        };
        let before = state.record.and_then(|record| record.owner);
        state.seen.taken_over |= before.is_some() && before != own;
        state.seen.raised |= before == own && state.record.is_some_and(|record| record.number < number);
        state.record = Some(Record { number, owner: own, is_expired: false });
        state.writes.push(Write { client, number, is_granted: false });
        state.grant(client, number);
    }

    /// Executes the release script. Only the owner of the record with this number changes it.
    fn release(&self, state: &mut State, client: usize) {
        let Phase::Granted(number) = state.clients[client] else { return };
        let owner = u8::try_from(client).ok();
        if state.record.is_some_and(|record| record.owner == owner && record.number == number) {
            let is_passed = number < state.clock || self.0 == Fault::DeletesAhead;
            state.record = (!is_passed).then_some(Record { number, owner: None, is_expired: false });
        }
        state.clients[client] = Phase::Over;
    }
}

impl State {
    /// Writes the record of a claim if the key is absent.
    fn write(&mut self, client: usize, number: u8) -> bool {
        let is_absent = self.record.is_none();
        if is_absent {
            self.record = Some(Record { number, owner: u8::try_from(client).ok(), is_expired: false });
            self.writes.push(Write { client, number, is_granted: false });
        }
        is_absent
    }

    /// Grants the last write of a client.
    fn grant(&mut self, client: usize, number: u8) {
        self.clients[client] = Phase::Granted(number);
        if let Some(write) = self.writes.iter_mut().rev().find(|write| write.client == client) {
            write.is_granted = true;
        }
        let mut highest = self.highest;
        for write in self.writes.iter().filter(|write| write.is_granted) {
            self.is_violated |= write.number <= highest;
            highest = highest.max(write.number);
        }
    }

    /// Drops writes that decide nothing any more.
    fn compact(&mut self) {
        let clients = self.clients;
        self.writes.retain(|write| write.is_granted || matches!(clients[write.client], Phase::Written { .. }));
        let settled = self.writes.iter().take_while(|write| write.is_granted).count();
        let highest = self.writes.drain(..settled).map(|write| write.number).max();
        self.highest = self.highest.max(highest.unwrap_or_default());
    }
}

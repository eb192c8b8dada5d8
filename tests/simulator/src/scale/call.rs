//! The way of a delivery through a process: the local decision, the claim, the run, the completion, the settlement.
use std::time::Duration;

use idempotent_core::__private::backoff;
use idempotent_core::{Claim, InFlight, OwnerToken, Settled};

use super::bug::Bug;
use super::clock::{Event, MILLISECOND, SECOND};
use super::load::from_quantiles;
use super::play::Play;
use super::process::Local;
use super::request::{Asked, Reply, Request};
use super::scenario::LEASE;

/// The quantiles of the time of a message between a process and a master, in µs. An assumption.
const NETWORK_US: [u64; 5] = [40, 100, 200, 500, 5_000];
/// The quantiles of the time of a handler. An assumption; the mean is about 0.2 s.
const HANDLER_US: [u64; 5] =
    [MILLISECOND, 150 * MILLISECOND, 400 * MILLISECOND, 1_500 * MILLISECOND, 5_000 * MILLISECOND];
/// The time of the first run of the hot key.
const HOT_HANDLER: u64 = 5 * SECOND;
/// The time after which a process takes an answer as lost.
const ANSWER_TIMEOUT: u64 = SECOND;
/// The number of answers that may be lost before a process gives up.
const MOST_LOST: u32 = 3;
/// The pauses after a refusal by a moving slot, and the time after which the delivery is postponed.
const REFUSED_PAUSE: u64 = 5 * MILLISECOND;
const REFUSED_FOR: u64 = 500 * MILLISECOND;

/// The state of one delivery in a process.
#[derive(Clone, Debug)]
pub(super) struct CallState {
    message: u32,
    tries: u32,
    process: usize,
    starts: u32,
    owner: OwnerToken,
    what: Asked,
    reply: Option<Reply>,
    granted_at: u64,
    is_running: bool,
    lost_answers: u32,
    refused: u32,
    refused_since: u64,
}

impl Play {
    /// Gives a delivery to a process.
    pub(super) fn deliver(&mut self, message: u32, tries: u32) {
        let Some(process) = self.any_process() else {
            self.events.add(self.now + SECOND, Event::Delivered { message, tries });
            return;
        };
        self.judge.delivered(message);
        if let Some(pause) = self.processes[process].refused_for(self.now) {
            self.postpone(message, tries, pause);
        } else if self.processes[process].has_place() {
            self.begin_call(process, message, tries);
        } else {
            self.processes[process].queue.push_back((message, tries));
        }
    }

    fn begin_call(&mut self, process: usize, message: u32, tries: u32) {
        match self.processes[process].local(message, self.now, self.setting.bug) {
            Local::Consumed => {
                self.judge.figures.cached += 1;
                self.judge.figures.duplicates += 1;
                self.judge.acknowledged(message, self.now);
                self.processes[process].trial_ended(self.now);
            }
            Local::InFlight => {
                self.processes[process].trial_ended(self.now);
                self.postpone_in_flight(message, tries, LEASE);
            }
            Local::Claim => {
                let call = self.calls.len() as u32;
                let is_held = self.processes[process].hold(message);
                self.judge.claimed(message, is_held, self.now);
                self.processes[process].calls.insert(call);
                self.calls.push(CallState {
                    message,
                    tries,
                    process,
                    starts: self.processes[process].starts,
                    owner: OwnerToken(u128::from(self.dice.roll()) + 1),
                    what: Asked::Claim,
                    reply: None,
                    granted_at: 0,
                    is_running: false,
                    lost_answers: 0,
                    refused: 0,
                    refused_since: 0,
                });
                self.send(call, 0);
            }
        }
    }

    /// Sends the request of a call after a pause.
    fn send(&mut self, call: u32, pause: u64) {
        let at = self.now + pause + from_quantiles(NETWORK_US, &mut self.dice);
        self.events.add(at, Event::Requested(call));
    }

    /// Applies the request of a call at its master.
    pub(super) fn requested(&mut self, call: u32) {
        let state = &self.calls[call as usize];
        let (message, what) = (state.message, state.what);
        let process = &self.processes[state.process];
        let place = self.judge.place(message);
        let retention = process.retention;
        let request = Request {
            place,
            owner: state.owner,
            layout: process.layout,
            retention,
            header: process.headers[place.slot as usize].clone(),
            client_clock: process.clock,
            what,
        };
        let served = self.cluster.serve(place.slot, self.now, &mut self.dice);
        let reply = self.cluster.apply(&request, self.now);
        if matches!(what, Asked::Complete(_))
            && matches!(reply, Reply::Settled { settled: Settled::Done, is_written: true, .. })
        {
            self.note_completion(message, retention.retain);
        }
        // One answer in 2,000 is lost.
        if self.dice.below(2_000) == 0 {
            self.judge.figures.lost_answers += 1;
            self.answer_lost(call);
            return;
        }
        self.calls[call as usize].reply = Some(reply);
        let at = served + from_quantiles(NETWORK_US, &mut self.dice);
        self.events.add(at, Event::Answered(call));
    }

    fn note_completion(&mut self, message: u32, retain: u64) {
        self.judge.completed(message, retain, self.now);
        let part = self.dice.unit();
        if let Some(at) = self.judge.probe_at(message, part) {
            self.events.add(at, Event::Probed(message));
        }
    }

    /// Repeats the request after a timeout, or gives up.
    fn answer_lost(&mut self, call: u32) {
        let state = &mut self.calls[call as usize];
        state.lost_answers += 1;
        state.reply = None;
        if state.lost_answers < MOST_LOST {
            self.send(call, ANSWER_TIMEOUT);
        } else {
            self.events.add(self.now + ANSWER_TIMEOUT, Event::Answered(call));
        }
    }

    /// Returns whether the process of a call is still the one that sent its request.
    fn is_current(&self, call: u32) -> bool {
        let state = &self.calls[call as usize];
        let process = &self.processes[state.process];
        process.is_alive && process.starts == state.starts
    }

    /// Handles an answer in the process.
    pub(super) fn answered(&mut self, call: u32) {
        if !self.is_current(call) {
            return;
        }
        let state = &mut self.calls[call as usize];
        let (message, process, tries) = (state.message, state.process, state.tries);
        let reply = state.reply.take();
        if !matches!(reply, None | Some(Reply::Down)) {
            self.processes[process].store_answered();
        }
        match reply {
            // No answer arrived: the outcome is unknown, and a later delivery will show it.
            None => {
                self.processes[process].trial_ended(self.now);
                self.end_postponed(call, SECOND);
            }
            Some(Reply::Claim(claim)) => self.claim_answered(call, claim),
            Some(Reply::Settled { settled, is_full, .. }) => self.settled(call, settled, is_full),
            Some(Reply::Header(header)) => {
                let slot = self.judge.place(message).slot;
                let known = self.processes[process].headers[slot as usize].clone();
                self.learn(process, slot, header.clone());
                // The master has no header, or the open segment has to be closed.
                if header.is_none() || header == known {
                    self.roll(process, slot);
                }
                self.send(call, 0);
            }
            Some(Reply::TryAgain) => self.refused(call),
            Some(Reply::Down) => {
                let dice = &mut self.dice;
                self.processes[process].store_failed(self.now, dice);
                self.retry_or_postpone(call, tries);
            }
        }
    }

    /// Repeats the request of a call whose slot is moving.
    fn refused(&mut self, call: u32) {
        self.judge.figures.refused += 1;
        let now = self.now;
        let state = &mut self.calls[call as usize];
        let (process, tries) = (state.process, state.tries);
        if state.refused == 0 {
            state.refused_since = now;
        }
        state.refused += 1;
        let pause = REFUSED_PAUSE << (state.refused - 1).min(4);
        if self.setting.bug == Some(Bug::RefusalOpensBreaker) {
            let dice = &mut self.dice;
            self.processes[process].store_failed(now, dice);
            self.retry_or_postpone(call, tries);
        } else if now + pause > state.refused_since + REFUSED_FOR {
            self.retry_or_postpone(call, tries);
        } else {
            self.send(call, pause);
        }
    }

    /// Postpones a delivery whose claim failed. A settlement is repeated until the lease ends.
    fn retry_or_postpone(&mut self, call: u32, tries: u32) {
        let state = &self.calls[call as usize];
        let (what, granted_at) = (state.what, state.granted_at);
        if what != Asked::Claim && self.now < granted_at + LEASE * 9 / 10 {
            self.send(call, SECOND / 2);
        } else {
            let pause = self.delay(SECOND, 30 * SECOND, tries);
            self.end_postponed(call, pause);
        }
    }

    fn claim_answered(&mut self, call: u32, claim: Claim) {
        let state = &self.calls[call as usize];
        let (message, process, tries) = (state.message, state.process, state.tries);
        match claim {
            Claim::Acquired(grant) => {
                let state = &mut self.calls[call as usize];
                state.granted_at = self.now;
                state.is_running = true;
                // One handler in 100 fails.
                let fails = self.dice.below(100) == 0;
                state.what = if fails { Asked::Release(grant.fencing) } else { Asked::Complete(grant.fencing) };
                self.judge.run_began(message, grant.taken_over.is_some(), self.now);
                let is_hot = self.setting.hot_percent > 0 && message == 0;
                let takes = if is_hot { HOT_HANDLER } else { from_quantiles(HANDLER_US, &mut self.dice) };
                self.events.add(self.now + takes, Event::HandlerEnded(call));
            }
            Claim::Consumed(_) => {
                self.judge.figures.duplicates += 1;
                self.processes[process].remember_consumed(message, self.now, self.setting.bug);
                self.judge.acknowledged(message, self.now);
                self.end(call);
            }
            Claim::InFlight(in_flight) => {
                if self.setting.bug == Some(Bug::InFlightAcknowledged) {
                    self.judge.acknowledged(message, self.now);
                    self.end(call);
                    return;
                }
                let rest = match in_flight {
                    InFlight::Leased { rest } => rest.as_micros() as u64,
                    InFlight::Busy => SECOND,
                };
                self.processes[process].remember_in_flight(message, self.now);
                self.end(call);
                self.postpone_in_flight(message, tries, rest);
            }
            Claim::Failed { .. } | Claim::Dead(_) | Claim::Delayed { .. } | Claim::Mismatch => {
                self.end_postponed(call, SECOND);
            }
        }
    }

    pub(super) fn handler_ended(&mut self, call: u32) {
        if !self.is_current(call) {
            return;
        }
        self.end_run(call);
        self.send(call, 0);
    }

    /// Handles the answer to a completion or a release.
    fn settled(&mut self, call: u32, settled: Settled, is_full: bool) {
        let state = &self.calls[call as usize];
        let (message, process, what) = (state.message, state.process, state.what);
        if is_full {
            let slot = self.judge.place(message).slot;
            self.roll(process, slot);
        }
        match (what, settled) {
            (Asked::Complete(_), Settled::Done) => {
                self.processes[process].remember_consumed(message, self.now, self.setting.bug);
                self.judge.acknowledged(message, self.now);
                self.end(call);
            }
            // A failed handler, or a completion of a run that no longer holds its key.
            _ => {
                let tries = self.calls[call as usize].tries;
                self.end(call);
                self.deliver_later(message, tries, SECOND);
            }
        }
    }

    /// Ends a call, and begins the next one of its process.
    fn end(&mut self, call: u32) {
        self.end_run(call);
        let CallState { message, process, .. } = self.calls[call as usize];
        self.processes[process].free(message);
        self.processes[process].calls.remove(&call);
        while self.processes[process].has_place()
            && let Some((message, tries)) = self.processes[process].queue.pop_front()
        {
            self.begin_call(process, message, tries);
        }
        self.end_drained(process);
    }

    fn end_run(&mut self, call: u32) {
        let state = &mut self.calls[call as usize];
        if std::mem::take(&mut state.is_running) {
            let message = state.message;
            self.judge.run_ended(message);
        }
    }

    fn end_postponed(&mut self, call: u32, pause: u64) {
        let CallState { message, tries, .. } = self.calls[call as usize];
        self.end(call);
        self.postpone(message, tries, pause);
    }

    /// Ends a call whose process has died.
    pub(super) fn abort(&mut self, call: u32) {
        self.end_run(call);
        let CallState { message, tries, .. } = self.calls[call as usize];
        let at = self.now + self.dice.range(SECOND, 5 * SECOND);
        self.events.add(at, Event::Delivered { message, tries });
    }

    fn postpone_in_flight(&mut self, message: u32, tries: u32, rest: u64) {
        self.judge.figures.in_flight += 1;
        let pause = self.delay(SECOND, rest.max(SECOND), tries);
        self.deliver_later(message, tries, pause);
    }

    /// Postpones a delivery because the store did not answer, or refused.
    fn postpone(&mut self, message: u32, tries: u32, pause: u64) {
        self.judge.figures.postponed += 1;
        self.deliver_later(message, tries, pause);
    }

    fn deliver_later(&mut self, message: u32, tries: u32, pause: u64) {
        self.judge.log(message, self.now, "is delivered later");
        if self.setting.bug != Some(Bug::PostponedDropped) {
            self.events.add(self.now + pause, Event::Delivered { message, tries: tries + 1 });
        }
    }

    fn delay(&mut self, first: u64, most: u64, tries: u32) -> u64 {
        let [first, most] = [first, most].map(Duration::from_micros);
        backoff::delay(first, most, tries, 20, u128::from(self.dice.roll())).as_micros() as u64
    }
}

//! A play: producer, broker, faults and measurements around the calls of the processes.
use std::collections::VecDeque;
use std::sync::Arc;

use idempotent_core::OwnerToken;

use super::bug::Bug;
use super::call::CallState;
use super::clock::{Event, EventQueue, MINUTE, SECOND};
use super::cluster::Cluster;
use super::judge::Judge;
use super::load::copy_after;
use super::packed::Header;
use super::process::Process;
use super::request::{Asked, KeyPlace, Request};
use super::scenario::{CLUSTER_SLOTS, Fault, Form, Layout, OUTAGE, Scenario, Setting};
use crate::dice::{Dice, fork};

/// The state of a play.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) setting: Setting,
    pub(super) now: u64,
    pub(super) events: EventQueue,
    pub(super) cluster: Cluster,
    pub(super) processes: Vec<Process>,
    pub(super) calls: Vec<CallState>,
    pub(super) judge: Judge,
    /// Random numbers for keys and the broker, which a bug does not change.
    keys: Dice,
    pub(super) dice: Dice,
    produced: u32,
    /// The times of the last messages, by which the judge knows the load.
    recent: VecDeque<u64>,
    epoch: Layout,
}

impl Play {
    pub(super) fn new(setting: &Setting) -> Self {
        let mut dice = fork(setting.seed, 200 + setting.scenario as u64);
        let is_upgrade = setting.scenario == Scenario::RollingUpgrade;
        let epoch = if is_upgrade { Layout::Previous } else { Layout::Current };
        // One more, for workers that are refused.
        let processes = (0..=setting.processes).map(|_| Process::new(setting, epoch, &mut dice)).collect();
        Self {
            now: 0,
            events: EventQueue::default(),
            cluster: Cluster::new(setting, &mut dice),
            processes,
            calls: Vec::new(),
            judge: Judge::new(setting),
            keys: fork(setting.seed, 300 + setting.scenario as u64),
            dice,
            produced: 0,
            recent: VecDeque::new(),
            epoch,
            setting: setting.clone(),
        }
    }

    /// Plays all events. Returns the judge with its verdict.
    pub(super) fn run(mut self) -> Judge {
        for process in 0..self.setting.processes {
            self.processes[process].start(self.epoch);
        }
        for slot in 0..self.setting.slots {
            // The set-up of a namespace writes all headers, so that a missing one proves a loss.
            if self.setting.form == Form::Packed {
                self.cluster.roll(&self.request_for(0, slot, None), 0);
            }
            self.events.add(u64::from(slot) * SECOND, Event::Swept(slot));
        }
        for nth in 0..self.setting.faults.len() {
            self.events.add(self.setting.faults[nth].0, Event::Fault(nth as u32));
        }
        self.events.add(MINUTE, Event::Measured);
        self.events.add(0, Event::Produced);
        while let Some((at, event)) = self.events.next() {
            self.now = at;
            self.handle(event);
        }
        let loads: Vec<_> = self.cluster.masters.iter().map(|master| master.requests).collect();
        let hot = if self.produced > 0 { self.cluster.owner(self.judge.place(0).slot) } else { 0 };
        self.judge.ended(&loads, hot, self.now);
        self.judge
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Produced => self.produce(),
            Event::Delivered { message, tries } => self.deliver(message, tries),
            Event::Requested(call) => self.requested(call),
            Event::Answered(call) => self.answered(call),
            Event::HandlerEnded(call) => self.handler_ended(call),
            Event::Swept(slot) => self.sweep(slot),
            Event::Probed(message) => {
                let is_visible = self.cluster.is_visible(self.judge.place(message), self.now);
                self.judge.log(
                    message,
                    self.now,
                    if is_visible { "is probed: visible" } else { "is probed: invisible" },
                );
                self.judge.probed(message, is_visible, self.now);
            }
            Event::Measured => self.measure(),
            Event::Fault(nth) => self.begin(self.setting.faults[nth as usize].1),
            Event::Promoted(master) => self.cluster.masters[master as usize].is_up = true,
            Event::Moved(slot) => self.cluster.end_move(slot),
        }
    }

    /// Sends a message with a new key, or a further message of the hot key.
    fn produce(&mut self) {
        if self.now >= self.setting.length {
            return;
        }
        let (pause, is_message) = self.setting.shape.pause(self.now, self.setting.rate, &mut self.keys);
        // The first event only starts the clock.
        let is_message = is_message && self.now > 0;
        self.events.add(self.now + pause.max(1), Event::Produced);
        if !is_message && self.produced > 0 {
            return;
        }
        let message = if self.produced > 0 && self.keys.percent(self.setting.hot_percent) {
            0
        } else {
            let hash = u128::from(self.keys.roll()) << 64 | u128::from(self.keys.roll());
            let slot = ((hash >> 114) as u32) * self.setting.slots / CLUSTER_SLOTS;
            self.judge.produced(KeyPlace { hash, slot });
            self.produced += 1;
            self.recent.push_back(self.now);
            self.produced - 1
        };
        self.events.add(self.now, Event::Delivered { message, tries: 0 });
        if let Some(after) = copy_after(&mut self.keys, self.setting.copies) {
            self.events.add(self.now + after, Event::Delivered { message, tries: 0 });
        }
    }

    /// Returns a process that takes deliveries.
    pub(super) fn any_process(&mut self) -> Option<usize> {
        let able = self.processes.iter().filter(|process| process.takes_deliveries()).count();
        let nth = self.dice.below(able as u64) as usize;
        let mut able = self.processes.iter().enumerate().filter(|(_, process)| process.takes_deliveries());
        able.nth(nth).map(|(process, _)| process)
    }

    /// Lets a process look at a header: detect a loss, and roll the slot if it is overdue.
    fn sweep(&mut self, slot: u32) {
        let retention = self.setting.retention;
        self.events.add(self.now + retention.length() / 8, Event::Swept(slot));
        self.cluster.purge(slot, self.now);
        if self.setting.form == Form::Record {
            return;
        }
        let Some(process) = self.any_process() else { return };
        let Some((header, is_overdue)) = self.cluster.header(slot, self.now) else { return };
        self.learn(process, slot, header.clone());
        if is_overdue || header.is_none() {
            self.roll(process, slot);
        }
    }

    /// Keeps the header that a master has returned. A missing header and a lower version prove a loss.
    pub(super) fn learn(&mut self, process: usize, slot: u32, header: Option<Arc<Header>>) {
        if self.processes[process].layout == Layout::Previous {
            return;
        }
        let known = self.processes[process].headers[slot as usize].as_ref();
        let is_lost = match (known, &header) {
            (Some(known), Some(stored)) => stored.version < known.version,
            (Some(_), None) => true,
            (None, None) => self.setting.bug != Some(Bug::LossNeedsKnownHeader),
            (None, Some(_)) => false,
        };
        if is_lost && self.setting.bug != Some(Bug::LossNotCompared) {
            self.judge.reported(slot);
        }
        self.processes[process].headers[slot as usize] = header;
    }

    /// Rolls a slot from the header that a process knows.
    pub(super) fn roll(&mut self, process: usize, slot: u32) {
        let known = self.processes[process].headers[slot as usize].clone();
        let request = self.request_for(process, slot, known);
        if let Some((header, is_rolled)) = self.cluster.roll(&request, self.now) {
            self.judge.figures.rolls += u64::from(is_rolled);
            let size = self.cluster.size(slot);
            self.judge.measured(size, 0, false, self.now);
            self.processes[process].headers[slot as usize] = Some(header);
        }
    }

    /// Returns the request of a process about a slot itself.
    fn request_for(&self, process: usize, slot: u32, header: Option<Arc<Header>>) -> Request {
        let Process { layout, retention, clock, .. } = self.processes[process];
        let place = KeyPlace { hash: 0, slot };
        Request { place, owner: OwnerToken(1), layout, retention, header, client_clock: clock, what: Asked::Claim }
    }

    fn measure(&mut self) {
        let retain = self.setting.retention.retain;
        if self.now > self.setting.length || self.setting.form == Form::Record {
            return;
        }
        self.events.add(self.now + self.setting.retention.length() / 16, Event::Measured);
        while self.recent.front().is_some_and(|at| at + retain < self.now) {
            self.recent.pop_front();
        }
        // As many keys as a whole cluster would have received within the retention.
        let live = self.recent.len() as u64 * u64::from(CLUSTER_SLOTS / self.setting.slots);
        for slot in 0..self.setting.slots {
            let size = self.cluster.size(slot);
            self.judge.measured(size, live, self.now > retain, self.now);
        }
    }

    fn begin(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::SetClock { master, by } => {
                let cluster = &self.cluster;
                self.judge.clock_set(|slot| cluster.owner(slot) == master, by);
                self.cluster.set_clock(master, by);
            }
            Fault::MasterDies { master, has_replica } => self.end_master(master, has_replica),
            Fault::MoveSlot { slot, to, takes } => {
                self.cluster.begin_move(slot, to, takes, now);
                self.events.add(now + takes, Event::Moved(slot));
            }
            Fault::Crash { process } => self.crash(process),
            Fault::Drain { process } => {
                self.processes[process].is_draining = true;
                self.redeliver_queue(process);
                self.end_drained(process);
            }
            Fault::Start { process, layout } => self.start(process, layout),
            Fault::RaiseEpoch => {
                // The operator ends the workers that are still there.
                for process in 0..self.processes.len() {
                    self.crash(process);
                }
                self.epoch = Layout::Current;
            }
            Fault::Configure { process, retention } => {
                self.processes[process].retention = retention;
                self.judge.configured(retention.retain);
            }
        }
    }

    fn end_master(&mut self, master: usize, has_replica: bool) {
        let lost = self.cluster.end_master(master, has_replica, self.now);
        self.judge.writes_lost(&lost, self.now);
        if !has_replica {
            let cluster = &self.cluster;
            let slots = (0..self.setting.slots).filter(|slot| cluster.owner(*slot) == master);
            self.judge.slots_lost(slots, self.now);
        }
        self.events.add(self.now + OUTAGE, Event::Promoted(master as u32));
    }

    fn start(&mut self, process: usize, layout: Layout) {
        if self.processes[process].is_alive {
            return;
        }
        if layout != self.epoch && self.setting.bug != Some(Bug::NoEpochCheck) {
            self.judge.figures.refused_starts += 1;
            return;
        }
        self.judge.started(layout, self.epoch, self.now);
        self.processes[process].start(layout);
    }

    /// Ends a process at once. The broker delivers again what the process has not acknowledged.
    fn crash(&mut self, process: usize) {
        if !self.processes[process].is_alive {
            return;
        }
        self.processes[process].is_alive = false;
        for call in std::mem::take(&mut self.processes[process].calls) {
            self.abort(call);
        }
        self.redeliver_queue(process);
    }

    fn redeliver_queue(&mut self, process: usize) {
        for (message, tries) in std::mem::take(&mut self.processes[process].queue) {
            let at = self.now + self.dice.range(SECOND, 5 * SECOND);
            self.events.add(at, Event::Delivered { message, tries });
        }
    }

    /// Ends a draining process after its last call.
    pub(super) fn end_drained(&mut self, process: usize) {
        let process = &mut self.processes[process];
        process.is_alive &= !(process.is_draining && process.calls.is_empty());
    }
}

//! The consequences of an action.
use idempotent_core::{Claim, Grant, Settled};

use crate::action::{Action, failed, is_refused};
use crate::invariant::{Invariant as I, Sight, Step};
use crate::record::{Kept, NOW, Stage};
use crate::state::{End, Holding, Message, Phase, Request, State};
use crate::store::{Answer, Store, is_lost};
use crate::variant::{Effect, Habit, Loss, Variant};

/// A state that changes to the next one.
#[derive(Debug)]
pub struct World<'a> {
    pub(crate) variant: &'a Variant,
    pub(crate) store: &'a Store,
    pub(crate) state: State,
    /// True if the transaction of the effect has ended before the effect was complete.
    pub(crate) ended: bool,
}

impl<'a> World<'a> {
    /// Copies a state for one action.
    #[must_use]
    pub fn new(variant: &'a Variant, store: &'a Store, state: &State) -> Self {
        Self { variant, store, state: State { step: Step::default(), ..*state }, ended: false }
    }

    /// Applies the action.
    #[must_use]
    pub fn after(mut self, action: Action) -> State {
        match action {
            Action::Claim { run, sort } => self.claim(run, sort),
            Action::ClaimUnheard { run, sort } => {
                self.start(run, sort);
                self.unheard(run, Request::Claim);
            }
            Action::Crash { run, sort } => self.crash(run, sort),
            Action::GiveUp(run) => self.give_up(run),
            Action::Effect(run) => self.handle(run),
            Action::SkipEffect(run) => self.completes(run),
            Action::EndTransaction(run) => self.end_transaction(run),
            Action::RunUngranted(run) => {
                self.effect(0);
                self.over(run);
            }
            Action::AckUnknown(run) => {
                self.ack();
                self.over(run);
            }
            Action::Fail(run, end) | Action::Mistake(run, end) => {
                self.state.left.failures -= u8::from(matches!(action, Action::Fail(..)));
                if let Some(held) = self.held(run) {
                    self.state.runs[usize::from(run)].phase = Phase::Releasing { held, end, unsure: false };
                }
            }
            Action::Settle(run) => self.settle(run),
            Action::SettleUnheard(run) => {
                let request = self.pending(run);
                self.unheard(run, request);
                match &mut self.state.runs[usize::from(run)].phase {
                    Phase::Effected { unsure, .. } | Phase::Releasing { unsure, .. } => *unsure = true,
                    _ => {}
                }
            }
            Action::Renew(run) => self.renew(run),
            Action::RenewUnheard(run) => self.unheard(run, Request::Renew),
            Action::Late(message) => {
                self.state.wire.remove(message);
                let (answer, written) = self.apply(message);
                let late =
                    message.request == Request::Claim && written && matches!(answer, Answer::Claim(Claim::Acquired(_)));
                let known = self.held(message.run).is_some();
                self.state.step.shows(Sight::LateGrant, late && known);
            }
            Action::Expire => self.expire(),
            Action::Tick => self.state.tick(1),
            Action::Lose => self.lose(),
            Action::End => self.end_of_retention(),
            Action::Purge => {
                if self.state.record.is_some_and(|kept| self.store.is_purgeable(kept)) {
                    self.state.record = None;
                }
            }
            Action::Forget => self.forget(),
        }
        if !self.variant.store.forgets_numbers {
            self.state.tick(0);
        }
        self.state
    }

    fn start(&mut self, run: u8, sort: u8) {
        let run = &mut self.state.runs[usize::from(run)];
        run.sort = sort;
        run.phase = Phase::Claiming;
    }

    fn over(&mut self, run: u8) {
        let run = &mut self.state.runs[usize::from(run)];
        run.phase = Phase::Over;
        run.sort = 0;
    }

    fn held(&self, run: u8) -> Option<Holding> {
        self.state.runs[usize::from(run)].held()
    }

    fn message(&self, run: u8, request: Request) -> Message {
        let number = if request == Request::Claim { 0 } else { self.held(run).map_or(0, |held| held.number) };
        Message { run, sort: self.state.runs[usize::from(run)].sort, number, request }
    }

    /// Returns the next request of the run.
    fn pending(&self, run: u8) -> Request {
        match self.state.runs[usize::from(run)].phase {
            Phase::Releasing { end, .. } => Request::Release(end),
            _ => Request::Complete,
        }
    }

    fn unheard(&mut self, run: u8, request: Request) {
        self.state.left.timeouts -= 1;
        let message = self.message(run, request);
        self.state.wire.push(message);
    }

    fn crash(&mut self, run: u8, sort: u8) {
        self.state.left.crashes -= 1;
        let phase = self.state.runs[usize::from(run)].phase;
        if matches!(phase, Phase::Waiting) {
            self.start(run, sort);
        }
        let request = match phase {
            Phase::Waiting | Phase::Claiming => Some(Request::Claim),
            Phase::Effected { .. } | Phase::Releasing { .. } => Some(self.pending(run)),
            Phase::Granted(_) | Phase::Over => None,
        };
        if let Some(request) = request {
            let message = self.message(run, request);
            self.state.wire.push(message);
        }
        self.over(run);
    }

    fn give_up(&mut self, run: u8) {
        let claiming = self.state.runs[usize::from(run)].phase == Phase::Claiming;
        if claiming && self.variant.may.take_back {
            let deletes = self.variant.worker == Habit::DeletesUnheard && self.variant.limit == 0;
            let end = if deletes { End::Delete } else { End::Refund };
            let message = self.message(run, Request::Release(end));
            self.state.wire.push(message);
        }
        self.over(run);
    }

    fn claim(&mut self, run: u8, sort: u8) {
        self.start(run, sort);
        let message = self.message(run, Request::Claim);
        let (answer, _) = self.apply(message);
        let Answer::Claim(answer) = answer else { return };
        match answer {
            Claim::Acquired(grant) => return self.granted(run, &grant),
            Claim::Consumed(_) => {
                self.ack();
                self.state.step.shows(Sight::Duplicate, true);
            }
            Claim::Dead(_) | Claim::Failed { .. } => self.ack(),
            Claim::Mismatch => self.state.step.shows(Sight::Mismatch, true),
            Claim::InFlight(_) | Claim::Delayed { .. } => {}
        }
        self.over(run);
    }

    /// Informs the worker of its grant.
    fn granted(&mut self, run: u8, grant: &Grant) {
        let live = self.state.record.is_some_and(Kept::is_live);
        let others =
            (0..).zip(&self.state.runs).any(|(other, of)| other != run && of.held().is_some_and(|held| held.live));
        self.state.step.violates(I::I1, live && others);
        let before = ![0, run + 1].contains(&self.state.ghost.ran_out);
        self.state.step.violates(I::Told, before && grant.taken_over.is_none());
        // If the record ends with its lease, the next run takes over without being informed.
        let unnoticed = self.variant.store.forgets_numbers && self.state.left.expiries < self.variant.budget.expiries;
        let held = Holding {
            number: u8::try_from(grant.fencing.0).unwrap_or(u8::MAX),
            last: self.variant.limit > 0 && grant.attempt >= u32::from(self.variant.limit),
            taken_over: grant.taken_over.is_some() || unnoticed,
            live,
        };
        self.state.runs[usize::from(run)].phase = Phase::Granted(held);
    }

    fn handle(&mut self, run: u8) {
        let Some(held) = self.held(run) else { return };
        if self.variant.effect != Effect::Transactional {
            if is_refused(self.variant, &self.state, held.number) {
                return self.over(run);
            }
            self.effect(held.number);
            self.state.step.shows(Sight::Takeover, held.taken_over);
        }
        self.completes(run);
    }

    /// The worker finds at its end that the transaction is another one. The record is not consumed, and its owner releases it.
    fn end_transaction(&mut self, run: u8) {
        self.state.left.ended_transactions -= 1;
        let Some(held) = self.held(run) else { return };
        if self.variant.worker == Habit::ConsumesAtClaim {
            self.ended = true;
            let message = self.message(run, Request::Complete);
            let _ = self.apply(message);
            return self.over(run);
        }
        let end = failed(self.variant, held.last);
        self.state.runs[usize::from(run)].phase = Phase::Releasing { held, end, unsure: false };
    }

    fn completes(&mut self, run: u8) {
        if let Some(held) = self.held(run) {
            self.state.runs[usize::from(run)].phase = Phase::Effected { held, unsure: false };
        }
    }

    fn settle(&mut self, run: u8) {
        let request = self.pending(run);
        let held = self.held(run);
        let message = self.message(run, request);
        let (answer, written) = self.apply(message);
        self.refused_inside(held, &answer);
        if matches!(answer, Answer::Settled(Settled::Done)) {
            match request {
                Request::Complete => {
                    let over = held.is_some_and(|held| held.taken_over);
                    let committed = written && self.variant.effect == Effect::Transactional;
                    self.state.step.shows(Sight::Takeover, over && committed);
                    self.ack();
                }
                // Out of attempts, or failed permanently: dead-lettered, then acknowledged.
                Request::Release(End::Bury | End::Fail) => self.ack(),
                Request::Release(_) | Request::Claim | Request::Renew => {}
            }
        }
        self.over(run);
    }

    fn renew(&mut self, run: u8) {
        let held = self.held(run);
        let message = self.message(run, Request::Renew);
        let (answer, _) = self.apply(message);
        self.refused_inside(held, &answer);
        if is_lost(&answer) {
            self.over(run);
        }
    }

    fn expire(&mut self) {
        let State { record, runs, left, ghost, .. } = &mut self.state;
        left.expiries -= 1;
        ghost.due += 1;
        ghost.ran_out = ghost.owner;
        *record = record.map(|kept| kept.expired(self.store.retention()));
        for run in runs {
            if let Some(held) = run.held_mut() {
                held.live = false;
            }
        }
        self.clock_passes_all();
    }

    fn lose(&mut self) {
        self.state.left.losses -= 1;
        self.state.record = None;
        match self.variant.loss {
            Loss::ClockGoesOn => self.clock_passes_all(),
            Loss::ClockGoesBack => {
                let ahead = i16::from(self.state.ghost.highest) - i16::from(NOW) - 1;
                self.state.tick(i8::try_from(ahead).unwrap_or(0));
            }
        }
    }

    fn end_of_retention(&mut self) {
        let State { record, left, ghost, .. } = &mut self.state;
        left.ends -= 1;
        if let Some(kept) = record {
            kept.remembered = false;
            // A vacant key was released, and the lease of an orphaned key expired: these grants have their cause.
            ghost.due += i8::from(matches!(kept.state, Stage::Consumed { .. } | Stage::Failed | Stage::Dead));
            if matches!(kept.state, Stage::Consumed { .. }) {
                ghost.first = 0;
                ghost.effected = false;
            }
        }
        ghost.spent = 0;
        ghost.ran_out = 0;
        self.clock_passes_all();
    }

    fn forget(&mut self) {
        let Some(kept) = self.state.record else { return };
        let Some(after) = self.store.forget(kept, self.variant.may.force) else { return };
        let State { record, left, ghost, .. } = &mut self.state;
        left.forgets -= 1;
        ghost.due += 1;
        ghost.spent = 0;
        ghost.ran_out = 0;
        // An operator requests the effect to happen again.
        ghost.first = 0;
        ghost.effected = false;
        *record = Some(after);
    }

    fn clock_passes_all(&mut self) {
        if !self.variant.store.forgets_numbers {
            let ahead = i16::from(self.state.ghost.highest) - i16::from(NOW) + 1;
            self.state.tick(i8::try_from(ahead.max(0)).unwrap_or(0));
        }
    }
}

//! The check of a step against the invariants.
use idempotent_core::{Claim, Settled, StateKind};

use crate::invariant::{Invariant as I, Sight};
use crate::record::{Kept, Stage};
use crate::state::{End, Holding, Message, Request, State};
use crate::store::{Answer, is_lost, kind};
use crate::variant::{Effect, Second};
use crate::world::World;

impl World<'_> {
    /// Applies a request by the store's decision, and checks the result against the invariants.
    pub(crate) fn apply(&mut self, message: Message) -> (Answer, bool) {
        let before = self.state.record;
        let (answer, after, written) = self.store.apply(before, &message);
        self.state.record = after;
        let undone = before.is_some_and(Kept::is_terminal) && kind(before) != kind(after);
        self.state.step.violates(I::I4, undone);
        match (&answer, message.request) {
            (Answer::Claim(claim), _) => self.judge_claim(before, message, claim, written),
            (Answer::Settled(Settled::Done), Request::Complete) if written => self.judge_completion(message),
            // Nothing was written, either because this owner wrote it before, or because the answer is wrong.
            (Answer::Settled(settled), Request::Complete) => {
                let done = *settled == Settled::Done;
                let own = before.is_some_and(|kept| is_done_by(kept, message));
                self.state.step.violates(I::I3, done && !own);
                self.state.step.violates(I::I14, !done && own);
            }
            (Answer::Settled(Settled::Done), Request::Release(end)) if written => {
                self.judge_release(before, message, end);
            }
            (Answer::Settled(Settled::Done), Request::Renew) if written => self.judge_renewal(before, message),
            _ => {}
        }
        if written && kind(before) != kind(after) {
            self.state.step.shows(Sight::Buried, kind(after) == StateKind::Dead);
            self.state.step.shows(Sight::Failed, kind(after) == StateKind::Failed);
        }
        (answer, written)
    }

    fn judge_claim(&mut self, before: Option<Kept>, message: Message, claim: &Claim, written: bool) {
        let State { ghost, step, .. } = &mut self.state;
        let as_duplicate = matches!(claim, Claim::InFlight(_) | Claim::Consumed(_) | Claim::Failed { .. });
        let other = before.is_some_and(|kept| kept.payload != message.sort + 1);
        step.violates(I::I12, self.variant.second == Second::OtherPayload && as_duplicate && other);
        let own = before.is_some_and(|kept| kept.is_live() && is_owners(kept, message));
        let Claim::Acquired(grant) = claim else { return step.violates(I::I14, own) };
        if !written {
            return;
        }
        let number = u8::try_from(grant.fencing.0).unwrap_or(u8::MAX);
        step.violates(I::I4b, ghost.first > 0);
        step.violates(I::I6, number <= ghost.highest);
        ghost.highest = ghost.highest.max(number);
        ghost.owner = message.run + 1;
        ghost.number = number;
        ghost.due -= 1;
        ghost.idle += 1;
        step.violates(I::I10, ghost.due < 0);
        if self.variant.limit > 0 {
            ghost.spent += 1;
            step.violates(I::Limit, ghost.spent > self.variant.limit.cast_signed());
        }
    }

    fn judge_completion(&mut self, message: Message) {
        if self.variant.effect == Effect::Transactional && !self.ended {
            self.effect(message.number);
        }
        let State { ghost, step, .. } = &mut self.state;
        let owner = message.run + 1;
        step.violates(I::I3, (ghost.owner, ghost.number) != (owner, message.number));
        step.violates(I::I9, !ghost.effected);
        step.violates(I::I5, ghost.first > 0 && ghost.first != owner);
        ghost.ran_out = 0;
        if ghost.first == 0 {
            ghost.first = owner;
        }
        self.settled(message);
    }

    fn judge_release(&mut self, before: Option<Kept>, message: Message, end: End) {
        let owners = before.is_some_and(|kept| is_owners(kept, message));
        let consuming = kind(before) == StateKind::Consuming;
        self.state.step.violates(I::I2, consuming && !owners);
        if owners {
            self.state.ghost.due += i8::from(matches!(end, End::Delete | End::Vacate | End::Refund));
            self.state.ghost.spent -= i8::from(end == End::Refund && self.variant.limit > 0);
            // A run that never began leaves the next run with the same uncertainty as before, except about itself.
            let ran = message.number > 0 && end != End::Refund;
            if ran || self.state.ghost.ran_out == message.run + 1 {
                self.state.ghost.ran_out = 0;
            }
            self.settled(message);
        }
    }

    fn judge_renewal(&mut self, before: Option<Kept>, message: Message) {
        let live = self.state.record.is_some_and(Kept::is_live);
        self.state.step.violates(I::I14, !live);
        let revived = live && before.is_some_and(|kept| !kept.is_live());
        self.state.step.shows(Sight::Revived, revived);
        // The lease did not expire after all.
        self.state.ghost.due -= i8::from(revived);
        if revived {
            self.state.ghost.ran_out = 0;
        }
        if let Some(held) = self.state.runs[usize::from(message.run)].held_mut() {
            held.live |= live && held.number == message.number;
        }
    }

    /// Records the end of a grant: its owner must not run any longer, and may be rejected.
    fn settled(&mut self, message: Message) {
        if let Some(held) = self.state.runs[usize::from(message.run)].held_mut() {
            held.live &= held.number != message.number;
        }
    }

    pub(crate) fn effect(&mut self, number: u8) {
        let State { ghost, step, .. } = &mut self.state;
        step.violates(I::I0, ghost.effected);
        step.violates(I::I7, number > 0 && number < ghost.resource);
        ghost.effected = true;
        ghost.idle -= 1;
        step.violates(I::I11, ghost.idle < 0);
        ghost.resource = ghost.resource.max(number);
    }

    pub(crate) fn ack(&mut self) {
        let dead_letter = matches!(kind(self.state.record), StateKind::Dead | StateKind::Failed);
        self.state.step.violates(I::I8, self.state.ghost.first == 0 && !dead_letter);
        self.state.step.shows(Sight::Acked, true);
    }

    pub(crate) fn refused_inside(&mut self, held: Option<Holding>, answer: &Answer) {
        self.state.step.violates(I::I14, held.is_some_and(|held| held.live) && is_lost(answer));
    }
}

fn is_owners(kept: Kept, message: Message) -> bool {
    let number = message.number == 0 || message.number == kept.number;
    matches!(kept.state, Stage::Consuming { owner, .. } if owner == message.run + 1) && number
}

fn is_done_by(kept: Kept, message: Message) -> bool {
    let owners = matches!(kept.state, Stage::Consumed { owner, .. } if owner == message.run + 1);
    kept.remembered && owners && kept.number == message.number
}

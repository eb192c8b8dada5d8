//! The script of faults.
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::entropy::Dice;

/// A number of calls that means all calls until [`heal`](super::FaultStore::heal).
pub const FOREVER: u32 = u32::MAX;

/// An operation of a store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum StoreOperation {
    /// [`Store::claim`](idempotent_core::Store::claim)
    Claim,
    /// [`Store::renew`](idempotent_core::Store::renew)
    Renew,
    /// [`Store::complete`](idempotent_core::Store::complete)
    Complete,
    /// [`Store::release`](idempotent_core::Store::release)
    Release,
    /// [`Store::peek`](idempotent_core::Store::peek)
    Peek,
    /// [`Search::search`](idempotent_core::Search::search)
    Search,
    /// [`Purge::purge`](idempotent_core::Purge::purge)
    Purge,
    /// [`Admin::forget`](idempotent_core::Admin::forget)
    Forget,
    /// [`StepStore::steps`](idempotent_core::StepStore::steps)
    Steps,
    /// [`StepStore::note`](idempotent_core::StepStore::note)
    Note,
    /// [`OrderStore::load`](idempotent_core::OrderStore::load)
    Line,
    /// [`OrderStore::compare_and_swap`](idempotent_core::OrderStore::compare_and_swap)
    CompareAndSwap,
}

impl StoreOperation {
    /// The four operations that change a record on behalf of a run.
    pub const WRITES: [Self; 4] = [Self::Claim, Self::Renew, Self::Complete, Self::Release];
}

/// The probability of each fault for a call, from 0.0 to 1.0. Faults are tried in this order, with at most one fault
/// for each call. All are zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// The call is refused with `NotApplied`.
    pub refuse: f64,
    /// The call is not applied, and answered `Ambiguous`.
    pub lose_request: f64,
    /// The call is applied, and answered `Ambiguous`.
    pub lose_reply: f64,
    /// The call is applied, and never answered.
    pub hang: f64,
    /// The request is delayed by up to [`max_delay`](Self::max_delay), in addition to another fault.
    pub delay: f64,
    /// The answer is delayed by up to [`max_delay`](Self::max_delay), in addition to another fault.
    pub delay_reply: f64,
    /// The longest delay.
    pub max_delay: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    Refuse,
    LoseRequest,
    LoseReply,
    Hang,
}

/// The faults of one call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) fault: Option<Fault>,
    pub(super) delay_request: Duration,
    pub(super) delay_reply: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) down: bool,
    pub(super) dead: bool,
    /// Faults, or `None` for a call without one, each with the number of calls.
    queued: HashMap<StoreOperation, VecDeque<(Option<Fault>, u32)>>,
    delays: HashMap<StoreOperation, (Duration, Duration)>,
    chaos: Option<(Dice, FaultRates)>,
}

impl Script {
    pub(super) fn push(&mut self, verb: StoreOperation, fault: Option<Fault>, n: u32) {
        if n > 0 {
            self.queued.entry(verb).or_default().push_back((fault, n));
        }
    }

    pub(super) fn delay_request(&mut self, verb: StoreOperation, by: Duration) {
        self.delays.entry(verb).or_default().0 = by;
    }

    pub(super) fn delay_reply(&mut self, verb: StoreOperation, by: Duration) {
        self.delays.entry(verb).or_default().1 = by;
    }

    pub(super) fn chaos(&mut self, seed: u64, chaos: FaultRates) {
        self.chaos = Some((Dice::new(seed), chaos));
    }

    pub(super) fn heal(&mut self) {
        *self = Self { dead: self.dead, ..Self::default() };
    }

    pub(super) fn is_played(&self) -> bool {
        self.queued.values().flatten().all(|(_, left)| *left == FOREVER)
    }

    /// Removes the next fault of `verb` from the script.
    pub(super) fn plan(&mut self, verb: StoreOperation) -> Plan {
        let (delay_request, delay_reply) = self.delays.get(&verb).copied().unwrap_or_default();
        let mut plan = Plan { fault: None, delay_request, delay_reply };
        if self.down {
            plan.fault = Some(Fault::Refuse);
        } else if let Some(fault) = self.next_queued(verb) {
            plan.fault = fault;
        } else if let Some((dice, chaos)) = &mut self.chaos {
            chaos.roll(dice, &mut plan);
        }
        plan
    }

    fn next_queued(&mut self, verb: StoreOperation) -> Option<Option<Fault>> {
        let queue = self.queued.get_mut(&verb)?;
        let (fault, left) = queue.front_mut()?;
        let fault = *fault;
        if *left != FOREVER {
            *left -= 1;
            if *left == 0 {
                queue.pop_front();
            }
        }
        Some(fault)
    }
}

impl FaultRates {
    /// Draws the same number of random values for every call, so that a changed probability does not affect the others.
    fn roll(&self, dice: &mut Dice, plan: &mut Plan) {
        let mut roll = dice.fraction();
        for (chance, fault) in [
            (self.refuse, Fault::Refuse),
            (self.lose_request, Fault::LoseRequest),
            (self.lose_reply, Fault::LoseReply),
            (self.hang, Fault::Hang),
        ] {
            if roll >= 0.0 && roll < chance {
                plan.fault = Some(fault);
            }
            roll -= chance;
        }
        for (chance, delay) in [(self.delay, &mut plan.delay_request), (self.delay_reply, &mut plan.delay_reply)] {
            let (roll, part) = (dice.fraction(), dice.fraction());
            if roll < chance {
                *delay += self.max_delay.mul_f64(part);
            }
        }
    }
}

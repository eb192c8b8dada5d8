//! The possible next actions.
use crate::state::{End, Message, Phase, State};
use crate::variant::{Effect, Habit, Second, Variant};

/// An action. A request of a worker is sent, applied and answered at once, unless the answer is lost: then the request
/// is in transit, and can be applied at any later time, or never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A worker takes a delivery and claims its key, or repeats a claim with the same owner token.
    Claim {
        /// The delivery.
        run: u8,
        /// The sort of worker, or the payload.
        sort: u8,
    },
    /// A claim without an answer.
    ClaimUnheard {
        /// The delivery.
        run: u8,
        /// The sort of worker, or the payload.
        sort: u8,
    },
    /// A worker crashes. Its next request may be in transit.
    Crash {
        /// The delivery.
        run: u8,
        /// The sort of worker, or the payload.
        sort: u8,
    },
    /// A worker stops repeating its request.
    GiveUp(u8),
    /// The handler has its effect.
    Effect(u8),
    /// The handler reports success without its effect: a broken worker.
    SkipEffect(u8),
    /// A statement of the handler ends its transaction: a part of the effect is committed, and the rest is not to come.
    EndTransaction(u8),
    /// The handler runs without a grant: a broken worker.
    RunUngranted(u8),
    /// A worker acknowledges without knowing the result: a broken worker.
    AckUnknown(u8),
    /// The handler fails, or its grant is refunded. The key will end in this state.
    Fail(u8, End),
    /// A completion without an answer is mistaken for a failure.
    Mistake(u8, End),
    /// The worker completes, or releases.
    Settle(u8),
    /// The worker completes, or releases, without an answer.
    SettleUnheard(u8),
    /// The worker renews its lease.
    Renew(u8),
    /// The worker renews its lease without an answer.
    RenewUnheard(u8),
    /// A request in transit is applied.
    Late(Message),
    /// The lease expires.
    Expire,
    /// The store's clock advances by its smallest step.
    Tick,
    /// The store loses the record.
    Lose,
    /// The record's retention ends.
    End,
    /// A purge removes an expired record.
    Purge,
    /// An operator makes the key claimable again.
    Forget,
}

/// Adds all possible actions, in an order that depends only on the state.
pub fn possible(variant: &Variant, state: &State, actions: &mut Vec<Action>) {
    let left = &state.left;
    let busy = state.runs.iter().filter(|run| run.is_active()).count();
    let deliveries = &state.runs[..usize::from(variant.deliveries)];
    for (run, phase) in (0..).zip(deliveries.iter().map(|run| run.phase)) {
        let sort = state.runs[usize::from(run)].sort;
        match phase {
            Phase::Waiting => {
                if busy < usize::from(variant.workers) {
                    for sort in (0..variant.sorts()).filter(|sort| is_free(variant, state, *sort)) {
                        claims(state, run, sort, actions);
                    }
                }
                // Deliveries are taken in order.
                break;
            }
            Phase::Claiming => {
                claims(state, run, sort, actions);
                actions.push(Action::GiveUp(run));
                if variant.worker == Habit::RunsUngranted {
                    actions.push(Action::RunUngranted(run));
                }
            }
            Phase::Granted(held) => {
                actions.push(Action::Effect(run));
                if variant.worker == Habit::SkipsEffect {
                    actions.push(Action::SkipEffect(run));
                }
                if left.ended_transactions > 0 {
                    actions.push(Action::EndTransaction(run));
                }
                if left.failures > 0 {
                    actions.push(Action::Fail(run, failed(variant, held.last)));
                    if variant.may.fail {
                        actions.push(Action::Fail(run, End::Fail));
                    }
                    if variant.may.refund {
                        actions.push(Action::Fail(run, End::Refund));
                    }
                }
            }
            Phase::Effected { held, unsure } => {
                settles(state, run, unsure, actions);
                if unsure && variant.may.mistake {
                    actions.push(Action::Mistake(run, failed(variant, held.last)));
                }
                if unsure && variant.worker == Habit::AcksUnknown {
                    actions.push(Action::AckUnknown(run));
                }
            }
            Phase::Releasing { unsure, .. } => settles(state, run, unsure, actions),
            Phase::Over => continue,
        }
        if matches!(phase, Phase::Granted(_) | Phase::Effected { .. }) && variant.may.renew {
            actions.push(Action::Renew(run));
            if left.timeouts > 0 {
                actions.push(Action::RenewUnheard(run));
            }
        }
        // The action above offers this together with a claim without an answer.
        if left.crashes > 0 && phase != Phase::Claiming {
            actions.push(Action::Crash { run, sort });
        }
    }
    beyond_workers(variant, state, actions);
}

/// Adds the actions of the network, the clock, the store and its operators.
fn beyond_workers(variant: &Variant, state: &State, actions: &mut Vec<Action>) {
    let left = &state.left;
    actions.extend(state.wire.each().map(Action::Late));
    if left.expiries > 0 && state.record.is_some_and(|kept| kept.is_live()) {
        actions.push(Action::Expire);
    }
    if !variant.store.forgets_numbers && state.is_ahead() {
        actions.push(Action::Tick);
    }
    if left.losses > 0 && state.record.is_some() {
        actions.push(Action::Lose);
    }
    if left.ends > 0 && state.record.is_some_and(|kept| kept.remembered && !kept.is_live()) {
        actions.push(Action::End);
    }
    if variant.may.purge && state.record.is_some() {
        actions.push(Action::Purge);
    }
    if left.forgets > 0 && state.record.is_some() {
        actions.push(Action::Forget);
    }
}

fn claims(state: &State, run: u8, sort: u8, actions: &mut Vec<Action>) {
    actions.push(Action::Claim { run, sort });
    if state.left.timeouts > 0 {
        actions.push(Action::ClaimUnheard { run, sort });
    }
    if state.left.crashes > 0 {
        actions.push(Action::Crash { run, sort });
    }
}

fn settles(state: &State, run: u8, unsure: bool, actions: &mut Vec<Action>) {
    actions.push(Action::Settle(run));
    if state.left.timeouts > 0 {
        actions.push(Action::SettleUnheard(run));
    }
    if unsure {
        actions.push(Action::GiveUp(run));
    }
}

/// Returns whether the sort is available: there is one worker of each sort, but any number of payloads.
fn is_free(variant: &Variant, state: &State, sort: u8) -> bool {
    match variant.second {
        Second::None | Second::OtherPayload => true,
        Second::OldWorker | Second::FastClock => !state.runs.iter().any(|run| run.is_active() && run.sort == sort),
    }
}

/// Returns the executor's decision on a failure.
pub(crate) fn failed(variant: &Variant, last: bool) -> End {
    match variant.limit {
        0 => End::Delete,
        _ if last => End::Bury,
        _ => End::Vacate,
    }
}

/// Returns whether the resource itself rejects the fencing token.
#[must_use]
pub fn is_refused(variant: &Variant, state: &State, number: u8) -> bool {
    variant.effect == Effect::Fenced && number < state.ghost.resource
}

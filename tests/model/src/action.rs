//! What can happen next.
use crate::state::{End, Message, Phase, State};
use crate::variant::{Effect, Habit, Second, Variant};

/// One thing that happens. What a worker asks of the store is asked, applied and answered at once, unless the answer
/// gets lost: then the request is on the wire from there on, to be applied at any later time, or never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A worker takes a delivery and claims, or claims again by the same token.
    Claim {
        /// Which delivery.
        run: u8,
        /// By what sort of worker, or of which payload.
        sort: u8,
    },
    /// The same, and no answer comes.
    ClaimUnheard {
        /// Which delivery.
        run: u8,
        /// By what sort of worker, or of which payload.
        sort: u8,
    },
    /// A worker crashes; what it was about to send may be on the wire.
    Crash {
        /// Which delivery.
        run: u8,
        /// By what sort of worker, or of which payload.
        sort: u8,
    },
    /// A worker stops asking.
    GiveUp(u8),
    /// The handler does its work.
    Effect(u8),
    /// The handler says that it is done, and is not: a broken worker.
    SkipEffect(u8),
    /// The handler runs without a grant: a broken worker.
    RunUngranted(u8),
    /// A worker acks without knowing: a broken worker.
    AckUnknown(u8),
    /// The handler fails, or its grant is given back; the key is to end like this.
    Fail(u8, End),
    /// A completion that was not answered is taken for a failure.
    Mistake(u8, End),
    /// The worker completes, or releases.
    Settle(u8),
    /// The same, and no answer comes.
    SettleUnheard(u8),
    /// The worker renews its lease.
    Renew(u8),
    /// The same, and no answer comes.
    RenewUnheard(u8),
    /// A request on the wire is applied.
    Late(Message),
    /// The lease ends.
    Expire,
    /// The store's clock moves on by the least it can.
    Tick,
    /// The store loses the record.
    Lose,
    /// The record's retention, or its memory, ends.
    End,
    /// A janitor removes a record whose time is over.
    Purge,
    /// An operator makes the key claimable again.
    Forget,
}

/// Everything that can happen next, in an order that depends on the state alone.
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
        // With a claim that is not answered it is offered above.
        if left.crashes > 0 && phase != Phase::Claiming {
            actions.push(Action::Crash { run, sort });
        }
    }
    beyond_workers(variant, state, actions);
}

/// What the network, the clock, the store and its operators may do.
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

/// Where the sorts are workers there is one of each; payloads come as they like.
fn is_free(variant: &Variant, state: &State, sort: u8) -> bool {
    match variant.second {
        Second::None | Second::OtherPayload => true,
        Second::OldWorker | Second::FastClock => !state.runs.iter().any(|run| run.is_active() && run.sort == sort),
    }
}

/// The executor's verdict on a failure.
fn failed(variant: &Variant, last: bool) -> End {
    match variant.limit {
        0 => End::Delete,
        _ if last => End::Bury,
        _ => End::Vacate,
    }
}

/// Whether the resource, and not the worker alone, looks at the number.
#[must_use]
pub fn is_refused(variant: &Variant, state: &State, number: u8) -> bool {
    variant.effect == Effect::Fenced && number < state.ghost.resource
}

//! The description of a trace in sentences.
use std::fmt::Write;

use idempotent_core::StateKind;

use crate::action::Action;
use crate::check::Trace;
use crate::invariant::{Invariant, Sight};
use crate::record::Kept;
use crate::state::{End, Message, Phase, RUNS, Request, State};
use crate::store::kind;

/// Returns one numbered sentence for each step.
#[must_use]
pub fn sentences(trace: &Trace) -> Vec<String> {
    let mut teller = Teller { worker: [0; RUNS], grants: 0 };
    (1..)
        .zip(trace)
        .map(|(step, (before, action, after))| format!("{step}. {}", teller.tell(before, *action, after)))
        .collect()
}

struct Teller {
    /// The worker of each delivery.
    worker: [usize; RUNS],
    /// The number of grants so far.
    grants: usize,
}

impl Teller {
    fn tell(&mut self, before: &State, action: Action, after: &State) -> String {
        let mut told = self.step(before, action, after);
        for (bit, invariant) in Invariant::ALL.into_iter().enumerate() {
            if after.step.has_violated(bit) {
                let _ = write!(told, " [breaks {invariant}]");
            }
        }
        told
    }

    fn step(&mut self, before: &State, action: Action, after: &State) -> String {
        match action {
            Action::Claim { run, .. } => {
                let asks = self.asks(before, run);
                format!("{asks}: {}", self.claimed(before, run, after))
            }
            Action::ClaimUnheard { run, .. } => {
                format!("{}: no answer, the request is on the wire", self.asks(before, run))
            }
            Action::Crash { run, .. } => {
                let who = match before.runs[usize::from(run)].phase {
                    Phase::Waiting => self.takes(before, run),
                    _ => self.who(run),
                };
                format!("{who} crashes{}", left_behind(before, after))
            }
            Action::GiveUp(run) => format!("{} stops asking{}", self.who(run), left_behind(before, after)),
            Action::Effect(run) => format!("{} {}", self.who(run), effect(before, run, after)),
            Action::SkipEffect(run) => format!("{} says that it is done, and is not", self.who(run)),
            Action::EndTransaction(run) => {
                format!("a statement of the handler of {} ends its transaction", self.who(run))
            }
            Action::RunUngranted(run) => format!("{} runs without a grant: the effect happens", self.who(run)),
            Action::AckUnknown(run) => format!("{} acks without an answer", self.who(run)),
            Action::Fail(run, End::Refund) => format!("{} gives its grant back unused", self.who(run)),
            Action::Fail(run, _) => format!("the handler of {} fails", self.who(run)),
            Action::Mistake(run, _) => format!("{} takes silence for failure", self.who(run)),
            Action::Settle(run) => format!("{} {}", self.who(run), settled(before, run, after)),
            Action::SettleUnheard(run) => {
                let verb = pending(before, run);
                format!("{} {verb}: no answer, the request is on the wire", self.who(run))
            }
            Action::Renew(run) => {
                let over = after.runs[usize::from(run)].phase == Phase::Over;
                format!("{} renews: {}", self.who(run), if over { "lost" } else { "the lease is longer" })
            }
            Action::RenewUnheard(run) => format!("{} renews: no answer, the request is on the wire", self.who(run)),
            Action::Late(message) => self.late(before, message, after),
            Action::Expire => "the lease runs out".to_owned(),
            Action::Tick => "the store's clock ticks".to_owned(),
            Action::Lose => "the store loses the record".to_owned(),
            Action::End => "the record's retention ends".to_owned(),
            Action::Purge => "a janitor removes the record".to_owned(),
            Action::Forget => "an operator forgets the key".to_owned(),
        }
    }

    fn who(&self, run: u8) -> String {
        format!("worker {}", self.worker[usize::from(run)])
    }

    /// Assigns the delivery to the first idle worker.
    fn takes(&mut self, before: &State, run: u8) -> String {
        let busy = |worker: usize| (0..RUNS).any(|at| before.runs[at].is_active() && self.worker[at] == worker);
        let free = (1..=RUNS).find(|worker| !busy(*worker)).unwrap_or(RUNS);
        self.worker[usize::from(run)] = free;
        format!("worker {free} takes delivery {} and", run + 1)
    }

    fn asks(&mut self, before: &State, run: u8) -> String {
        match before.runs[usize::from(run)].phase {
            Phase::Waiting => format!("{} claims", self.takes(before, run)),
            _ => format!("{} claims again", self.who(run)),
        }
    }

    fn claimed(&mut self, before: &State, run: u8, after: &State) -> String {
        if let Some(grant) = self.grant(before, after) {
            return grant;
        }
        let mismatch = after.step.has_shown(Sight::Mismatch as usize);
        match kind(after.record) {
            _ if after.runs[usize::from(run)].held().is_some() => "granted before, and told so now".to_owned(),
            _ if mismatch => "another payload, refused".to_owned(),
            StateKind::Consuming => "in flight".to_owned(),
            StateKind::Consumed => "consumed, it acks".to_owned(),
            other => format!("{other}, dead-lettered"),
        }
    }

    /// Returns the grant of the step, if there is one.
    fn grant(&mut self, before: &State, after: &State) -> Option<String> {
        if after.ghost.idle <= before.ghost.idle {
            return None;
        }
        self.grants += 1;
        let over = kind(before.record) == StateKind::Consuming;
        Some(format!("grant {}{}", self.grants, if over { ", taken over" } else { "" }))
    }

    fn late(&mut self, before: &State, message: Message, after: &State) -> String {
        let changed = (before.record != after.record).then(|| kind(after.record).to_string());
        let came = self.grant(before, after).or(changed);
        let came = came.unwrap_or_else(|| "nothing comes of it".to_owned());
        format!("the {} of delivery {} arrives late: {came}", noun(message.request), message.run + 1)
    }
}

fn noun(request: Request) -> &'static str {
    match request {
        Request::Claim => "claim",
        Request::Complete => "completion",
        Request::Release(_) => "release",
        Request::Renew => "renewal",
    }
}

fn pending(before: &State, run: u8) -> &'static str {
    if matches!(before.runs[usize::from(run)].phase, Phase::Releasing { .. }) { "releases" } else { "completes" }
}

fn effect(before: &State, run: u8, after: &State) -> &'static str {
    match after.runs[usize::from(run)].phase {
        Phase::Over => "is refused by the resource",
        _ if after.ghost.idle == before.ghost.idle => "does its work in a transaction",
        _ => "has its effect",
    }
}

fn settled(before: &State, run: u8, after: &State) -> String {
    let verb = pending(before, run);
    let acked = after.step.has_shown(Sight::Acked as usize);
    // Fencing tokens move with the clock, so the rest of the record shows whether it was written.
    let stage = |state: &State| state.record.map(|kept| Kept { number: 0, ..kept });
    match () {
        () if acked || stage(before) != stage(after) => format!("{verb}: {}", kind(after.record)),
        () => format!("{verb}: lost"),
    }
}

fn left_behind(before: &State, after: &State) -> String {
    let sent = after.wire.each().find(|message| after.wire.count(*message) > before.wire.count(*message));
    sent.map_or_else(String::new, |message| format!("; its {} is on the wire", noun(message.request)))
}

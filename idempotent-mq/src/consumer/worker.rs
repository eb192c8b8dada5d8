//! One delivery: run, decided, settled. Release first, then requeue: a run gives its key back before it ends, and only
//! then is the source told.
use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

use idempotent_core::{Alert, AlertKind, Outcome, RunSummary};
use tracing::{debug, error, info, warn};

use super::log::conclude;
use super::obituary::obituary;
use super::settle::{Settled, settle};
use super::shared::{Job, Phase, Shared};
use crate::counts::End;
use crate::decide::{Circumstances, Decision};
use crate::work::{Begun, Ended, Prepared, Run, Unfit};
use crate::{DeadLetter, Delivery, Retry, Settlement, SourceError};

/// What a worker was given to do.
pub(super) enum Task {
    Run(Run),
    /// Nothing to run: only to be settled.
    Settle(Decision, End),
}

impl<Tag: Send + Sync + 'static> Shared<Tag> {
    /// What is decided before a delivery is read: reading it may be what kills the process.
    pub(super) fn triage(&self, delivery: &Delivery) -> Option<(Decision, End)> {
        if delivery.is_expired(self.clock().wall()) {
            return Some((Decision::Ack, End::Expired));
        }
        if let Some((most, times)) = self.max_deliveries.zip(delivery.delivered).filter(|(most, times)| times > most) {
            let reason = format!("delivered {times} times without an end, the limit is {most}");
            return Some((Decision::DeadLetter { reason: reason.into() }, End::DeadLettered));
        }
        if let Some(most) = self.max_body.filter(|most| delivery.body.len() > *most) {
            self.counters.undecodable();
            let bytes = delivery.body.len();
            let reason = format!("the body has {bytes} bytes, the limit is {most} (`max_body`): it was not decoded");
            return Some((Decision::DeadLetter { reason: reason.into() }, End::DeadLettered));
        }
        let rest = self.postponed.rest(delivery, self.clock().now())?;
        Some((put_off(rest, "not due yet"), End::Deferred))
    }

    /// Reads a delivery.
    pub(super) fn prepare(&self, job: &Job<Tag>) -> Result<Prepared, Decision> {
        self.work.prepare(&self.desk, job.delivery().clone()).map_err(|unfit| {
            let reason = match unfit {
                Unfit::Undecodable(undecodable) => {
                    self.counters.undecodable();
                    undecodable.to_string()
                }
                Unfit::Unkeyed(missing) => missing.to_string(),
            };
            Decision::DeadLetter { reason: reason.into() }
        })
    }
}

/// What the dispatcher is to know of a delivery that has ended.
#[derive(Default)]
pub(super) struct Worked {
    /// For how long, if it was to be tried again.
    pub(super) put_off: Option<Duration>,
    /// The source refuses for good to settle as decided.
    pub(super) refused: Option<SourceError>,
}

/// Sees a delivery to its end.
pub(super) async fn work<Tag: Send + Sync + 'static>(job: Job<Tag>, task: Task) -> Worked {
    let shared = job.shared.clone();
    let (decision, end, ended) = match task {
        Task::Settle(decision, end) => (decision, end, None),
        Task::Run(run) => match shared.before_it_runs(&job) {
            Some((decision, end)) => (decision, end, None),
            None => {
                let begun = Begun::default();
                let ended = tokio::select! {
                    biased;
                    ended = run(begun.clone()) => Some(ended),
                    () = shared.given_up(&begun) => None,
                    () = shared.note_claim(&begun) => None,
                };
                let (decision, end) = match &ended {
                    Some(ended) => shared.decide(ended, &job),
                    // Dropped midway: its effect is unknown and its key left to its lease. Or it had not begun.
                    None => (Decision::GiveBack, End::GivenBack),
                };
                if ended.is_none() {
                    // A claim that is taken back is so by a task of its own: let it go first.
                    tokio::task::yield_now().await;
                }
                (decision, end, ended)
            }
        },
    };
    if job.held.is_revoked() {
        job.end(End::Revoked);
        return Worked::default();
    }
    let (decision, end) = conclude(&job, decision, end, ended.as_ref()).await;
    let put_off = match &decision {
        Decision::Retry { after, .. } => Some(*after),
        _ => None,
    };
    let settlement = shared.settlement(decision, job.delivery(), ended.as_ref()).await;
    let (settled, refused) = match settle(&job, &settlement).await {
        Settled::Refused(refused) => {
            // Or it would come back here at once.
            shared.take_no_more();
            (given_back(&job).await, Some(refused))
        }
        settled => (settled, None),
    };
    let end = match settled {
        Settled::AsDecided => end,
        Settled::Otherwise(other) => other,
        // What was taken away meanwhile could not be settled any more.
        _ if job.held.is_revoked() => End::Revoked,
        _ => End::Unsettled,
    };
    tell(&shared.desk.group, job.delivery(), &settlement, end, ended.as_ref());
    if let (End::DeadLettered, Settlement::DeadLetter(letter)) = (end, &settlement) {
        shared.alert(job.delivery(), letter);
    }
    job.end(end);
    Worked { put_off, refused }
}

async fn given_back<Tag: Send + Sync + 'static>(job: &Job<Tag>) -> Settled {
    match settle(job, &Settlement::GiveBack).await {
        Settled::AsDecided => Settled::Otherwise(End::GivenBack),
        other => other,
    }
}

impl<Tag: Send + Sync + 'static> Shared<Tag> {
    /// It may have waited for its turn.
    fn before_it_runs(&self, job: &Job<Tag>) -> Option<(Decision, End)> {
        if job.held.is_revoked() {
            return Some((Decision::GiveBack, End::Revoked));
        }
        if self.has_reached(Phase::Draining) {
            return Some((Decision::GiveBack, End::GivenBack));
        }
        if job.delivery().is_expired(self.clock().wall()) {
            return Some((Decision::Ack, End::Expired));
        }
        self.breaker.rest().map(|rest| (put_off(rest, "the store is down"), End::Deferred))
    }

    /// Ends when a run is to be dropped: what has not begun need not.
    async fn given_up(&self, begun: &Begun) {
        self.reached(Phase::Draining).await;
        if begun.is_set() {
            self.reached(Phase::Closing).await;
        }
    }

    /// Says that the store answers, as soon as that is known. Never ends.
    async fn note_claim(&self, begun: &Begun) {
        begun.claimed().await;
        self.breaker.claimed();
        pending().await
    }

    fn decide(&self, ended: &Ended, job: &Job<Tag>) -> (Decision, End) {
        let captured = ended.captured.as_ref();
        if captured.is_none_or(|captured| captured.outcome == Outcome::Unprotected) {
            self.counters.unprotected();
        }
        if self.breaker.learn(captured) {
            self.counters.pauses();
            warn!(target: "idempotent", group = &*self.desk.group, "the store is down: no deliveries are taken");
        }
        if captured.is_some_and(|captured| captured.attempt == Some(self.alert_after) && failed(captured)) {
            self.counters.alerts();
            let key = captured.and_then(|captured| captured.key.as_ref()).map(tracing::field::display);
            error!(target: "idempotent", group = &*self.desk.group, key,
                attempts = self.alert_after, "a message fails again and again");
        }
        let circumstances = Circumstances { stopping: self.has_reached(Phase::Draining), resent: job.held.is_resent() };
        let mut decision = self.rules.decide(ended, job.delivery(), circumstances, self.bits());
        // What finds the store down comes again when it may be up.
        if let (Decision::Retry { after, attempt: false, .. }, Some(rest)) = (&mut decision, self.breaker.rest()) {
            *after = rest.max(*after);
        }
        let end = match decision {
            Decision::Ack => End::Acked,
            Decision::Retry { attempt: true, .. } => End::Retried,
            Decision::Retry { attempt: false, .. } => End::Deferred,
            Decision::DeadLetter { .. } => End::DeadLettered,
            Decision::GiveBack => End::GivenBack,
        };
        (decision, end)
    }

    fn alert(&self, delivery: &Delivery, letter: &DeadLetter) {
        let Some(alerts) = &self.alerts else { return };
        let alert = Alert::new(AlertKind::DeadLetter, self.desk.group.to_string(), alerts.now());
        alerts.raise(alert.source(delivery.position.source.to_string()).with_detail(letter.reason.clone()));
    }

    async fn settlement(&self, decision: Decision, delivery: &Delivery, ended: Option<&Ended>) -> Settlement {
        match decision {
            Decision::Ack => Settlement::Ack,
            Decision::GiveBack => Settlement::GiveBack,
            Decision::DeadLetter { reason } => Settlement::DeadLetter(obituary(self, delivery, ended, reason).await),
            Decision::Retry { after, attempt, reason } => {
                let so_far = delivery.attempt.or(ended.and_then(|ended| ended.captured.as_ref()?.attempt));
                Settlement::Retry(Retry {
                    after: self.postponed.step(delivery, after, self.clock().now()),
                    attempt: so_far.unwrap_or(1).saturating_add(u32::from(attempt)),
                    first_at: delivery.first_at.unwrap_or(delivery.received_at),
                    reason,
                })
            }
        }
    }
}

fn failed(captured: &RunSummary) -> bool {
    matches!(captured.outcome, Outcome::Released { .. } | Outcome::Dead { .. })
}

pub(super) fn put_off(after: Duration, reason: &'static str) -> Decision {
    Decision::Retry { after, attempt: false, reason: Cow::Borrowed(reason) }
}

/// Without keys but hashed ones, and without anything of the message.
fn tell(group: &str, delivery: &Delivery, settlement: &Settlement, end: End, ended: Option<&Ended>) {
    let captured = ended.and_then(|ended| ended.captured.as_ref());
    let key = captured.and_then(|captured| captured.key.as_ref()).map(tracing::field::display);
    let outcome = captured.map(|captured| captured.outcome.name());
    let (position, how) = (&delivery.position, settlement.name());
    match (end, settlement) {
        (End::Unsettled, _) => {
            error!(target: "idempotent", group, ?position, key, outcome, how, "not settled: the broker delivers it again");
        }
        (End::GivenBack, _) => debug!(target: "idempotent", group, ?position, key, outcome, "given back"),
        (_, Settlement::DeadLetter(letter)) => {
            warn!(target: "idempotent", group, ?position, key, outcome, reason = &*letter.reason, "dead letter");
        }
        (_, Settlement::Retry(retry)) => {
            let (after, reason) = (retry.after, &*retry.reason);
            info!(target: "idempotent", group, ?position, key, outcome, ?after, reason, "retry");
        }
        _ => debug!(target: "idempotent", group, ?position, key, outcome, how, "settled"),
    }
}

//! The worker of one delivery: runs the handler, decides, and settles. A run releases its key before it ends, and the delivery is
//! settled afterwards.
use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

use idempotent_core::{Alert, AlertKind, Outcome, RunSummary};
use tracing::{debug, error, info, warn};

use super::dead_letter::dead_letter;
use super::message_log::conclude;
use super::settle::{SettleResult, settle};
use super::state::{ConsumerState, DeliveryJob, Phase};
use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::{Decision, DecisionContext};
use crate::handler::{HandlerEnd, HandlerRun, PreparedRun, UnusableDelivery};
use crate::time::pause;
use crate::{DeadLetter, Delivery, Retry, Settlement, SourceError};

/// The delay of a delivery that the message log could not record.
pub(super) const UNNOTED: Duration = Duration::from_secs(5);

/// The task of a worker.
pub(super) enum WorkerTask {
    Run(HandlerRun),
    /// Settles without a run.
    Settle(Decision, DeliveryEnd),
}

impl<Tag: Send + Sync + 'static> ConsumerState<Tag> {
    /// Decides about a delivery before its body is decoded, because decoding may kill the process.
    pub(super) fn triage(&self, delivery: &Delivery) -> Option<(Decision, DeliveryEnd)> {
        if self.is_expired(delivery) {
            return Some((Decision::Ack, DeliveryEnd::Expired));
        }
        if let Some((most, times)) = self.max_deliveries.zip(delivery.delivered).filter(|(most, times)| times > most) {
            let reason = format!("delivered {times} times without a result, the limit is {most}");
            return Some((Decision::DeadLetter { reason: reason.into() }, DeliveryEnd::DeadLettered));
        }
        if let Some(reason) = delivery.unreadable.clone() {
            self.counters.undecodable();
            return Some((Decision::DeadLetter { reason }, DeliveryEnd::DeadLettered));
        }
        let (bytes, most) = (delivery.body.len(), self.max_body);
        if bytes > most {
            self.counters.undecodable();
            let reason = format!("the body has {bytes} bytes, the limit is {most} (`max_body`): it was not decoded");
            return Some((Decision::DeadLetter { reason: reason.into() }, DeliveryEnd::DeadLettered));
        }
        let rest = self.postponed.rest(delivery, || self.clock().now())?;
        Some((put_off(rest, "not due yet"), DeliveryEnd::Deferred))
    }

    /// Returns true if the message has expired. Reads the clock only for a message with an expiry.
    fn is_expired(&self, delivery: &Delivery) -> bool {
        delivery.expires_at.is_some() && delivery.is_expired(self.clock().wall())
    }

    /// Decodes a delivery.
    pub(super) fn prepare(&self, job: &DeliveryJob<Tag>) -> Result<PreparedRun, Decision> {
        self.work.prepare(&self.context, job.delivery().clone(), job.held.clone()).map_err(|unfit| {
            let reason = match unfit {
                UnusableDelivery::Undecodable(undecodable) => {
                    self.counters.undecodable();
                    undecodable.to_string()
                }
                UnusableDelivery::Unkeyed(missing) => missing.to_string(),
            };
            Decision::DeadLetter { reason: reason.into() }
        })
    }
}

/// The result of a worker.
#[derive(Default)]
pub(super) struct WorkerResult {
    /// The delay, if the delivery is retried.
    pub(super) put_off: Option<Duration>,
    /// The error of a source that refused to settle.
    pub(super) refused: Option<SourceError>,
}

/// Runs and settles one delivery.
pub(super) async fn work<Tag: Send + Sync + 'static>(job: DeliveryJob<Tag>, task: WorkerTask) -> WorkerResult {
    let shared = job.shared.clone();
    let (decision, end, ended) = match task {
        WorkerTask::Settle(decision, end) => (decision, end, None),
        WorkerTask::Run(run) => match shared.before_it_runs(&job) {
            Some((decision, end)) => (decision, end, None),
            None => {
                // A run that waits for its turn is counted by its permit.
                let _running = shared.context.turns.is_none().then(|| shared.counters.start_handler());
                let ended = tokio::select! {
                    biased;
                    ended = run => Some(ended),
                    () = job.given_up() => None,
                };
                let (decision, end) = match &ended {
                    Some(ended) => shared.decide(ended, &job),
                    None if !job.held.has_begun() && shared.is_expired(job.delivery()) => {
                        (Decision::Ack, DeliveryEnd::Expired)
                    }
                    // The run was dropped: it had not begun, or its effect is unknown and its lease must expire.
                    None => (Decision::GiveBack, DeliveryEnd::GivenBack),
                };
                if ended.is_none() {
                    // A separate task releases the claim: let it run first.
                    tokio::task::yield_now().await;
                }
                (decision, end, ended)
            }
        },
    };
    if job.held.is_revoked() {
        job.end(DeliveryEnd::Revoked);
        return WorkerResult::default();
    }
    let (decision, end) = conclude(&job, decision, end, ended.as_ref()).await;
    let put_off = match &decision {
        Decision::Retry { after, .. } => Some(*after),
        _ => None,
    };
    let settlement = shared.settlement(decision, job.delivery(), ended.as_ref()).await;
    let (settled, refused) = match settle(&job, &settlement).await {
        SettleResult::Refused(refused) => {
            // The delivery would otherwise return here at once.
            shared.take_no_more();
            (given_back(&job).await, Some(refused))
        }
        settled => (settled, None),
    };
    // The log and the alert state what happened, not what was decided.
    let (settlement, end) = match settled {
        SettleResult::AsDecided => (settlement, end),
        SettleResult::Otherwise(other, end) => (other, end),
        // A revoked delivery could not be settled.
        _ if job.held.is_revoked() => (settlement, DeliveryEnd::Revoked),
        _ => (settlement, DeliveryEnd::Unsettled),
    };
    let put_off = match &settlement {
        Settlement::Retry(retry) => Some(put_off.unwrap_or(retry.after)),
        _ => None,
    };
    tell(&shared.context.group, job.delivery(), &settlement, end, ended.as_ref());
    if let (DeliveryEnd::DeadLettered, Settlement::DeadLetter(letter)) = (end, &settlement) {
        shared.alert(job.delivery(), letter);
    }
    job.observe(end, ended.as_ref());
    job.end(end);
    WorkerResult { put_off, refused }
}

impl<Tag> DeliveryJob<Tag> {
    /// Waits until the run must be dropped. A run that has not begun is dropped first. A run that may wait for its turn is also dropped
    /// when its delivery is revoked or expires. Others are not, because the leader of a batch would fail all of its messages.
    async fn given_up(&self) {
        let mut phases = self.shared.phase.subscribe();
        let has_turn = self.shared.context.turns.is_some();
        let must_end = |phase: &Phase| match self.held.has_begun() {
            true => *phase >= Phase::Closing,
            false => *phase >= Phase::Draining || has_turn && self.held.is_revoked(),
        };
        let expires = async {
            match self.delivery().expires_at {
                Some(end) if has_turn => pause(self.shared.clock(), end - self.shared.clock().wall()).await,
                _ => pending().await,
            }
            if self.held.has_begun() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            // The sender is part of the shared state, so the channel stays open.
            _ = phases.wait_for(must_end) => {}
            () = expires => {}
        }
    }
}

async fn given_back<Tag: Send + Sync + 'static>(job: &DeliveryJob<Tag>) -> SettleResult {
    match settle(job, &Settlement::GiveBack).await {
        SettleResult::AsDecided => SettleResult::Otherwise(Settlement::GiveBack, DeliveryEnd::GivenBack),
        other => other,
    }
}

impl<Tag: Send + Sync + 'static> ConsumerState<Tag> {
    /// Decides about a delivery that waited for a free handler.
    fn before_it_runs(&self, job: &DeliveryJob<Tag>) -> Option<(Decision, DeliveryEnd)> {
        if job.held.is_revoked() {
            return Some((Decision::GiveBack, DeliveryEnd::Revoked));
        }
        if self.has_reached(Phase::Draining) {
            return Some((Decision::GiveBack, DeliveryEnd::GivenBack));
        }
        if self.is_expired(job.delivery()) {
            return Some((Decision::Ack, DeliveryEnd::Expired));
        }
        self.breaker.rest().map(|rest| (put_off(rest, "the store is down"), DeliveryEnd::Deferred))
    }

    fn decide(&self, ended: &HandlerEnd, job: &DeliveryJob<Tag>) -> (Decision, DeliveryEnd) {
        let captured = ended.captured.as_ref();
        if captured.is_none_or(|captured| captured.outcome == Outcome::Unprotected) {
            self.counters.unprotected();
        }
        if self.breaker.learn(captured) {
            self.counters.pauses();
            warn!(target: "idempotent", group = &*self.context.group, "consumer: the store is down; receiving is paused");
        }
        if captured.is_some_and(|captured| captured.attempt == Some(self.alert_after) && failed(captured)) {
            self.counters.alerts();
            let key = captured.and_then(|captured| captured.key.as_ref()).map(tracing::field::display);
            error!(target: "idempotent", group = &*self.context.group, key,
                attempts = self.alert_after, "consumer: a message fails repeatedly");
        }
        let circumstances = DecisionContext {
            stopping: self.has_reached(Phase::Draining),
            resent: job.held.is_resent(),
            begun: job.held.has_begun(),
        };
        let mut decision = self.rules.decide(ended, job.delivery(), circumstances, || self.bits());
        // A delivery that found the store, or the node of its key, down returns after the pause.
        if let (Decision::Retry { after, attempt: false, .. }, Some(rest)) =
            (&mut decision, self.breaker.rest_after(captured))
        {
            *after = rest.max(*after);
        }
        let end = match decision {
            Decision::Ack => DeliveryEnd::Acked,
            Decision::Retry { attempt: true, .. } => DeliveryEnd::Retried,
            Decision::Retry { attempt: false, .. } => DeliveryEnd::Deferred,
            Decision::DeadLetter { .. } => DeliveryEnd::DeadLettered,
            Decision::GiveBack => DeliveryEnd::GivenBack,
        };
        (decision, end)
    }

    fn alert(&self, delivery: &Delivery, letter: &DeadLetter) {
        let Some(alerts) = &self.alerts else { return };
        let alert = Alert::new(AlertKind::DeadLetter, self.context.group.to_string(), alerts.now());
        alerts.raise(alert.source(delivery.position.source.to_string()).with_detail(letter.reason.clone()));
    }

    async fn settlement(&self, decision: Decision, delivery: &Delivery, ended: Option<&HandlerEnd>) -> Settlement {
        match decision {
            Decision::Ack => Settlement::Ack,
            Decision::GiveBack => Settlement::GiveBack,
            Decision::DeadLetter { reason } => Settlement::DeadLetter(dead_letter(self, delivery, ended, reason).await),
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

/// Logs the end of a delivery, with the hashed key and without data of the message.
fn tell(group: &str, delivery: &Delivery, settlement: &Settlement, end: DeliveryEnd, ended: Option<&HandlerEnd>) {
    let captured = ended.and_then(|ended| ended.captured.as_ref());
    let key = captured.and_then(|captured| captured.key.as_ref()).map(tracing::field::display);
    let outcome = captured.map(|captured| captured.outcome.name());
    let (position, how) = (&delivery.position, settlement.name());
    let (source, partition, offset) = (&*position.source, position.partition, position.offset.as_deref());
    match (end, settlement) {
        (DeliveryEnd::Unsettled, _) => {
            error!(target: "idempotent", group, source, partition, offset, key, outcome, how, "consumer: a delivery was not settled; the broker delivers the message again");
        }
        (DeliveryEnd::Skipped, _) => {
            info!(target: "idempotent", group, source, partition, offset, "skipped: the message log says that this consumer has consumed the message");
        }
        (DeliveryEnd::SkippedAsVoid, _) => {
            info!(target: "idempotent", group, source, partition, offset, "skipped: the message log says that the message is void");
        }
        (DeliveryEnd::GivenBack, _) => {
            debug!(target: "idempotent", group, source, partition, offset, key, outcome, "given back")
        }
        (_, Settlement::DeadLetter(letter)) => {
            warn!(target: "idempotent", group, source, partition, offset, key, outcome, reason = &*letter.reason, "dead letter");
        }
        (_, Settlement::Retry(retry)) => {
            let (after, reason) = (retry.after, &*retry.reason);
            info!(target: "idempotent", group, source, partition, offset, key, outcome, ?after, reason, "retry");
        }
        _ => debug!(target: "idempotent", group, source, partition, offset, key, outcome, how, "settled"),
    }
}

//! One round of a relay: lease, decide, send, and write the results.
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use idempotent_core::__private::backoff::delay;
use idempotent_core::__private::send_guarded;
use idempotent_core::{Alert, AlertError, AlertKind, AlertSender, Clock, Entropy, GivenUp, OsEntropy, Timestamp};
use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind, Published, chains};

use super::{Relay, RelayCounters, RelayRound};
use crate::outbox::database::OutboxDb;
use crate::outbox::lease::{LeaseOwner, LeasedMessage, SendResult};
use crate::outbox::nonce::nonce;
use crate::outbox::queue_offset::{place_of, queue_of};
use crate::outbox::record::OutboxStatus;
use crate::outbox::resend_policy::ResendDecision;
use crate::outbox::{Outbox, OutboxError};

/// The delays between attempts for a message that the broker does not accept.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LAST_TRY: Duration = Duration::from_secs(5 * 60);
/// The maximum time for which given-up messages wait for their alerts.
const ALERT_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay between attempts to write the results.
const WRITE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The messages that one round has leased.
pub(super) struct LeasedBatch {
    pub(super) owner: LeaseOwner,
    /// The start of the lease, or a slightly earlier time.
    pub(super) since: Instant,
    pub(super) leased: Vec<LeasedMessage>,
}

/// The leased messages, sorted by what the relay does with them.
#[derive(Default)]
struct SortedBatch {
    send: Vec<(LeasedMessage, OutboundMessage)>,
    results: Vec<SendResult>,
    given_up: Vec<(Alert, SendResult)>,
}

impl<Db: OutboxDb> Relay<Db> {
    /// Runs one round: leases due messages, sends them, and writes the results.
    ///
    /// # Errors
    /// The database failed. Messages whose results could not be written are sent again once their leases expire.
    ///
    /// # Cancellation
    /// Messages that were being sent stay leased until their leases expire.
    pub async fn round(&self) -> Result<RelayRound, OutboxError> {
        match self.take().await? {
            Some(batch) => self.work(batch).await,
            None => Ok(RelayRound::default()),
        }
    }

    /// Leases due messages; `None` if there are none.
    pub(super) async fn take(&self) -> Result<Option<LeasedBatch>, OutboxError> {
        let (owner, since) = (nonce()?, self.clock.now());
        let leased = self.outbox.lease(&owner, self.batch, self.lease).await?;
        Ok((!leased.is_empty()).then_some(LeasedBatch { owner, since, leased }))
    }

    /// Sends the messages of a batch, and writes the result of each.
    pub(super) async fn work(
        &self,
        LeasedBatch { owner, since, leased }: LeasedBatch,
    ) -> Result<RelayRound, OutboxError> {
        let mut round = RelayRound { looked_at: leased.len(), ..RelayRound::default() };
        let sorted = self.part(leased).await?;
        let mut results = sorted.results;
        self.give_up(&owner, sorted.given_up, &mut results, &mut round);
        self.send(sorted.send, since, &mut results, &mut round).await;
        self.outbox.write_results(&*self.clock, self.lease, &owner, &results).await?;
        self.totals.add(&round);
        Ok(round)
    }

    async fn part(&self, leased: Vec<LeasedMessage>) -> Result<SortedBatch, OutboxError> {
        let seen = self.outbox.seen(&leased).await?;
        let mut sorted = SortedBatch::default();
        let mut held_back = HashMap::new();
        for mut leased in leased {
            let seen = seen.get(&leased.record.seq).copied().unwrap_or_default();
            let (verdict, message) = (self.resends.decide(&leased.record, &seen, leased.now), leased.message.take());
            let aggregate = message.as_ref().and_then(|message| message.aggregate.clone());
            if let Some(rest) = aggregate.as_ref().and_then(|aggregate| held_back.get(aggregate)) {
                sorted.results.push(leased.put_off(*rest));
                continue;
            }
            match (verdict, message) {
                (ResendDecision::Send, Some(message)) => sorted.send.push((leased, message)),
                (ResendDecision::Wait(_) | ResendDecision::Leave, Some(_)) => {
                    sorted.results.push(leased.put_off(self.resends.look_again));
                }
                (_, message) => {
                    let unsent = leased.record.sent_at.is_none();
                    let alert = self.given_up(&leased, message.as_ref(), self.clock.wall());
                    if let Some(aggregate) = aggregate.filter(|_| unsent) {
                        held_back.insert(aggregate, self.resends.look_again);
                    }
                    let error = message.is_none().then(|| "its headers have an unknown format".to_owned());
                    let result = SendResult { status: OutboxStatus::Dead, error, ..leased.put_off(Duration::ZERO) };
                    sorted.given_up.push((alert, result));
                }
            }
        }
        Ok(sorted)
    }

    /// Sends the alerts before the messages are marked: an alert may be sent twice, but is never lost. If a sender does not answer at
    /// once, a task of its own waits for it and marks the messages, whose lease goes on: the round does not wait.
    fn give_up(
        &self,
        owner: &LeaseOwner,
        given_up: Vec<(Alert, SendResult)>,
        results: &mut Vec<SendResult>,
        round: &mut RelayRound,
    ) {
        if given_up.is_empty() {
            return;
        }
        let (alerts, given_up): (Vec<_>, Vec<_>) = given_up.into_iter().unzip();
        let Ok(place) = self.alerting.clone().try_acquire_owned() else {
            // Bounded: the messages are given up in a later round, with their alerts.
            let (rest, status) = (self.resends.look_again, OutboxStatus::Unconfirmed);
            results.extend(given_up.into_iter().map(|result| SendResult { rest, status, error: None, ..result }));
            return;
        };
        round.given_up = given_up.len();
        let limit = ALERT_TIMEOUT.min(self.lease / 2);
        let mut alerting =
            Box::pin(alert(self.alerts.clone(), alerts, limit, self.outbox.clone(), self.totals.clone()));
        if (&mut alerting).now_or_never().is_some() {
            results.extend(given_up);
            return;
        }
        let (outbox, clock, lease, owner) = (self.outbox.clone(), self.clock.clone(), self.lease, *owner);
        tokio::spawn(async move {
            alerting.await;
            if let Err(error) = outbox.write_results(&*clock, lease, &owner, &given_up).await {
                tracing::warn!(target: "idempotent", outbox = outbox.0.table, error = &error as &(dyn std::error::Error + 'static),
                    "marking messages as given up failed; their alerts are sent again");
            }
            drop(place);
        });
    }

    fn given_up(&self, leased: &LeasedMessage, message: Option<&OutboundMessage>, now: Timestamp) -> Alert {
        let record = &leased.record;
        let holds_back = record.sent_at.is_none() && message.is_some_and(|message| message.aggregate.is_some());
        let alert = Alert::new(AlertKind::MessageGivenUp, self.outbox.0.table.clone(), now).given_up(GivenUp::new(
            record.seq,
            record.sends,
            holds_back,
        ));
        let alert = message.iter().fold(alert, |alert, message| alert.source(message.topic.clone()));
        record.last_error.iter().fold(alert, |alert, error| alert.with_detail(error.clone()))
    }

    async fn send(
        &self,
        send: Vec<(LeasedMessage, OutboundMessage)>,
        since: Instant,
        results: &mut Vec<SendResult>,
        round: &mut RelayRound,
    ) {
        let left = (self.lease * 2 / 3).saturating_sub(self.clock.now().saturating_duration_since(since));
        if send.is_empty() || left.is_zero() {
            // The lease may expire before the result is written.
            results.extend(send.iter().map(|(leased, _)| leased.put_off(FIRST_TRY)));
            return;
        }
        let (leased, messages): (Vec<_>, Vec<_>) = send.into_iter().unzip();
        let answers = self.publish(&messages, left).await;
        let mut answers = answers.into_iter();
        let mut held_back = HashMap::new();
        for (leased, message) in leased.into_iter().zip(&messages) {
            let unanswered = || Err(PublishError::new(PublishErrorKind::Unconfirmed, "no answer in time"));
            let answer = answers.next().unwrap_or_else(unanswered);
            let behind = message.aggregate.as_ref().and_then(|aggregate| held_back.get(aggregate));
            match (answer, behind) {
                (Ok(published), _) => {
                    round.sent += 1;
                    let rest = self.resends.next(leased.record.sends.saturating_add(1));
                    // The broker keeps the message until its delivery time, so it is not lost before.
                    let kept = message.deliver_at.map_or(Duration::ZERO, |at| at - leased.now);
                    results.push(leased.accepted(published, rest.saturating_add(kept)));
                }
                // An earlier message of the aggregate failed: this one was not sent, and waits for the earlier one.
                (Err(error), Some(rest)) if error.kind() == PublishErrorKind::Unsent => {
                    results.push(leased.put_off(*rest))
                }
                (Err(error), _) => {
                    round.failed += 1;
                    round.refused += usize::from(error.kind() == PublishErrorKind::Refused);
                    let bits = OsEntropy.bits().unwrap_or_default();
                    let rest = delay(FIRST_TRY, LAST_TRY, leased.record.failures, 20, bits);
                    if let Some(aggregate) = message.aggregate.as_ref().filter(|_| leased.record.sent_at.is_none()) {
                        held_back.entry(aggregate).or_insert(rest);
                    }
                    results.push(leased.failed(&error, rest));
                }
            }
        }
    }

    /// Publishes the messages within this time, except for those that the publisher would deliver too early. Returns
    /// fewer answers than messages if the publisher did not answer in time.
    async fn publish(&self, messages: &[OutboundMessage], within: Duration) -> Vec<Result<Published, PublishError>> {
        if self.publisher.delays() || messages.iter().all(|message| message.deliver_at.is_none()) {
            return self.ask(messages, within).await;
        }
        // A refused message blocks the later messages of its aggregate, like any other refusal.
        let mut answers: Vec<_> = messages.iter().map(|_| None).collect();
        let mut open: Vec<usize> = Vec::new();
        for chain in chains(messages) {
            let end = chain.iter().position(|at| messages[*at].deliver_at.is_some());
            let (before, from) = chain.split_at(end.unwrap_or(chain.len()));
            open.extend(before);
            for (behind, at) in from.iter().enumerate() {
                let error = if behind == 0 { PublishError::cannot_delay() } else { PublishError::kept_back() };
                answers[*at] = Some(Err(error));
            }
        }
        open.sort_unstable();
        let sent: Vec<_> = open.iter().map(|at| messages[*at].clone()).collect();
        let mut told = if sent.is_empty() { Vec::new() } else { self.ask(&sent, within).await }.into_iter();
        let unanswered = || Err(PublishError::new(PublishErrorKind::Unconfirmed, "no answer in time"));
        for at in open {
            answers[at] = Some(told.next().unwrap_or_else(unanswered));
        }
        answers.into_iter().flatten().collect()
    }

    /// Calls the publisher. A publisher that panics or does not answer in time returns no answers.
    async fn ask(&self, messages: &[OutboundMessage], within: Duration) -> Vec<Result<Published, PublishError>> {
        let publish = AssertUnwindSafe(async { self.publisher.publish(messages).await }).catch_unwind();
        match tokio::time::timeout(within, publish).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => {
                tracing::error!(target: "idempotent", outbox = self.outbox.0.table, "the publisher panicked; its messages are sent again");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Writes the results, with retries for a third of the lease. Messages whose results are not written are sent
    /// again.
    async fn write_results(
        &self,
        clock: &dyn Clock,
        lease: Duration,
        owner: &LeaseOwner,
        results: &[SendResult],
    ) -> Result<(), OutboxError> {
        let until = clock.now() + lease / 3;
        loop {
            match self.record(owner, results).await {
                Err(error) if error.is_worth_a_retry() && clock.now() + WRITE_RETRY_DELAY < until => {
                    tracing::warn!(target: "idempotent", outbox = self.0.table,
                        error = &error as &(dyn std::error::Error + 'static), "recording sent messages failed; the relay sends them again");
                    clock.sleep_until(clock.now() + WRITE_RETRY_DELAY).await;
                }
                written => return written,
            }
        }
    }
}

/// Sends alerts concurrently, so that the lease suffices for any number of them. Counts those that no sender is known to have accepted.
async fn alert<Db: OutboxDb>(
    sender: Arc<dyn AlertSender>,
    alerts: Vec<Alert>,
    limit: Duration,
    outbox: Outbox<Db>,
    totals: RelayCounters,
) {
    let sent = alerts.iter().map(|alert| tokio::time::timeout(limit, send_guarded(&*sender, alert)));
    let silent = |_| Err(AlertError::new("no answer in time"));
    let failures = join_all(sent).await.into_iter().filter_map(|sent| sent.unwrap_or_else(silent).err());
    let failures: Vec<_> = failures.collect();
    if let Some(error) = failures.first() {
        totals.add_failed_alerts(failures.len());
        tracing::error!(target: "idempotent", outbox = outbox.0.table, failed = failures.len(), %error,
            "messages given up; sending their alerts failed");
    }
}

impl LeasedMessage {
    /// Returns the result of a message that was not sent.
    fn put_off(&self, rest: Duration) -> SendResult {
        SendResult {
            seq: self.record.seq,
            accepted: false,
            sends: 0,
            failures: self.record.failures,
            status: OutboxStatus::Unconfirmed,
            queue: None,
            place: None,
            rest,
            error: None,
        }
    }

    fn accepted(&self, published: Published, rest: Duration) -> SendResult {
        let position = published.position.as_ref();
        SendResult {
            accepted: true,
            sends: 1,
            failures: 0,
            queue: position.map(queue_of),
            place: position.and_then(place_of),
            ..self.put_off(rest)
        }
    }

    fn failed(&self, error: &PublishError, rest: Duration) -> SendResult {
        SendResult {
            // A message that certainly reached no queue does not count as sent, so an outage uses up no sends.
            sends: u32::from(error.kind() != PublishErrorKind::Unsent),
            failures: self.record.failures.saturating_add(1),
            error: Some(error.to_string()),
            ..self.put_off(rest)
        }
    }
}

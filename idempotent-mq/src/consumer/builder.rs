//! The builder of consumers, which refuses invalid settings before the first delivery.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Alerts, DeliveryContext, Executor, Identity, Key, OnInFlight, Policy, Redelivery, Scene};

use crate::consumer::decision::SettlementRules;
use crate::handler::{ConsumerContext, DeliveryHandler};
use crate::{
    Consumer, DelaySupport, DeliveryObserver, MessageHandler, MessageLog, Schedule, Settle, SetupError, Source,
    SourceCapabilities,
};

/// A builder for a [`Consumer`].
#[must_use]
pub struct ConsumerBuilder<S: Source> {
    source: S,
    context: ConsumerContext,
    pub(super) concurrency: usize,
    pub(super) prefetch: Option<usize>,
    pub(super) claims_ahead: usize,
    pub(super) grace: Duration,
    pub(super) schedule: Option<Schedule>,
    pub(super) max_deliveries: Option<u32>,
    pub(super) max_body: usize,
    pub(super) alert_after: u32,
    short_retention: bool,
    log: Option<Arc<dyn MessageLog>>,
    pub(super) skip_consumed: bool,
    alerts: Option<Alerts>,
    observer: Option<Arc<dyn DeliveryObserver>>,
}

/// The checked parts of a consumer.
pub(crate) struct ConsumerParts<S: Source> {
    pub(crate) source: S,
    pub(crate) context: ConsumerContext,
    pub(crate) work: Arc<dyn DeliveryHandler>,
    pub(crate) settler: Arc<dyn Settle<S::Tag>>,
    pub(crate) capabilities: SourceCapabilities,
    pub(crate) rules: SettlementRules,
    pub(crate) max_deliveries: Option<u32>,
    pub(crate) max_body: usize,
    pub(crate) alert_after: u32,
    pub(crate) concurrency: usize,
    pub(crate) claims_ahead: usize,
    pub(crate) prefetch: usize,
    pub(crate) grace: Duration,
    pub(crate) log: Option<Arc<dyn MessageLog>>,
    pub(crate) logged_as: Option<Arc<str>>,
    pub(crate) alerts: Option<Alerts>,
    pub(crate) observer: Option<Arc<dyn DeliveryObserver>>,
}

/// The factor between attempts and deliveries by the broker's count, which includes deferrals.
const DELIVERIES_PER_RUN: u32 = 10;
const DELIVERIES_AT_LEAST: u32 = 100;
/// The error for `on_in_flight = ack` without a message log, with the text of the executor.
const ACK_ALONE: &str = "on_in_flight = ack loses the message if the run in flight dies: it needs an outbox that resends \
                         unconfirmed messages; set it as this consumer's `log`, or use retry or wait";
/// The default of `max_body`.
const MAX_BODY: usize = 16 << 20;
const MOST_HANDLERS: usize = 100_000;
const MOST_HELD: usize = 1_000_000;
const LONGEST_GRACE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Random bits that yield the largest jitter.
const LONGEST: u128 = 2_000;

impl<S: Source> ConsumerBuilder<S> {
    pub(crate) fn new(source: S, group: Arc<str>, executor: Executor) -> Self {
        Self {
            source,
            context: ConsumerContext {
                executor,
                group,
                known: DeliveryContext::new(),
                claims: DeliveryContext::new(),
                turns: None,
            },
            concurrency: 8,
            prefetch: None,
            claims_ahead: 1,
            grace: Duration::from_secs(10),
            schedule: None,
            max_deliveries: None,
            max_body: MAX_BODY,
            alert_after: 3,
            short_retention: false,
            log: None,
            skip_consumed: true,
            alerts: None,
            observer: None,
        }
    }

    /// Sets the number of handlers that run concurrently: 1 to 100,000.
    ///
    /// # Default
    /// 8
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// Sets the maximum number of unsettled deliveries, whether they run or wait: up to 1,000,000, and not below the concurrency.
    ///
    /// # Default
    /// Twice the concurrency
    pub fn prefetch(mut self, deliveries: usize) -> Self {
        self.prefetch = Some(deliveries);
        self
    }

    /// Sets the number of deliveries whose keys are claimed while all handlers run: up to 100,000. A handler that ends is then followed by
    /// one whose key is claimed already, and the completion of one message travels with the claim of the next.
    ///
    /// Only [keyed](crate::Messages::keyed) handlers of one message claim ahead. At most [`prefetch`](Self::prefetch) deliveries are held,
    /// so a prefetch that equals the concurrency leaves none to claim ahead. The lease of a claimed delivery that waits is renewed. When
    /// the consumer stops, or the broker revokes the delivery, its key is released, and its attempt is not counted. The next consumer may
    /// defer such a message once, if it arrives before the release.
    ///
    /// A crash leaves the claimed keys in flight until their leases expire, and counts an attempt of each, as for running handlers. With a
    /// policy that parks a key after a crash or permits one run, a consumer therefore claims nothing ahead.
    ///
    /// A duplicate that is claimed while the first copy runs is deferred, as with several handlers.
    ///
    /// Deliveries of one [ordering key](crate::Messages::ordered_by) are not claimed ahead of each other. Without an ordering key, the
    /// message whose claim is answered first runs first, even with one handler. With 0, a consumer with one handler starts messages in the
    /// order of their arrival, and records the end of each before the next one starts.
    ///
    /// # Default
    /// 1
    pub fn claim_ahead(mut self, deliveries: usize) -> Self {
        self.claims_ahead = deliveries;
        self
    }

    /// Sets the grace period of handlers after the consumer begins to stop: up to 7 days.
    ///
    /// # Default
    /// 10 s
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the retry delays after failed attempts.
    ///
    /// # Default
    /// The policy's [`retry_delay`](Policy::retry_delay), or [`Schedule::default`] if no claim counts attempts
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Sets the maximum number of deliveries by the broker's count. A message with more deliveries is dead-lettered without being
    /// decoded, which stops a message that kills its process before its key is claimed. Deferrals count, so the limit must be
    /// generous.
    ///
    /// # Default
    /// Ten for each run that the policy allows, at least 100, plus one for each part of a delay that the source must split. No
    /// limit if the policy has none, or if the source does not [count](crate::SourceCapabilities::counts)
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// Sets the largest body in bytes that is decoded and run. A larger body is dead-lettered unchanged, without a claim, and
    /// counted as [`undecodable`](crate::ConsumerCounts::undecodable). The broker has already delivered it by then: a limit that
    /// protects memory belongs to the broker too.
    ///
    /// # Default
    /// 16 MiB. With [`usize::MAX`], a body of any size is decoded
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the number of the failed run that is counted in [`alerts`](crate::ConsumerCounts::alerts) and logged as an error.
    ///
    /// # Default
    /// 3
    pub fn alert_after(mut self, failures: u32) -> Self {
        self.alert_after = failures;
        self
    }

    /// Permits a retention that is shorter than the redelivery time of the broker. Late duplicates may then run again.
    pub fn allow_short_retention(mut self) -> Self {
        self.short_retention = true;
        self
    }

    /// Sets the message log, which records received messages and their results for a sender that resends lost messages.
    ///
    /// The policy of a [keyed](crate::Messages::keyed) handler may then use [`OnInFlight::Ack`]: the consumer acknowledges a duplicate of
    /// a run in flight, and the sender resends the message if that run dies.
    ///
    /// # Default
    /// None
    pub fn log(mut self, log: Arc<dyn MessageLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Sets whether the consumer trusts its [message log](Self::log) more than the store.
    ///
    /// With `true`, the consumer acknowledges a delivery without a run if the log reports that this consumer has consumed the message
    /// ([`SenderState::Consumed`](crate::SenderState::Consumed)), or that its sender has voided the message
    /// ([`SenderState::Void`](crate::SenderState::Void)). A consumed message then has no second effect after the store has lost its
    /// key, as after `FLUSHALL` or an eviction. The consumer counts these deliveries as
    /// [`skipped`](crate::ConsumerCounts::skipped) and logs each at level `info`.
    ///
    /// With `false`, only the store decides, and voided messages run. Use this to run consumed messages again on purpose, for
    /// example from an earlier position of a stream.
    ///
    /// The log recognizes the consumer by the executor's namespace and the group, together with the queue or topic of the delivery.
    ///
    /// # Default
    /// `true`; without a log, the setting has no effect
    pub fn skip_consumed(mut self, skip: bool) -> Self {
        self.skip_consumed = skip;
        self
    }

    /// Sets the destination of alerts. The consumer raises an alert for each dead letter that the source has confirmed. The alert
    /// names the group and the queue or topic, and its [`detail`](idempotent_core::Alert::detail) is the reason.
    ///
    /// # Default
    /// None: dead letters are logged as warnings and counted
    pub fn alerts(mut self, alerts: &Alerts) -> Self {
        self.alerts = Some(alerts.clone());
        self
    }

    /// Sets the observer of settled deliveries. The events of runs go to the observer of the executor.
    ///
    /// # Default
    /// None
    pub fn observer(mut self, observer: impl DeliveryObserver) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the consumer.
    ///
    /// # Errors
    /// Returns [`SetupError`] if settings contradict each other or the source. Lease and retention must fit the redelivery of the
    /// source, or the schedule if the source never gives up. For an [annotated](crate::Messages::annotated) handler, the check uses the
    /// executor's policy for the scene `mq`, because the consumer does not know the attribute's policy. If the attribute's policy does
    /// not fit, the first run is rejected as [misconfigured](idempotent_core::Outcome::Misconfigured), and its message is retried.
    pub fn build(mut self, handling: MessageHandler) -> Result<Consumer<S>, SetupError> {
        let capabilities = self.source.capabilities();
        let work = handling.0;
        let own = work.policy();
        let own = own.unwrap_or_default();
        let acks_in_flight = own.acks_in_flight();
        if acks_in_flight && self.log.is_none() {
            return Err(SetupError::Setting(ACK_ALONE.into()));
        }
        // The executor retries, and this consumer acknowledges.
        let own = if acks_in_flight { own.on_in_flight(OnInFlight::Retry) } else { own };
        let policy = own.or(self.context.executor.policy(&Scene::Mq));
        policy.check(&Scene::Mq)?;
        let prefetch = self.prefetch.unwrap_or(self.concurrency.saturating_mul(2));
        self.check(&capabilities, prefetch)?;
        work.check(self.concurrency)?;
        if let Some(redelivery) = self.redelivery(&capabilities, policy) {
            policy.check_against(&Scene::Mq, &redelivery)?;
            self.context.known = self.context.known.redelivery(Arc::new(redelivery));
        }
        if self.log.is_some() {
            self.context.known = self.context.known.logged();
        }
        let max_runs = policy.max_runs(&Scene::Mq);
        let generous = || max_runs.map(|runs| self.generous(runs, capabilities.delays));
        let max_deliveries = self.max_deliveries.or_else(generous).filter(|_| capabilities.counts);
        let claims_ahead = if work.claims_ahead() && !policy.ends_at_a_crash(&Scene::Mq) {
            self.claims_ahead.min(prefetch - self.concurrency)
        } else {
            0
        };
        let probe = self.probe()?;
        let namespace = self.context.executor.namespace();
        // With the length, so that no two pairs give one name.
        let logged_as = || format!("{}:{namespace}:{}", namespace.len(), self.context.group).into();
        let logged_as = self.skip_consumed.then(logged_as);
        let parts = ConsumerParts {
            settler: self.source.settler(),
            source: self.source,
            context: self.context,
            work: work.for_one_consumer(),
            capabilities,
            rules: SettlementRules { schedule: self.schedule, max_runs, acks_in_flight },
            max_deliveries,
            max_body: self.max_body,
            alert_after: self.alert_after,
            concurrency: self.concurrency,
            claims_ahead,
            prefetch,
            grace: self.grace,
            log: self.log,
            logged_as,
            alerts: self.alerts,
            observer: self.observer,
        };
        Ok(Consumer::new(parts, probe))
    }

    /// Returns a limit of deliveries that a deferred message does not reach.
    fn generous(&self, runs: u32, delays: DelaySupport) -> u32 {
        let limit = runs.saturating_mul(DELIVERIES_PER_RUN).max(DELIVERIES_AT_LEAST);
        // Each part of a delay that the source must split is a delivery, too.
        let DelaySupport::UpTo(most) = delays else { return limit };
        let schedule = self.schedule.clone().unwrap_or_default();
        let parts = |attempt| schedule.after(attempt, LONGEST).as_millis().div_ceil(most.as_millis().max(1));
        let parts: u128 = (1..=runs.min(1_000)).map(parts).sum();
        limit.saturating_add(u32::try_from(parts).unwrap_or(u32::MAX))
    }

    fn check(&self, capabilities: &SourceCapabilities, prefetch: usize) -> Result<(), SetupError> {
        let ensure = |holds: bool, text: &dyn Fn() -> String| match holds {
            true => Ok(()),
            false => Err(SetupError::Setting(text().into())),
        };
        ensure(self.concurrency > 0, &|| "concurrency is 0: nothing would ever run".to_owned())?;
        ensure(self.concurrency <= MOST_HANDLERS, &|| {
            let handlers = self.concurrency;
            format!("concurrency is {handlers}, it must not be above {MOST_HANDLERS}")
        })?;
        ensure(self.claims_ahead <= MOST_HANDLERS, &|| {
            format!("claim_ahead is {}, it must not be above {MOST_HANDLERS}", self.claims_ahead)
        })?;
        ensure(prefetch <= MOST_HELD, &|| format!("prefetch is {prefetch}, it must not be above {MOST_HELD}"))?;
        ensure(self.grace <= LONGEST_GRACE, &|| {
            format!(
                "grace is {:?}, it must not be above 7 days: set the time that your platform waits before it kills",
                self.grace
            )
        })?;
        ensure(prefetch >= self.concurrency, &|| {
            let handlers = self.concurrency;
            format!("prefetch is {prefetch}, it must not be below the concurrency of {handlers}")
        })?;
        ensure(self.max_deliveries != Some(0), &|| "max_deliveries is 0: nothing would ever run".to_owned())?;
        ensure(self.max_deliveries.is_none() || capabilities.counts, &|| {
            "max_deliveries is set, but this source does not say how often it has delivered a message; attempts are \
             counted at the claim in any case"
                .to_owned()
        })?;
        ensure(capabilities.delays != DelaySupport::UpTo(Duration::ZERO), &|| {
            "the source delays up to 0 s: a retry would be a hot loop".to_owned()
        })?;
        ensure(capabilities.keep_alive.is_none_or(|every| !every.is_zero()), &|| {
            "the source wants to be kept alive every 0 s".to_owned()
        })?;
        match &self.schedule {
            Some(schedule) => schedule.check().map_err(|text| SetupError::Setting(text.into())),
            None => Ok(()),
        }
    }

    fn redelivery(&self, capabilities: &SourceCapabilities, policy: Policy) -> Option<Redelivery> {
        // A source that never gives up redelivers as long as the schedule requires, and a deferral is free.
        let by_schedule = || {
            let retries = policy.max_runs(&Scene::Mq)?.saturating_sub(1);
            Some(self.schedule.as_ref()?.redelivery(retries).deferrals_are_free())
        };
        let redelivery = capabilities.redelivery.clone().or_else(by_schedule)?;
        Some(if self.short_retention { redelivery.allow_short_retention() } else { redelivery })
    }

    /// Returns an unused key, by which the store is probed. Refuses an empty group.
    fn probe(&self) -> Result<Key, SetupError> {
        let identity = Identity::new(Scene::Mq, self.context.group.to_string(), "is the store there?");
        Ok(identity.tenant("idempotent-mq").key(self.context.executor.namespace())?)
    }
}

impl<S: Source> fmt::Debug for ConsumerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder").field("group", &self.context.group).finish_non_exhaustive()
    }
}

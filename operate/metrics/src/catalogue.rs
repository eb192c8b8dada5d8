//! The catalogue: the name, labels and meaning of each metric.
use metrics::Unit;

/// A metric of this crate.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MetricInfo {
    /// The name, as Prometheus shows it.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The unit, or `None` for a number without one.
    pub unit: Option<Unit>,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning, as one sentence.
    pub help: &'static str,
}

/// The kind of a [metric](MetricInfo).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only rises, until its process restarts.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution, with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// Returns each histogram's name with the upper bounds of its buckets, for the set-up of an exporter.
pub fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    METRICS.iter().filter_map(|metric| match metric.kind {
        MetricKind::Histogram(bounds) => Some((metric.name, bounds)),
        MetricKind::Counter | MetricKind::Gauge => None,
    })
}

const DURATIONS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const AGES: &[f64] = &[0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 17.0];

const SECONDS: Option<Unit> = Some(Unit::Seconds);
const COUNT: Option<Unit> = Some(Unit::Count);

macro_rules! catalogue {
    ($($item:ident $name:literal $kind:expr, $unit:expr, [$($label:literal),*], $help:literal;)*) => {
        /// The metrics that this crate records.
        pub static METRICS: &[MetricInfo] = &[$($item),*];

        $(pub(crate) const $item: MetricInfo =
            MetricInfo { name: $name, kind: $kind, unit: $unit, labels: &[$($label),*], help: $help };)*
    };
}

use MetricKind::{Counter, Gauge, Histogram};

catalogue! {
    DELIVERIES "idempotent_deliveries_total" Counter, COUNT, ["scene", "scope", "outcome"],
        "Deliveries by outcome.";
    RUN_DURATION "idempotent_run_duration_seconds" Histogram(DURATIONS), SECONDS, ["scene", "scope", "class"],
        "Time from the call to the outcome. Includes the wait of a message that is claimed ahead.";
    HANDLER_DURATION "idempotent_handler_duration_seconds" Histogram(DURATIONS), SECONDS, ["scene", "scope", "result"],
        "Time of the handler alone.";
    RUNS_ACTIVE "idempotent_runs_active" Gauge, COUNT, ["scene", "scope"],
        "Handlers that run now.";
    RUN_ATTEMPTS "idempotent_run_attempts" Histogram(ATTEMPTS), COUNT, ["scene", "scope"],
        "Number of the attempt that succeeded.";
    TAKEOVERS "idempotent_takeovers_total" Counter, COUNT, ["scene", "scope"],
        "Claims that took over an expired lease.";
    LEASE_LOST "idempotent_lease_lost_total" Counter, COUNT, ["scene", "scope"],
        "Leases that were lost while the handler ran or waited for its turn.";
    RUNTIME_BLOCKED "idempotent_runtime_blocked_total" Counter, COUNT, ["scene", "scope"],
        "Runs that blocked their runtime for two heartbeats.";
    ORDER_BROKEN "idempotent_order_broken_total" Counter, COUNT, ["scene", "scope", "why", "skipped"],
        "Reports of a predecessor that will not be consumed without intervention.";
    STEPS_PARKED "idempotent_steps_parked_total" Counter, COUNT, ["scene", "scope"],
        "Runs of several steps that cannot continue.";
    RESULTS_NOT_KEPT "idempotent_results_not_kept_total" Counter, COUNT, ["scene", "scope"],
        "Results that are not stored for replay.";
    ORDER_LATE "idempotent_order_late_total" Counter, COUNT, ["executor"],
        "Numbers of a sequence that arrived after a larger number.";
    WAITERS "idempotent_waiters" Gauge, COUNT, ["executor"],
        "Calls that wait for another run.";
    DRAINING "idempotent_draining" Gauge, COUNT, ["executor"],
        "1 while the executor drains.";
    STORE_DURATION "idempotent_store_operation_duration_seconds" Histogram(DURATIONS), SECONDS,
        ["store", "operation", "result"], "Time of one store call, as the executor sees it.";
    STORE_ERRORS "idempotent_store_errors_total" Counter, COUNT, ["store", "operation", "kind"],
        "Store calls that failed or had no answer in time.";
    TIER_LOOKUPS "idempotent_store_tier_lookups_total" Counter, COUNT, ["store", "result"],
        "Claims at a fast tier.";
    NOT_REPLICATED "idempotent_store_not_replicated_total" Counter, COUNT, ["store", "operation"],
        "Writes that too few replicas acknowledged in time.";
    REDIRECTIONS "idempotent_store_redirections_total" Counter, COUNT, ["store"],
        "Calls that a node of a cluster redirected.";
    CACHE_HITS "idempotent_store_cache_hits_total" Counter, COUNT, ["store"],
        "Claims that the cache of consumed keys answered without a command.";
    EVICTED_KEYS "idempotent_store_evicted_keys" Gauge, COUNT, ["store"],
        "Keys that the servers have evicted since the store was opened.";
    CONSUMER_DELIVERIES "idempotent_consumer_deliveries_total" Counter, COUNT, ["group", "end"],
        "Settled deliveries by their end.";
    CONSUMER_HELD "idempotent_consumer_held" Gauge, COUNT, ["group"],
        "Unsettled deliveries, whether they run or wait.";
    CONSUMER_RUNNING "idempotent_consumer_running" Gauge, COUNT, ["group"],
        "Deliveries whose handlers run.";
    CONSUMER_CAPACITY "idempotent_consumer_capacity" Gauge, COUNT, ["group"],
        "Configured concurrency.";
    CONSUMER_PAUSED "idempotent_consumer_paused" Gauge, COUNT, ["group"],
        "1 while the intake is paused because the store is down.";
    CONSUMER_PAUSES "idempotent_consumer_pauses_total" Counter, COUNT, ["group"],
        "Pauses of the intake because the store was down.";
    CONSUMER_FAILED_NODES "idempotent_consumer_failed_nodes" Gauge, COUNT, ["group"],
        "Nodes of the store that do not answer, and whose deliveries are deferred.";
    CONSUMER_NODE_OUTAGES "idempotent_consumer_node_outages_total" Counter, COUNT, ["group"],
        "Failures of one node of the store.";
    CONSUMER_SOURCE_ERRORS "idempotent_consumer_source_errors_total" Counter, COUNT, ["group"],
        "Failed calls of the source, and sessions that ended before a delivery was settled.";
    CONSUMER_UNDECODABLE "idempotent_consumer_undecodable_total" Counter, COUNT, ["group"],
        "Bodies that could not be decoded, or were too large.";
    CONSUMER_ALERTS "idempotent_consumer_alerts_total" Counter, COUNT, ["group"],
        "Keys that reached the configured number of failures in a row.";
    CONSUMER_AGE "idempotent_consumer_delivery_age_seconds" Histogram(AGES), SECONDS, ["group"],
        "Time from the first delivery of a message to its last settlement.";
    DEAD_LETTERS "idempotent_dead_letters" Gauge, COUNT, ["queue"],
        "Dead letters of a queue.";
    OUTBOX_MESSAGES "idempotent_outbox_messages" Gauge, COUNT, ["outbox", "status"],
        "Messages that are unsent, unconfirmed or dead.";
    OUTBOX_OLDEST "idempotent_outbox_oldest_unsent_seconds" Gauge, SECONDS, ["outbox"],
        "Age of the oldest unsent message, 0 without one.";
    OUTBOX_SENDS "idempotent_outbox_sends_total" Counter, COUNT, ["outbox", "result"],
        "Sends of the relay.";
    OUTBOX_GIVEN_UP "idempotent_outbox_given_up_total" Counter, COUNT, ["outbox"],
        "Messages that were given up.";
    DELAY_MESSAGES "idempotent_delay_messages" Gauge, COUNT, ["queue", "state"],
        "Messages of a delay queue or table.";
    DELAY_OLDEST "idempotent_delay_oldest_ready_seconds" Gauge, SECONDS, ["queue"],
        "Time for which the oldest due message has been due, 0 without one.";
    ALERTS "idempotent_alerts_total" Counter, COUNT, ["state"],
        "Alerts that were raised, suppressed, dropped, sent or failed.";
    COLLECTOR_ERRORS "idempotent_collector_errors_total" Counter, COUNT, ["source"],
        "Readings of a source that failed or took too long.";
    BUILD_INFO "idempotent_build_info" Gauge, COUNT, ["version"],
        "Always 1, with the version of the library.";
}

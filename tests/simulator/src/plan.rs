//! The plan of a simulation, as data.
use std::time::Duration;

use idempotent_core::{OnExpiry, OnInFlight, OnLeaseLost, OnStoreError, Policy};
use serde::{Deserialize, Serialize};

/// The number of keys that deliveries may have.
pub(super) const KEYS: u64 = 4;

/// All events of a simulation. [`Plan::of`] creates a plan from a seed, the shrinker removes pieces of it, and as JSON
/// it is a regression case. The plan of a seed changes when the simulator gets a new feature, but a plan never changes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Plan {
    /// The seed of the remaining random values: owner tokens and jitter.
    pub seed: u64,
    /// The time in ms from which on no faults occur.
    pub calm_ms: u64,
    /// True if the resource rejects lower fencing tokens.
    #[serde(default)]
    pub fenced: bool,
    /// True if deliveries have a fingerprint of their payload.
    #[serde(default)]
    pub fingerprints: bool,
    /// The policies of the worker slots. A worker that dies is replaced by another one in its slot.
    pub workers: Vec<Terms>,
    /// The deliveries of the broker.
    #[serde(default)]
    pub deliveries: Vec<Delivery>,
    /// Faults at fixed times.
    #[serde(default)]
    pub mischief: Vec<Mischief>,
    /// Faults of individual calls.
    #[serde(default)]
    pub faults: Vec<CallFault>,
}

/// The policy of a worker. Times are in ms.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of `Policy`")]
#[non_exhaustive]
pub struct Terms {
    pub lease_ms: u64,
    pub max_run_ms: u64,
    pub retain_ms: u64,
    pub memory_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    pub in_flight_ms: (u64, u64),
    pub retry_ms: (u64, u64),
    #[serde(default, skip_serializing_if = "is_false")]
    pub park: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub finish: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub release_on_cancel: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub unprotected: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub claim_interval_ms: u64,
    /// The number of handlers that may run at the same time, or 0 without a limit. A claimed run waits for its turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u64,
}

/// A message, delivered until it is settled.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Delivery {
    /// The number of the key, below 4.
    pub key: u64,
    /// The payload. A duplicate has the same one.
    pub payload: u64,
    /// True if the delivery has no fingerprint, regardless of the plan.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bare: bool,
    /// The time of the first delivery, in µs.
    pub at_us: u64,
    /// The settings of consecutive runs. All runs after the last entry succeed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

/// The settings of one run, if the handler is called.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Run {
    /// The slot of the worker.
    pub worker: usize,
    /// The handler's working time before its effect, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub before_us: u64,
    /// The handler's working time after its effect, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub after_us: u64,
    /// True if the handler checks its lease before the effect.
    #[serde(skip_serializing_if = "is_false")]
    pub polite: bool,
    /// True if the handler runs another key inside.
    #[serde(skip_serializing_if = "is_false")]
    pub inner: bool,
    /// True if the run is in a batch: with an item that all batches share (1), and with a copy of itself (2).
    #[serde(skip_serializing_if = "is_zero")]
    pub batch: u64,
    /// The end of the handler.
    pub end: End,
    /// If not empty, these steps replace the executor, after a claim and an effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<Step>,
    /// The time in µs by which the broker redelivers early, or by which it redelivers late if the run was dropped.
    #[serde(skip_serializing_if = "is_zero")]
    pub again_us: u64,
}

/// A step of a foreign client with its claim.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Step {
    /// Claims again with the same token, and ignores the answer.
    Claim,
    /// Renews, perhaps for less than the remaining lease.
    Renew { lease_ms: u64 },
    /// Completes, with this value in the result.
    Complete { value: u64 },
    /// Releases the key, with a delay of a quarter of a lease if the record is retained.
    Release,
    /// Reports a permanent failure.
    Fail,
    /// Waits for this time in µs.
    Wait { us: u64 },
}

/// The end of a handler.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// A result.
    #[default]
    Well,
    /// A result without bytes.
    Empty,
    /// An error that is retried.
    Fails,
    /// A permanent error.
    FailsForGood,
    /// A panic.
    Panics,
}

/// A fault at a fixed time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mischief {
    /// The time in µs.
    pub at_us: u64,
    /// The fault.
    pub what: Harm,
}

/// A fault of a process, a clock or a record. Times are in µs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Harm {
    /// The process in this slot dies, either with its network, or so that its sent requests still arrive.
    Kill { worker: usize, network: bool },
    /// The process is drained with this grace.
    Drain { worker: usize, grace_us: u64 },
    /// The run of a delivery is dropped, as by a timeout.
    Drop { delivery: usize },
    /// The process is stopped for a while, as by SIGSTOP.
    Pause { worker: usize, us: u64 },
    /// All processes are stopped while the store's clock continues: all due timers fire late, in one instant.
    Freeze { us: u64 },
    /// Every call of the process is refused for a while.
    StoreDown { worker: usize, us: u64 },
    /// The store's clock is set forward. It must not go back: [`Clock::wall`](idempotent_core::Clock::wall).
    StoreClock { us: u64 },
    /// A worker's wall clock is set, forward or back, which must not matter.
    WorkerClock { worker: usize, wrong_by_us: i64 },
    /// A purge removes up to this many expired records.
    Purge { most: usize },
    /// An operator reads the record of a key, and forgets it some time later.
    Forget { key: u64, after_us: u64 },
}

/// The fault of one call of the store.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CallFault {
    /// The slot of the caller.
    pub worker: usize,
    /// The number of the call, from 0.
    pub nth: u64,
    /// The lost part of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The delay of the request, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_us: u64,
    /// The delay of the answer, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub reply_delay_us: u64,
    /// The time after which a copy of the request reaches the store, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_after_us: Option<u64>,
}

/// The lost part of a call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Refused: certainly not applied.
    Refused,
    /// The call is not applied, which the caller cannot know.
    Request,
    /// Applied, which the caller cannot know.
    Reply,
    /// Applied, and never answered.
    Silence,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Plan {
    pub(super) fn calm(&self) -> Duration {
        ms(self.calm_ms)
    }

    /// Returns the longest lease.
    pub(super) fn lease(&self) -> Duration {
        ms(self.workers.iter().map(|terms| terms.lease_ms).max().unwrap_or(1_000))
    }

    /// Returns the time by which everything is settled: a run in progress, its lease, then a lease and a delay for each
    /// of the other deliveries.
    pub(super) fn end(&self) -> Duration {
        self.calm() + self.lease() * 100 + ms(300_000)
    }

    pub(super) fn unprotected(&self) -> bool {
        self.workers.iter().any(|terms| terms.unprotected)
    }

    pub(super) fn release_on_cancel(&self) -> bool {
        self.workers.iter().any(|terms| terms.release_on_cancel)
    }

    /// Returns whether fingerprints distinguish all payloads.
    pub(super) fn compares(&self) -> bool {
        self.fingerprints && !self.deliveries.iter().any(|delivery| delivery.bare)
    }

    pub(super) fn batched(&self) -> bool {
        self.deliveries.iter().flat_map(|delivery| &delivery.runs).any(|run| run.batch > 0)
    }

    /// Returns the total time by which the store's clock is set.
    pub(super) fn store_clock_set(&self) -> Duration {
        let set = self.mischief.iter().map(|mischief| match mischief.what {
            Harm::StoreClock { us } => us,
            _ => 0,
        });
        Duration::from_micros(set.sum())
    }

    /// Returns the shortest run that may lose its lease without a fault: it is renewed for the last time up to a
    /// heartbeat before `max_run`, and guarded up to half a lease before its end.
    pub(super) fn shortest_run(&self) -> Duration {
        let runs =
            self.workers.iter().map(|terms| ms(terms.max_run_ms).saturating_sub(ms(terms.lease_ms).mul_f64(0.6)));
        runs.min().unwrap_or_default()
    }

    /// Returns whether only handlers fail.
    pub(super) fn is_harmless(&self) -> bool {
        let harms = |mischief: &Mischief| !matches!(mischief.what, Harm::Purge { .. } | Harm::WorkerClock { .. });
        self.faults.is_empty() && !self.mischief.iter().any(harms)
    }

    /// Returns the number of pieces that the shrinker can remove.
    #[must_use]
    pub fn pieces(&self) -> usize {
        let runs: usize = self.deliveries.iter().map(|delivery| delivery.runs.len()).sum();
        self.deliveries.len() + runs + self.mischief.len() + self.faults.len() + self.workers.len()
    }
}

impl Terms {
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy::new()
            .lease(ms(self.lease_ms))
            .max_run(ms(self.max_run_ms))
            .retain(ms(self.retain_ms))
            .retain_failures(ms(self.memory_ms))
            .in_flight_delay(ms(self.in_flight_ms.0))
            .in_flight_delay_max(ms(self.in_flight_ms.1))
            .retry_delay(ms(self.retry_ms.0))
            .retry_delay_max(ms(self.retry_ms.1))
            .release_on_cancel(self.release_on_cancel);
        if let Some(heartbeat) = self.heartbeat_ms {
            policy = policy.heartbeat(ms(heartbeat));
        }
        if let Some(retries) = self.max_retries {
            policy = policy.max_retries(retries);
        }
        if let Some(wait) = self.wait_ms {
            policy = policy.on_in_flight(OnInFlight::Wait(ms(wait)));
        }
        if self.park {
            policy = policy.on_expiry(OnExpiry::Park);
        }
        if self.finish {
            policy = policy.on_lease_lost(OnLeaseLost::Finish);
        }
        if self.unprotected {
            policy = policy.on_store_error(OnStoreError::RunUnprotected);
        }
        policy
    }
}

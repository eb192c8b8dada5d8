//! What happens to a world, as data.
use std::time::Duration;

use idempotent_core::{OnExpiry, OnInFlight, OnLeaseLost, OnStoreError, Policy};
use serde::{Deserialize, Serialize};

/// Keys that deliveries may have.
pub(super) const KEYS: u64 = 4;

/// Everything that happens to a world: [`Plan::of`] makes one from a seed, the shrinker takes pieces out of it, and
/// as JSON it is kept as a regression case. A seed means another plan as soon as the simulator learns a new trick;
/// a plan stays what it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Plan {
    /// Of what little is still drawn: owner tokens and jitter.
    pub seed: u64,
    /// From here on nothing goes wrong any more, in ms.
    pub calm_ms: u64,
    /// The resource refuses smaller fencing numbers.
    #[serde(default)]
    pub fenced: bool,
    /// Deliveries carry a fingerprint of their payload.
    #[serde(default)]
    pub fingerprints: bool,
    /// One for each place of a worker; whoever dies there is followed by another.
    pub workers: Vec<Terms>,
    /// What the broker delivers.
    #[serde(default)]
    pub deliveries: Vec<Delivery>,
    /// What goes wrong, by the clock.
    #[serde(default)]
    pub mischief: Vec<Mischief>,
    /// What goes wrong, by the call.
    #[serde(default)]
    pub faults: Vec<CallFault>,
}

/// A worker's policy; times in ms.
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
}

/// One message, delivered until it is settled.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Delivery {
    /// Which key, below 4.
    pub key: u64,
    /// What is in it; a duplicate has the same.
    pub payload: u64,
    /// It carries no fingerprint, whatever the others do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bare: bool,
    /// When it comes first, in µs.
    pub at_us: u64,
    /// How its runs go, one after the other; those behind the last go smoothly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

/// How one run goes, if the handler is called.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Run {
    /// On which worker's place.
    pub worker: usize,
    /// How long the handler works before its effect, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub before_us: u64,
    /// And after it.
    #[serde(skip_serializing_if = "is_zero")]
    pub after_us: u64,
    /// It asks its lease before the effect.
    #[serde(skip_serializing_if = "is_false")]
    pub polite: bool,
    /// It runs another key inside.
    #[serde(skip_serializing_if = "is_false")]
    pub inner: bool,
    /// It comes in a batch: with one that all batches share (1), and with a copy of itself (2).
    #[serde(skip_serializing_if = "is_zero")]
    pub batch: u64,
    /// How the handler ends.
    pub end: End,
    /// Not by the executor, but step by step, after a claim and an effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<Step>,
    /// The broker delivers again this much before it was told to, or, if the run was dropped, that much later; in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub again_us: u64,
}

/// What a client of another make does with its claim.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Step {
    /// Claims again, by the same token, and takes no notice of the answer.
    Claim,
    /// Renews, perhaps for less than is left.
    Renew { lease_ms: u64 },
    /// Completes, with this in the result.
    Complete { value: u64 },
    /// Gives the key back, for a quarter of a lease later where that is remembered.
    Release,
    /// Says that it failed for good.
    Fail,
    /// Does nothing for a while, in µs.
    Wait { us: u64 },
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// With a result.
    #[default]
    Well,
    /// With a result of no bytes.
    Empty,
    /// With an error worth another run.
    Fails,
    /// With an error that is not.
    FailsForGood,
    /// By a panic.
    Panics,
}

/// Something that goes wrong.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mischief {
    /// When, in µs.
    pub at_us: u64,
    /// What.
    pub what: Harm,
}

/// What can go wrong with a process, a clock or a record. Times in µs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum Harm {
    /// The process at this place dies; its network with it, or what it has sent arrives all the same.
    Kill { worker: usize, network: bool },
    /// It is shut down with this grace.
    Drain { worker: usize, grace_us: u64 },
    /// A delivery's run is dropped, as by a timeout around it.
    Drop { delivery: usize },
    /// The process stands still for a while, as under SIGSTOP.
    Pause { worker: usize, us: u64 },
    /// Everybody stands still, the store's clock goes on: all timers due fire late, in one instant.
    Freeze { us: u64 },
    /// Every call of the process is refused for a while.
    StoreDown { worker: usize, us: u64 },
    /// Somebody sets the store's clock forward. Back it must not go: [`Clock::wall`](idempotent_core::Clock::wall).
    StoreClock { us: u64 },
    /// Somebody sets a worker's wall clock, forward or back: it must not matter.
    WorkerClock { worker: usize, wrong_by_us: i64 },
    /// A janitor removes up to this many records past their time.
    Purge { most: usize },
    /// An operator looks at a key, and some time later forgets what was there.
    Forget { key: u64, after_us: u64 },
}

/// What becomes of one call of the store.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CallFault {
    /// The caller's place.
    pub worker: usize,
    /// Which of its calls, from 0 on.
    pub nth: u64,
    /// What gets lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// It reaches the store this much later, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_us: u64,
    /// The answer comes this much later, in µs.
    #[serde(skip_serializing_if = "is_zero")]
    pub reply_delay_us: u64,
    /// It reaches the store a second time, this much after it was sent, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_after_us: Option<u64>,
}

/// What gets lost of a call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Refused: surely not applied.
    Refused,
    /// Not applied, and the caller cannot know.
    Request,
    /// Applied, and the caller cannot know.
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

    /// The longest lease.
    pub(super) fn lease(&self) -> Duration {
        ms(self.workers.iter().map(|terms| terms.lease_ms).max().unwrap_or(1_000))
    }

    /// By then everything is settled: a run in progress, its lease, then for each of the others in turn a lease and
    /// a delay.
    pub(super) fn end(&self) -> Duration {
        self.calm() + self.lease() * 100 + ms(300_000)
    }

    pub(super) fn unprotected(&self) -> bool {
        self.workers.iter().any(|terms| terms.unprotected)
    }

    pub(super) fn release_on_cancel(&self) -> bool {
        self.workers.iter().any(|terms| terms.release_on_cancel)
    }

    /// Whether every payload is told from every other.
    pub(super) fn compares(&self) -> bool {
        self.fingerprints && !self.deliveries.iter().any(|delivery| delivery.bare)
    }

    pub(super) fn batched(&self) -> bool {
        self.deliveries.iter().flat_map(|delivery| &delivery.runs).any(|run| run.batch > 0)
    }

    /// By how much the store's clock is set, in all.
    pub(super) fn store_clock_set(&self) -> Duration {
        let set = self.mischief.iter().map(|mischief| match mischief.what {
            Harm::StoreClock { us } => us,
            _ => 0,
        });
        Duration::from_micros(set.sum())
    }

    /// The shortest run that may lose its lease though nothing goes wrong: renewed for the last time up to a
    /// heartbeat before `max_run`, and guarded up to half a lease before its end.
    pub(super) fn shortest_run(&self) -> Duration {
        let runs =
            self.workers.iter().map(|terms| ms(terms.max_run_ms).saturating_sub(ms(terms.lease_ms).mul_f64(0.6)));
        runs.min().unwrap_or_default()
    }

    /// Nothing goes wrong but handlers.
    pub(super) fn is_harmless(&self) -> bool {
        let harms = |mischief: &Mischief| !matches!(mischief.what, Harm::Purge { .. } | Harm::WorkerClock { .. });
        self.faults.is_empty() && !self.mischief.iter().any(harms)
    }

    /// How many pieces the shrinker may take out.
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

//! The knobs, and who may turn them: attribute over the executor's policy for the scene over the scene's default.
mod check;
mod config;

use std::time::Duration;

use serde::Deserialize;

pub use self::check::{PolicyError, Redelivery};
use crate::units::{FOREVER, HumaneSize, HumaneTime};
use crate::{DisplayKey, OnBrokenOrder, OnExpiry, OnLate, Scene};

/// What becomes of a handler whose lease is lost while it runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLeaseLost {
    /// It is dropped at its next await. The default.
    #[default]
    Abort,
    /// It goes on; its result counts if nobody took over.
    Finish,
}

/// What a duplicate of a run in flight is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnInFlight {
    /// To come back later. The default.
    #[default]
    Retry,
    /// It waits for the run to end, at most this long, and then gets its result, takes over if it failed, or
    /// is told to come back later.
    Wait(#[serde(deserialize_with = "crate::units::time")] Duration),
    /// That it is done. Loses the message if the run then dies: refused unless an outbox resends it.
    Ack,
}

/// What a duplicate of a consumed key is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnConsumed {
    /// The recorded result. The default.
    #[default]
    Replay,
    /// That it is a duplicate: [`Rejection::Duplicate`](crate::Rejection::Duplicate).
    Refuse,
}

/// What becomes of a call while the store cannot be asked.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnStoreError {
    /// It is refused, and retried later. The default.
    #[default]
    Fail,
    /// The handler runs without protection: duplicates run too. Counted as `unprotected`.
    RunUnprotected,
}

macro_rules! knobs {
    ($($(#[$doc:meta])* $name:ident: $ty:ty as $form:ty = $default:expr;)*) => {
        /// Some knobs turned, the others left to the next in line.
        ///
        /// Deserialises from configuration: durations as `"30s"`, `"10m"`, `"7d"`, `"1h 30m"`, `retain` also as
        /// `"forever"`, sizes as `"1MiB"` or a number of bytes, choices by their names, waiting as
        /// `on_in_flight = { wait = "2s" }`. Unknown names are refused with a suggestion.
        ///
        /// A duration below 1 ms counts as 1 ms; zero is refused where the policy is put to use.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[must_use]
        pub struct Policy { $($name: Option<$ty>,)* }

        impl Policy {
            /// No knob turned.
            pub const fn new() -> Self { Self { $($name: None,)* } }

            $($(#[$doc])* pub const fn $name(mut self, value: $ty) -> Self { self.$name = Some(value); self })*

            /// `self` where it says something, `other` where not. Both [`retain`](Self::retain) and
            /// [`window`](Self::window) say how long duplicates are recognised: where `self` says the first, the
            /// second is not taken from `other`.
            pub fn or(self, other: Self) -> Self {
                let window = if self.retain.is_some() { self.window } else { self.window.or(other.window) };
                Self { window, ..Self { $($name: self.$name.or(other.$name),)* } }
            }

            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            fn set<'de, M: serde::de::MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<bool, M::Error> {
                match name {
                    $(stringify!($name) => {
                        let value = map.next_value::<$form>().map_err(|e| config::in_field(name, &e))?;
                        if self.$name.replace(value.into()).is_some() {
                            return Err(config::twice(name));
                        }
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        /// A policy with every knob set.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct ResolvedPolicy { $(pub(crate) $name: $ty,)* }

        impl From<Policy> for ResolvedPolicy {
            fn from(policy: Policy) -> Self {
                let terms = Self { $($name: policy.$name.unwrap_or($default),)* };
                // Nobody who asks for a lease of an hour wants it cut at ten minutes.
                let max_run = policy.max_run.unwrap_or(terms.max_run.max(terms.lease));
                let retain = if terms.window.is_zero() { terms.retain } else { terms.window };
                Self { max_run, retain, ..terms }.rounded()
            }
        }
    };
}

knobs! {
    /// How long a claim holds without a renewal; after it another worker may take over. 1 ms to 30 days.
    ///
    /// # Default
    /// 30 s
    lease: Duration as HumaneTime = Duration::from_secs(30);
    /// How often a lease is renewed while the handler runs. Below half the lease. Zero means a third of it.
    ///
    /// # Default
    /// A third of the lease
    heartbeat: Duration as HumaneTime = Duration::ZERO;
    /// Renewal ends here, counted from the claim: a handler that takes longer loses its lease.
    ///
    /// # Default
    /// 10 min, or the lease if that is longer
    max_run: Duration as HumaneTime = Duration::from_secs(600);
    /// How long duplicates are recognised, counted from completion. [`Policy::FOREVER`] keeps records for ever.
    ///
    /// # Default
    /// 7 days for mq, 24 h else
    retain: Duration as HumaneTime = DAY;
    /// Where calls are told apart by what they say: for this long, counted from completion, an equal call is the same
    /// call; after it, another one. In place of a [`retain`](Self::retain) said with it or further out, and unlike that
    /// not bound to be longer than the lease; failures are remembered as long, in place of [`memory`](Self::memory). Zero is no window.
    ///
    /// # Default
    /// No window
    window: Duration as HumaneTime = Duration::ZERO;
    /// Runs after the first before the key is buried; 0 is one run. [`Policy::NO_LIMIT`] keeps no count.
    ///
    /// # Default
    /// 16 for mq (17 runs), no limit else
    max_retries: u32 as u32 = Policy::NO_LIMIT;
    /// How long attempts, failures, the dead and orphans are remembered.
    ///
    /// # Default
    /// 7 days
    memory: Duration as HumaneTime = DAY.saturating_mul(7);
    /// What a duplicate in flight is told to wait at first; doubles with each deferral of its key.
    ///
    /// # Default
    /// 1 s
    in_flight_delay: Duration as HumaneTime = Duration::from_secs(1);
    /// What it is told to wait at most.
    ///
    /// # Default
    /// 10 s
    in_flight_delay_max: Duration as HumaneTime = Duration::from_secs(10);
    /// When a failed run should be tried again, at first; doubles with each attempt, where there is a retry limit and
    /// attempts are counted. A hint to who settles the delivery: the key itself is free at once.
    ///
    /// # Default
    /// 1 s
    retry_delay: Duration as HumaneTime = Duration::from_secs(1);
    /// When a failed run should be tried again at the latest.
    ///
    /// # Default
    /// 5 min
    retry_delay_max: Duration as HumaneTime = Duration::from_secs(300);
    /// How far delays are spread, in percent up and down, so that a herd does not come back at once. 0 to 100.
    ///
    /// # Default
    /// 20
    jitter: u8 as u8 = 20;
    /// Sets how long an answer waits for the store to record the end of its run. After this time, the call returns and the
    /// executor retries in the background until the lease ends. With zero, the answer waits until the lease ends. A call in
    /// your own transaction always waits.
    ///
    /// # Default
    /// 2 s for rest, zero otherwise: no client waits for the answer of a message handler
    settle_timeout: Duration as HumaneTime = Duration::ZERO;
    /// What becomes of a key whose owner let the lease run out.
    ///
    /// # Default
    /// [`OnExpiry::Takeover`]
    on_expiry: OnExpiry as OnExpiry = OnExpiry::Takeover;
    /// What becomes of a handler whose lease is lost.
    ///
    /// # Default
    /// [`OnLeaseLost::Abort`]
    on_lease_lost: OnLeaseLost as OnLeaseLost = OnLeaseLost::Abort;
    /// What a duplicate in flight is told.
    ///
    /// # Default
    /// [`OnInFlight::Retry`]
    on_in_flight: OnInFlight as OnInFlight = OnInFlight::Retry;
    /// What a duplicate of a consumed key is told.
    ///
    /// # Default
    /// [`OnConsumed::Replay`]
    on_consumed: OnConsumed as OnConsumed = OnConsumed::Replay;
    /// What becomes of a call while the store is down.
    ///
    /// # Default
    /// [`OnStoreError::Fail`]
    on_store_error: OnStoreError as OnStoreError = OnStoreError::Fail;
    /// What becomes of a call that comes [`after`](crate::Call::after) one, or in a [`sequence`](crate::Call::sequence)
    /// behind one, that will not be consumed by itself.
    ///
    /// # Default
    /// [`OnBrokenOrder::Hold`], told of after 10 min
    on_broken_order: OnBrokenOrder as OnBrokenOrder = OnBrokenOrder::default();
    /// What becomes of a number of a [`sequence`](crate::Call::sequence) that comes when a larger one was let in.
    ///
    /// # Default
    /// [`OnLate::Run`]
    on_late: OnLate as OnLate = OnLate::Run;
    /// Free the key when a started run is dropped. Its effect is unknown: only for handlers whose effect may
    /// happen twice.
    ///
    /// # Default
    /// No: the key is left to its lease
    release_on_cancel: bool as bool = false;
    /// The largest encoded result kept, in bytes. A larger one is recorded as consumed without it.
    ///
    /// # Default
    /// 1 MiB
    max_result: u64 as HumaneSize = 1 << 20;
    /// What operators see of keys.
    ///
    /// # Default
    /// [`DisplayKey::Hash`]
    display_key: DisplayKey as DisplayKey = DisplayKey::Hash;
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Policy {
    /// For [`max_retries`](Self::max_retries): no count is kept.
    pub const NO_LIMIT: u32 = u32::MAX;

    /// For [`retain`](Self::retain): records are kept for ever. The store grows for ever, too.
    pub const FOREVER: Duration = FOREVER;

    /// For [`window`](Self::window), where calls are told apart by what they say and nothing else is said: 5 s.
    pub const WINDOW: Duration = Duration::from_secs(5);

    /// Retries of a message before it is dead: 17 runs, as RocketMQ counts. This constant's only home.
    pub const MQ_MAX_RETRIES: u32 = 16;

    /// A scene's defaults.
    pub fn of(scene: &Scene) -> Self {
        match scene {
            Scene::Mq => Self::new().retain(DAY.saturating_mul(7)).max_retries(Self::MQ_MAX_RETRIES),
            Scene::Rest => Self::new().settle_timeout(Duration::from_secs(2)),
            Scene::Named(_) => Self::new(),
        }
    }

    pub(crate) fn keeps_for_ever(&self) -> bool {
        self.retain == Some(Self::FOREVER)
    }

    /// Whether a duplicate waits for the run in flight, if it says so.
    pub(crate) fn waits(&self) -> Option<bool> {
        self.on_in_flight.map(|choice| matches!(choice, OnInFlight::Wait(_)))
    }

    /// Whether it says that a duplicate in flight is told that it is done. Only a consumer with an outbox behind it can do
    /// that; an executor refuses such a policy.
    #[must_use]
    pub fn acks_in_flight(&self) -> bool {
        self.on_in_flight == Some(OnInFlight::Ack)
    }

    /// Returns true if a [`window`](Self::window) above zero is in force.
    #[must_use]
    pub fn has_window(&self) -> bool {
        self.window.is_some_and(|window| !window.is_zero())
    }

    /// Runs a key gets in all by this policy, put over the scene's defaults; `None` is no limit.
    #[must_use]
    pub fn max_runs(&self, scene: &Scene) -> Option<u32> {
        match ResolvedPolicy::from(self.or(Self::of(scene))).max_attempts() {
            0 => None,
            runs => Some(runs),
        }
    }

    /// Whether the policy, put over the scene's defaults, makes sense.
    ///
    /// # Errors
    /// [`PolicyError`] with the numbers and the rule.
    pub fn check(&self, scene: &Scene) -> Result<(), PolicyError> {
        ResolvedPolicy::from(self.or(Self::of(scene))).check()
    }

    /// Whether the policy fits a broker's redelivery, put over the scene's defaults.
    ///
    /// # Errors
    /// [`PolicyError`] with both numbers.
    pub fn check_against(&self, scene: &Scene, redelivery: &Redelivery) -> Result<(), PolicyError> {
        ResolvedPolicy::from(self.or(Self::of(scene))).fits(redelivery)
    }
}

impl ResolvedPolicy {
    /// 0: no limit, as in a [`ClaimRequest`](crate::ClaimRequest).
    pub(crate) fn max_attempts(&self) -> u32 {
        if self.max_retries == Policy::NO_LIMIT { 0 } else { self.max_retries.saturating_add(1) }
    }

    /// A token that failed is good again, for a while: so it must not be forgotten, nor be shown in its record. While
    /// the store is down nobody knows whether it is one.
    pub(crate) fn of_token(&mut self, ttl: Duration) {
        self.max_retries = self.max_retries.min(Policy::NO_LIMIT - 1);
        self.memory = ttl.max(self.lease);
        self.on_store_error = OnStoreError::Fail;
        self.display_key = DisplayKey::Hash;
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        if self.heartbeat.is_zero() { self.lease / 3 } else { self.heartbeat }
    }

    /// Records count in whole ms in some stores; a duration too short to be seen counts as the shortest.
    fn rounded(mut self) -> Self {
        let times = [
            &mut self.lease,
            &mut self.heartbeat,
            &mut self.max_run,
            &mut self.retain,
            &mut self.window,
            &mut self.memory,
            &mut self.settle_timeout,
        ];
        for time in times {
            if !time.is_zero() {
                *time = (*time).max(Duration::from_millis(1));
            }
        }
        self
    }
}

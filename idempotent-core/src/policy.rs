//! Policy settings. Each setting comes from the attribute, then from the executor's policy for the scene, then
//! from the scene's defaults.
mod check;
mod config;

use std::time::Duration;

use serde::Deserialize;

pub use self::check::{PolicyError, Redelivery};
use crate::units::{FOREVER, HumaneSize, HumaneTime};
use crate::{DisplayKey, OnBrokenOrder, OnExpiry, OnLate, Scene};

/// The reaction to a lease that is lost while the handler runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLeaseLost {
    /// The executor drops the handler at its next await. The default.
    #[default]
    Abort,
    /// The handler runs to its end, and its result counts if no other worker took over.
    Finish,
}

/// The answer to a duplicate of a run in flight.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnInFlight {
    /// The duplicate is rejected with a retry delay. The default.
    #[default]
    Retry,
    /// The duplicate waits for the run to end, at most for this time. It then gets the result, or takes over if the run
    /// failed. After the time it is rejected with a retry delay.
    Wait(#[serde(deserialize_with = "crate::units::time")] Duration),
    /// The duplicate is acknowledged if the sender resends the message after a crash of the run in flight. Otherwise the
    /// duplicate is rejected with a retry delay.
    ///
    /// Requires a consumer with an outbox as its log. Without the log, the run is rejected: the message would be lost
    /// if the run in flight crashed. A run inside another run is also rejected, because its delivery is not done.
    Ack,
}

/// The answer to a duplicate of a consumed key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnConsumed {
    /// The duplicate gets the recorded result. The default.
    #[default]
    Replay,
    /// The duplicate is rejected with [`Rejection::Duplicate`](crate::Rejection::Duplicate).
    Refuse,
}

/// The reaction to a store that cannot be reached.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnStoreError {
    /// The call is rejected and retried later. The default.
    #[default]
    Fail,
    /// The handler runs without protection, so duplicates run too. The call is counted as `unprotected`.
    RunUnprotected,
}

macro_rules! policy_settings {
    ($($(#[$doc:meta])* $name:ident: $ty:ty as $form:ty = $default:expr;)*) => {
        /// A set of policy settings, each of which may be unset.
        ///
        /// A policy can be deserialized from configuration. Durations are written as `"30s"`, `"10m"`, `"7d"` or `"1h
        /// 30m"`, and `retain` also as `"forever"`. Sizes are written as `"1MiB"` or as a number of bytes. Choices are
        /// written by name, and waiting as `on_in_flight = { wait = "2s" }`. An unknown name is an error that suggests
        /// a known one.
        ///
        /// A duration below 1 ms counts as 1 ms. Zero is refused when the policy is used, except where a setting allows
        /// it.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[must_use]
        pub struct Policy { $($name: Option<$ty>,)* }

        impl Policy {
            /// Creates a policy without any setting.
            pub const fn new() -> Self { Self { $($name: None,)* } }

            $($(#[$doc])* pub const fn $name(mut self, value: $ty) -> Self { self.$name = Some(value); self })*

            /// Returns the settings of `self`, completed by those of `other`.
            ///
            /// Both [`retain`](Self::retain) and [`window`](Self::window) limit how long duplicates are recognised. If
            /// `self` sets `retain`, the `window` of `other` is ignored.
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

        /// A policy in which every setting has a value.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct ResolvedPolicy { $(pub(crate) $name: $ty,)* }

        impl From<Policy> for ResolvedPolicy {
            fn from(policy: Policy) -> Self {
                let resolved = Self { $($name: policy.$name.unwrap_or($default),)* };
                // A lease longer than the default of `max_run` extends it.
                let max_run = policy.max_run.unwrap_or(resolved.max_run.max(resolved.lease));
                let retain = if resolved.window.is_zero() { resolved.retain } else { resolved.window };
                Self { max_run, retain, ..resolved }.rounded()
            }
        }
    };
}

policy_settings! {
    /// Sets the duration of a claim without a renewal, from 1 ms to 30 days. After this time another worker may take
    /// over.
    ///
    /// # Default
    /// 30 s
    lease: Duration as HumaneTime = Duration::from_secs(30);
    /// Sets the interval between renewals while the handler runs. It must be below half the lease. Zero means a third
    /// of the lease.
    ///
    /// # Default
    /// A third of the lease
    heartbeat: Duration as HumaneTime = Duration::ZERO;
    /// Sets the time after the claim at which renewals stop. A handler that runs longer loses its lease.
    ///
    /// # Default
    /// 10 min, or the lease if that is longer
    max_run: Duration as HumaneTime = Duration::from_secs(600);
    /// Sets how long duplicates are recognised, measured from completion. [`Policy::FOREVER`] keeps records forever.
    ///
    /// # Default
    /// 7 days for mq, 24 h for other scenes
    retain: Duration as HumaneTime = DAY;
    /// Sets how long after completion an equal call is a duplicate, for calls whose key is derived from their arguments
    /// (`by = param`). A later equal call is a new call.
    ///
    /// The window replaces a [`retain`](Self::retain) of the same policy or of an outer one, and may be shorter than
    /// the lease. Failures are kept as long, in place of [`retain_failures`](Self::retain_failures). Zero means no window.
    ///
    /// # Default
    /// No window
    window: Duration as HumaneTime = Duration::ZERO;
    /// Sets the number of runs after the first before the key becomes dead. 0 allows one run. [`Policy::NO_LIMIT`]
    /// disables the limit.
    ///
    /// # Default
    /// 16 for mq (17 runs), no limit for other scenes
    max_retries: u32 as u32 = Policy::NO_LIMIT;
    /// Sets how long the store keeps attempts, failures, dead keys and orphans.
    ///
    /// # Default
    /// 7 days
    retain_failures: Duration as HumaneTime = DAY.saturating_mul(7);
    /// Sets the first retry delay of a duplicate of a run in flight. The delay doubles with each deferral of the key.
    ///
    /// # Default
    /// 1 s
    in_flight_delay: Duration as HumaneTime = Duration::from_secs(1);
    /// Sets the longest retry delay of a duplicate of a run in flight.
    ///
    /// # Default
    /// 10 s
    in_flight_delay_max: Duration as HumaneTime = Duration::from_secs(10);
    /// Sets the first retry delay after a failed run. The delay doubles with each attempt if there is a retry limit and
    /// attempts are counted. The delay is a hint to the code that settles the delivery: the key is free at once.
    ///
    /// # Default
    /// 1 s
    retry_delay: Duration as HumaneTime = Duration::from_secs(1);
    /// Sets the longest retry delay after a failed run.
    ///
    /// # Default
    /// 5 min
    retry_delay_max: Duration as HumaneTime = Duration::from_secs(300);
    /// Sets the random spread of delays in percent, up and down, from 0 to 100. The spread prevents simultaneous
    /// retries.
    ///
    /// # Default
    /// 20
    jitter: u8 as u8 = 20;
    /// Sets how long an answer waits for the store to record the end of its run. After this time, the call returns and
    /// the executor retries in the background until the lease ends. With zero, the answer waits until the lease ends. A
    /// call in your own transaction always waits.
    ///
    /// # Default
    /// 2 s for rest, zero otherwise: no client waits for the answer of a message handler
    settle_timeout: Duration as HumaneTime = Duration::ZERO;
    /// Sets the rule for a key whose owner let the lease expire.
    ///
    /// # Default
    /// [`OnExpiry::Takeover`]
    on_expiry: OnExpiry as OnExpiry = OnExpiry::Takeover;
    /// Sets the reaction to a lease that is lost while the handler runs.
    ///
    /// # Default
    /// [`OnLeaseLost::Abort`]
    on_lease_lost: OnLeaseLost as OnLeaseLost = OnLeaseLost::Abort;
    /// Sets the answer to a duplicate of a run in flight.
    ///
    /// # Default
    /// [`OnInFlight::Retry`]
    on_in_flight: OnInFlight as OnInFlight = OnInFlight::Retry;
    /// Sets the answer to a duplicate of a consumed key.
    ///
    /// # Default
    /// [`OnConsumed::Replay`]
    on_consumed: OnConsumed as OnConsumed = OnConsumed::Replay;
    /// Sets the reaction to a store that cannot be reached.
    ///
    /// # Default
    /// [`OnStoreError::Fail`]
    on_store_error: OnStoreError as OnStoreError = OnStoreError::Fail;
    /// Sets the rule for a call whose predecessor will not be consumed without help, where the predecessor is named by
    /// [`after`](crate::Call::after) or precedes the call in a [`sequence`](crate::Call::sequence).
    ///
    /// # Default
    /// [`OnBrokenOrder::Hold`], reported after 10 min
    on_broken_order: OnBrokenOrder as OnBrokenOrder = OnBrokenOrder::default();
    /// Sets the rule for a call of a [`sequence`](crate::Call::sequence) that arrives after a larger number was
    /// admitted.
    ///
    /// # Default
    /// [`OnLate::Run`]
    on_late: OnLate as OnLate = OnLate::Run;
    /// Sets whether the key is freed when a run is dropped after its start. The effect of such a run is unknown, so use
    /// this only for handlers whose effect may happen twice.
    ///
    /// # Default
    /// `false`: the key stays claimed until its lease expires
    release_on_cancel: bool as bool = false;
    /// Sets the largest encoded result that is kept, in bytes. The record of a larger result is consumed without the
    /// result.
    ///
    /// # Default
    /// 1 MiB
    max_result: u64 as HumaneSize = 1 << 20;
    /// Sets the part of keys that operators see.
    ///
    /// # Default
    /// [`DisplayKey::Hash`]
    display_key: DisplayKey as DisplayKey = DisplayKey::Hash;
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Policy {
    /// The value of [`max_retries`](Self::max_retries) without a limit.
    pub const NO_LIMIT: u32 = u32::MAX;

    /// The value of [`retain`](Self::retain) that keeps records forever. The store then grows without limit.
    pub const FOREVER: Duration = FOREVER;

    /// The default [`window`](Self::window) of calls whose key is derived from their arguments: 5 s.
    pub const WINDOW: Duration = Duration::from_secs(5);

    /// The number of retries before a message is dead: 17 runs, as in RocketMQ. Other crates refer to this constant.
    pub const MQ_MAX_RETRIES: u32 = 16;

    /// Returns the defaults of a scene.
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

    /// Returns whether a duplicate waits for the run in flight, or `None` if the setting is unset.
    pub(crate) fn waits(&self) -> Option<bool> {
        self.on_in_flight.map(|choice| matches!(choice, OnInFlight::Wait(_)))
    }

    /// Returns whether duplicates of a run in flight are acknowledged.
    ///
    /// Only a consumer with a message log supports this setting. An executor refuses such a policy for a whole scene.
    #[must_use]
    pub fn acks_in_flight(&self) -> bool {
        self.on_in_flight == Some(OnInFlight::Ack)
    }

    /// Returns true if a crash of its process ends a run for good, so that its message never runs again without an operator.
    #[doc(hidden)]
    #[must_use]
    pub fn ends_at_a_crash(&self, scene: &Scene) -> bool {
        let policy = ResolvedPolicy::from(self.or(Self::of(scene)));
        policy.on_expiry == OnExpiry::Park || policy.max_attempts() == 1
    }

    /// Returns true if a [`window`](Self::window) above zero is in force.
    #[must_use]
    pub fn has_window(&self) -> bool {
        self.window.is_some_and(|window| !window.is_zero())
    }

    /// Returns the number of runs of a key by this policy and the scene's defaults, or `None` without a limit.
    #[must_use]
    pub fn max_runs(&self, scene: &Scene) -> Option<u32> {
        match ResolvedPolicy::from(self.or(Self::of(scene))).max_attempts() {
            0 => None,
            runs => Some(runs),
        }
    }

    /// Checks the policy, completed by the scene's defaults.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] with the numbers and the rule.
    pub fn check(&self, scene: &Scene) -> Result<(), PolicyError> {
        ResolvedPolicy::from(self.or(Self::of(scene))).check()
    }

    /// Checks the policy, completed by the scene's defaults, against a broker's redelivery.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] with both numbers.
    pub fn check_against(&self, scene: &Scene, redelivery: &Redelivery) -> Result<(), PolicyError> {
        ResolvedPolicy::from(self.or(Self::of(scene))).fits(redelivery)
    }
}

impl ResolvedPolicy {
    /// Returns the number of runs; 0 means no limit, as in a [`ClaimRequest`](crate::ClaimRequest).
    pub(crate) fn max_attempts(&self) -> u32 {
        if self.max_retries == Policy::NO_LIMIT { 0 } else { self.max_retries.saturating_add(1) }
    }

    /// Adapts the policy to a token that is valid for `ttl`.
    ///
    /// A token becomes valid again after a failed run, so its record must be kept, and must not show the token. The
    /// store alone knows which tokens are valid, so a call never runs without it.
    pub(crate) fn of_token(&mut self, ttl: Duration) {
        self.max_retries = self.max_retries.min(Policy::NO_LIMIT - 1);
        self.retain_failures = ttl.max(self.lease);
        self.on_store_error = OnStoreError::Fail;
        self.display_key = DisplayKey::Hash;
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        if self.heartbeat.is_zero() { self.lease / 3 } else { self.heartbeat }
    }

    /// Rounds durations up to 1 ms, because some stores count in ms.
    fn rounded(mut self) -> Self {
        let times = [
            &mut self.lease,
            &mut self.heartbeat,
            &mut self.max_run,
            &mut self.retain,
            &mut self.window,
            &mut self.retain_failures,
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

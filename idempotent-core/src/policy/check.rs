//! Checks of a policy when it is used. Each error contains both numbers.
use std::time::Duration;

use super::{OnInFlight, Policy, ResolvedPolicy};

/// The error of a policy that contradicts itself, or does not fit the broker.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("policy: {text}")]
pub struct PolicyError {
    text: String,
}

impl PolicyError {
    pub(crate) fn no_namespace() -> Self {
        Self::new(
            "the namespace is empty; set it to the name of the service, so that services do not share keys".to_owned(),
        )
    }

    pub(crate) fn no_order(store: &dyn std::fmt::Debug) -> Self {
        let name = format!("{store:?}");
        let name = name.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default().to_owned();
        Self::new(format!(
            "a sequence needs a store with order tables, but {name} has none; use a store with the capability `order`, or set \
             `after = …` to the key of the preceding call"
        ))
    }

    fn new(text: String) -> Self {
        Self { text }
    }
}

const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), PolicyError> {
    if holds { Ok(()) } else { Err(PolicyError::new(text())) }
}

/// Formats a duration as in configuration files.
fn time(time: Duration) -> String {
    if time == Policy::FOREVER { "forever".to_owned() } else { humantime::format_duration(time).to_string() }
}

impl ResolvedPolicy {
    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        let Self { lease, max_run, retain, retain_failures, .. } = *self;
        ensure(!lease.is_zero() && lease <= MAX_DURATION, || {
            format!("lease is {}, it must be 1 ms … 30 days", time(lease))
        })?;
        let heartbeat = self.heartbeat();
        ensure(heartbeat < lease / 2 && !heartbeat.is_zero(), || {
            format!("heartbeat is {}, it must be below half the lease of {}", time(heartbeat), time(lease))
        })?;
        ensure(max_run >= lease, || {
            format!("max_run is {}, it must not be shorter than the lease of {}", time(max_run), time(lease))
        })?;
        ensure(retain > lease || !self.window.is_zero(), || {
            format!("retain is {}, it must be longer than the lease of {}", time(retain), time(lease))
        })?;
        ensure(retain_failures >= lease, || {
            format!(
                "retain_failures is {}, it must not be shorter than the lease of {}",
                time(retain_failures),
                time(lease)
            )
        })?;
        for (name, first, most_name, most) in [
            ("in_flight_delay", self.in_flight_delay, "in_flight_delay_max", self.in_flight_delay_max),
            ("retry_delay", self.retry_delay, "retry_delay_max", self.retry_delay_max),
        ] {
            ensure(!first.is_zero() && first <= most, || {
                format!("{name} is {}, it must be above zero and at most {most_name}, {}", time(first), time(most))
            })?;
        }
        ensure(self.jitter <= 100, || format!("jitter is {} %, it must be 0 … 100 %", self.jitter))?;
        let patience = self.on_broken_order.patience();
        ensure(!patience.is_zero() && patience <= MAX_DURATION, || {
            format!("on_broken_order waits {}, it must be 1 ms … 30 days", time(patience))
        })?;
        match self.on_in_flight {
            OnInFlight::Retry => Ok(()),
            OnInFlight::Wait(most) => ensure(!most.is_zero() && most <= MAX_DURATION, || {
                format!("on_in_flight waits {}, it must be 1 ms … 30 days", time(most))
            }),
            OnInFlight::Ack => Err(PolicyError::new(
                "on_in_flight = ack loses the message if the run in flight dies: set an outbox as \
                 the consumer's `log` and call the function outside of other runs, or use retry or wait"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn fits(&self, broker: &Redelivery) -> Result<(), PolicyError> {
        let budget = broker.budget();
        ensure(broker.short_retention || self.retain >= budget, || {
            format!(
                "retain is {}, but the broker may redeliver up to {} after the first delivery: a late duplicate would \
                 run again; raise retain, or call allow_short_retention()",
                time(self.retain),
                time(budget)
            )
        })?;
        ensure(broker.deferrals_are_free || self.lease < budget, || {
            format!(
                "the lease is {}, but the broker gives up {} after the first delivery: if a worker dies, its message \
                 would be dead before the key is free; shorten the lease, or call deferrals_are_free()",
                time(self.lease),
                time(budget)
            )
        })
    }
}

/// The redelivery schedule of a broker. Lease and retention are checked against it at startup.
///
/// ```
/// use std::time::Duration;
/// use idempotent_core::{Policy, Redelivery, Scene};
///
/// let schedule = Redelivery::after([1, 5, 30, 300].map(Duration::from_secs));
/// let policy = Policy::new().lease(Duration::from_secs(600));
/// let error = policy.check_against(&Scene::Mq, &schedule).unwrap_err().to_string();
/// assert!(error.contains("10m") && error.contains("5m 36s"), "{error}");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Redelivery {
    delays: Vec<Duration>,
    short_retention: bool,
    deferrals_are_free: bool,
}

impl Redelivery {
    /// Creates a schedule with one delay for each redelivery. After the last redelivery the broker gives up.
    pub fn after(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self { delays: delays.into_iter().collect(), short_retention: false, deferrals_are_free: false }
    }

    /// Returns the time from the first delivery to the last.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.delays.iter().fold(Duration::ZERO, |sum, delay| sum.saturating_add(*delay))
    }

    /// Allows a retention shorter than the schedule, so that late duplicates may run again.
    pub fn allow_short_retention(mut self) -> Self {
        self.short_retention = true;
        self
    }

    /// Declares that a deferral of a message in flight does not use up a redelivery.
    pub fn deferrals_are_free(mut self) -> Self {
        self.deferrals_are_free = true;
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Policy, Scene};

    const SECOND: Duration = Duration::from_secs(1);

    fn refusal(policy: Policy) -> String {
        policy.check(&Scene::Mq).unwrap_err().to_string()
    }

    #[test]
    fn a_delay_is_above_zero_and_at_most_its_maximum() {
        let delay = |delay: Duration, most: Duration| Policy::new().retry_delay(delay).retry_delay_max(most);
        assert!(delay(SECOND, SECOND).check(&Scene::Mq).is_ok());
        assert!(refusal(delay(Duration::ZERO, SECOND)).contains("retry_delay is 0s"));
        assert!(refusal(delay(SECOND * 2, SECOND)).contains("retry_delay is 2s"));
    }

    #[test]
    fn a_lease_is_shorter_than_the_redeliveries() {
        let policy = Policy::new().lease(SECOND * 30);
        let after = |seconds: u32| policy.check_against(&Scene::Mq, &Redelivery::after([SECOND * seconds]));
        assert!(after(30).unwrap_err().to_string().contains("the lease is 30s"));
        assert!(after(31).is_ok());
        let free = Redelivery::after([SECOND * 30]).deferrals_are_free();
        assert!(policy.check_against(&Scene::Mq, &free).is_ok());
    }

    #[test]
    fn a_store_without_order_tables_is_named() {
        #[derive(Debug)]
        struct ShelfStore {
            _shelf: u8,
        }
        let error = PolicyError::no_order(&ShelfStore { _shelf: 1 }).to_string();
        assert!(error.contains("but ShelfStore has none"), "{error}");
    }

    #[test]
    fn a_policy_answers_for_its_settings() {
        let waits = |choice| Policy::new().on_in_flight(choice).waits();
        assert_eq!(Policy::new().waits(), None);
        assert_eq!((waits(OnInFlight::Wait(SECOND)), waits(OnInFlight::Retry)), (Some(true), Some(false)));
        assert!(!Policy::new().has_window() && !Policy::new().window(Duration::ZERO).has_window());
        assert!(Policy::new().window(SECOND).has_window());
        assert!(
            Policy::new().retain(Policy::FOREVER).keeps_for_ever() && !Policy::new().retain(SECOND).keeps_for_ever()
        );
    }

    #[test]
    fn a_configuration_that_is_no_map_is_an_error_that_describes_a_policy() {
        let error = serde_json::from_str::<Policy>("5").unwrap_err().to_string();
        assert!(error.contains("expected a policy: lease, retain"), "{error}");
    }
}

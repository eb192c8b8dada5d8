//! Retry delays of failed messages.
use std::time::Duration;

use idempotent_core::__private::HumaneTime;
use idempotent_core::__private::backoff::delay;
use idempotent_core::{Policy, Redelivery};
use serde::Deserialize;

/// The retry delays after the first failed attempt, the second one, and so on. Deferrals are not attempts.
///
/// ```
/// use std::time::Duration;
/// use idempotent_mq::Schedule;
///
/// // In RocketMQ, the first retry uses delay level 3, and the sixteenth retry level 18.
/// let schedule = Schedule::rocketmq();
/// assert_eq!(schedule.after(1, 0), Duration::from_secs(10));
/// assert_eq!(schedule.after(16, 0), Duration::from_secs(2 * 3600));
/// assert_eq!(schedule.redelivery(16).budget(), Duration::from_secs(17_140)); // 4 h 45 min 40 s
/// ```
///
/// In a configuration file, a schedule has `first` and `most`, or the list `delays`, and optionally `jitter`, by default 0. Durations
/// are written as `"30s"` or `"1h 30m"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WrittenSchedule")]
#[must_use]
pub struct Schedule {
    steps: ScheduleSteps,
    jitter: u8,
}

#[derive(Clone, Debug)]
enum ScheduleSteps {
    Exponential { first: Duration, most: Duration },
    List(Vec<Duration>),
}

/// A schedule in a configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSchedule {
    first: Option<HumaneTime>,
    most: Option<HumaneTime>,
    delays: Option<Vec<HumaneTime>>,
    #[serde(default)]
    jitter: u8,
}

impl TryFrom<WrittenSchedule> for Schedule {
    type Error = String;

    fn try_from(written: WrittenSchedule) -> Result<Self, String> {
        let schedule = match (written.first, written.most, written.delays) {
            (Some(first), Some(most), None) => Self::exponential(first.into(), most.into()),
            (None, None, Some(delays)) => Self::list(delays.into_iter().map(Into::into)),
            _ => return Err("a schedule has either `first` and `most`, or `delays`".to_owned()),
        };
        let schedule = schedule.jitter(written.jitter);
        schedule.check().map(|()| schedule)
    }
}

/// The 18 delay levels of RocketMQ, in seconds.
const LEVELS: [u64; 18] = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200];

impl Default for Schedule {
    /// Returns a schedule that begins with 1 s and doubles up to 5 min, with a jitter of 20 %.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(300)).jitter(20)
    }
}

impl Schedule {
    /// Creates a schedule that begins with `first` and doubles after each attempt, up to `most`.
    pub fn exponential(first: Duration, most: Duration) -> Self {
        Self { steps: ScheduleSteps::Exponential { first, most }, jitter: 0 }
    }

    /// Creates a schedule of RocketMQ's delay levels: 10 s, 30 s, 1 min … 10 min, 20 min, 30 min, 1 h, 2 h. RocketMQ does not
    /// use its first two levels, 1 s and 5 s, for retries.
    pub fn rocketmq() -> Self {
        Self::list(LEVELS[2..].iter().copied().map(Duration::from_secs))
    }

    /// Creates a schedule from a list of delays. The last delay repeats.
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self { steps: ScheduleSteps::List(delays.into_iter().collect()), jitter: 0 }
    }

    /// Sets the jitter in percent of each delay, up and down, so that failed messages do not all return at once.
    ///
    /// # Default
    /// 0
    pub fn jitter(mut self, percent: u8) -> Self {
        self.jitter = percent;
        self
    }

    /// Returns the delay after a failed attempt. The first attempt is number 1. `bits` must be random.
    #[must_use]
    pub fn after(&self, attempt: u32, bits: u128) -> Duration {
        let before = attempt.saturating_sub(1);
        match &self.steps {
            ScheduleSteps::Exponential { first, most } => delay(*first, *most, before, self.jitter, bits),
            ScheduleSteps::List(steps) => {
                let at = usize::try_from(before).unwrap_or(usize::MAX);
                let step = steps.get(at).or(steps.last()).copied().unwrap_or_default();
                delay(step, step, 0, self.jitter, bits)
            }
        }
    }

    /// Returns the delays of this many retries without jitter, for the check against lease and retention.
    pub fn redelivery(&self, retries: u32) -> Redelivery {
        // Bounds the list if the limit of retries is very large.
        let plain = Self { jitter: 0, ..self.clone() };
        Redelivery::after((1..=retries.min(10_000)).map(|attempt| plain.after(attempt, 0)))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.steps {
            _ if self.jitter > 100 => Err(format!("the schedule's jitter is {} %, it must be 0 … 100 %", self.jitter)),
            ScheduleSteps::List(steps) if steps.is_empty() => {
                Err("the schedule is an empty list: give at least one delay".to_owned())
            }
            ScheduleSteps::List(steps) if steps.contains(&Duration::ZERO) => {
                Err("the schedule has a delay of 0: a message that fails at once would be a hot loop".to_owned())
            }
            ScheduleSteps::Exponential { first, most } if first.is_zero() || first > most => {
                Err(format!("the schedule begins with {first:?}, it must be above zero and at most {most:?}"))
            }
            ScheduleSteps::List(steps) if steps.contains(&Policy::FOREVER) => {
                Err("the schedule has a delay of `forever`: give each retry a finite delay, such as \"1h\"".to_owned())
            }
            ScheduleSteps::Exponential { most: Policy::FOREVER, .. } => {
                Err("the schedule has no longest delay: give it a finite one, such as \"1h\"".to_owned())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_schedule_is_read_from_configuration_and_checked() {
        let read = |text: &str| serde_json::from_str::<Schedule>(text);
        let doubling = read(r#"{ "first": "2s", "most": "1m", "jitter": 0 }"#).unwrap();
        assert_eq!([1, 2, 9].map(|attempt| doubling.after(attempt, 0)), [2, 4, 60].map(secs));
        let listed = read(r#"{ "delays": ["10s", "1m 30s"], "jitter": 50 }"#).unwrap();
        assert_eq!([1, 3].map(|attempt| listed.after(attempt, 0)), [5, 45].map(secs));
        for (text, part) in [
            (r#"{ "first": "2s" }"#, "either `first` and `most`, or `delays`"),
            (r#"{ "first": "2s", "most": "1m", "delays": [] }"#, "either `first` and `most`, or `delays`"),
            (r#"{ "first": "2m", "most": "1m" }"#, "the schedule begins with 120s"),
            (r#"{ "delays": [] }"#, "empty list"),
            (r#"{ "delays": ["1s", "forever"] }"#, "a delay of `forever`"),
            (r#"{ "first": "1s", "most": "forever" }"#, "no longest delay"),
            (r#"{ "delays": ["1s"], "jitter": 101 }"#, "0 … 100 %"),
            (r#"{ "delays": ["1"] }"#, "no unit"),
            (r#"{ "delay": ["1s"] }"#, "unknown field `delay`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_schedule_that_cannot_work_is_refused() {
        let refused = |schedule: Schedule, why: &str| {
            let error = schedule.check().unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(Schedule::list([secs(1)]).jitter(101), "jitter is 101 %");
        refused(Schedule::list([]), "empty list");
        refused(Schedule::list([secs(1), Duration::ZERO]), "delay of 0");
        refused(Schedule::exponential(Duration::ZERO, secs(1)), "begins with 0ns");
        refused(Schedule::exponential(secs(2), secs(1)), "begins with 2s");
        let accepted = [
            Schedule::list([secs(1)]).jitter(100),
            Schedule::exponential(secs(1), secs(1)).jitter(0),
            Schedule::default(),
            Schedule::rocketmq(),
        ];
        assert_eq!(accepted.map(|schedule| schedule.check()), [Ok(()), Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn the_redelivery_has_the_delays_without_jitter() {
        let plain = Schedule::exponential(secs(1), secs(300));
        let jittered = plain.clone().jitter(50);
        assert_ne!(jittered.after(3, 0), plain.after(3, 0));
        assert_eq!(jittered.redelivery(5).budget(), plain.redelivery(5).budget());
        assert_eq!(jittered.redelivery(3).budget(), secs(1 + 2 + 4));
    }
}

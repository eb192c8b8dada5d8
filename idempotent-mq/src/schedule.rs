//! How long a failed message waits.
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::Redelivery;

/// How long a message waits after its first failed attempt, its second, and so on. Deferrals are not attempts.
///
/// ```
/// use std::time::Duration;
/// use idempotent_mq::Schedule;
///
/// // RocketMQ's: the first retry comes after its level 3, the sixteenth after level 18.
/// let schedule = Schedule::rocketmq();
/// assert_eq!(schedule.after(1, 0), Duration::from_secs(10));
/// assert_eq!(schedule.after(16, 0), Duration::from_secs(2 * 3600));
/// assert_eq!(schedule.redelivery(16).budget(), Duration::from_secs(17_140)); // 4 h 45 min 40 s
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Schedule {
    steps: Steps,
    jitter: u8,
}

#[derive(Clone, Debug)]
enum Steps {
    Exponential { first: Duration, most: Duration },
    List(Vec<Duration>),
}

/// RocketMQ's 18 levels, in seconds.
const LEVELS: [u64; 18] = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200];

impl Default for Schedule {
    /// 1 s, doubling up to 5 min, spread by 20 %.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(300)).jitter(20)
    }
}

impl Schedule {
    /// `first`, doubled after each attempt, up to `most`.
    pub fn exponential(first: Duration, most: Duration) -> Self {
        Self { steps: Steps::Exponential { first, most }, jitter: 0 }
    }

    /// RocketMQ's levels: 10 s, 30 s, 1 min … 10 min, 20 min, 30 min, 1 h, 2 h. A failed message skips the first two,
    /// 1 s and 5 s, there.
    pub fn rocketmq() -> Self {
        Self::list(LEVELS[2..].iter().copied().map(Duration::from_secs))
    }

    /// One after the other; the last one from then on.
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self { steps: Steps::List(delays.into_iter().collect()), jitter: 0 }
    }

    /// Spreads each by this much up and down, in percent, so that a herd does not come back at once.
    ///
    /// # Default
    /// 0
    pub fn jitter(mut self, percent: u8) -> Self {
        self.jitter = percent;
        self
    }

    /// How long to wait after the `attempt`th attempt failed, the first being 1. `bits` are random.
    #[must_use]
    pub fn after(&self, attempt: u32, bits: u128) -> Duration {
        let before = attempt.saturating_sub(1);
        match &self.steps {
            Steps::Exponential { first, most } => delay(*first, *most, before, self.jitter, bits),
            Steps::List(steps) => {
                let at = usize::try_from(before).unwrap_or(usize::MAX);
                let step = steps.get(at).or(steps.last()).copied().unwrap_or_default();
                delay(step, step, 0, self.jitter, bits)
            }
        }
    }

    /// The delays of this many retries, without jitter, for the check against lease and retention.
    pub fn redelivery(&self, retries: u32) -> Redelivery {
        // A limit nobody reaches would be a list nobody can hold.
        let plain = Self { jitter: 0, ..self.clone() };
        Redelivery::after((1..=retries.min(10_000)).map(|attempt| plain.after(attempt, 0)))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.steps {
            _ if self.jitter > 100 => Err(format!("the schedule's jitter is {} %, it must be 0 … 100 %", self.jitter)),
            Steps::List(steps) if steps.is_empty() => {
                Err("the schedule is an empty list: give at least one delay".to_owned())
            }
            Steps::List(steps) if steps.contains(&Duration::ZERO) => {
                Err("the schedule has a delay of 0: a message that fails at once would be a hot loop".to_owned())
            }
            Steps::Exponential { first, most } if first.is_zero() || first > most => {
                Err(format!("the schedule begins with {first:?}, it must be above zero and at most {most:?}"))
            }
            _ => Ok(()),
        }
    }
}

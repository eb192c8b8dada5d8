//! What a seed stands for.
use std::time::Duration;

use idempotent::{OnExpiry, OnInFlight, OnLeaseLost, OnStoreError, Policy};
use idempotent_testkit::Chaos;

use crate::dice::Dice;

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub keys: u64,
    /// Deliveries, duplicates included.
    pub deliveries: u64,
    /// One for each slot of a worker: mostly the same, sometimes as in the middle of a roll-out.
    pub policies: Vec<Policy>,
    /// The longest lease of them.
    pub lease: Duration,
    /// The shortest of them; the guard comes a little earlier.
    pub max_run: Duration,
    pub release_on_cancel: bool,
    pub unprotected: bool,
    pub fingerprints: bool,
    /// The resource refuses smaller fencing numbers.
    pub fenced: bool,
    pub nested: bool,
    /// Chance in percent that a delivery comes in a batch.
    pub batched: u64,
    pub chaos: Chaos,
    /// Actions of the monkey, on the average one each.
    pub monkey: Duration,
    /// Workers drain, too.
    pub drains: bool,
    /// Chances in percent: handler fails, panics, fails for good, takes long.
    pub fails: u64,
    pub panics: u64,
    pub permanent: u64,
    pub slow: u64,
    /// From here on nothing goes wrong any more.
    pub calm: Duration,
    /// By then everything is settled.
    pub end: Duration,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let dice = &mut Dice::fork(seed, 1);
        let workers = dice.range(2, 8);
        let lease = ms(dice.pick(&[200, 1_000, 5_000, 30_000]));
        let release_on_cancel = dice.percent(20);
        let unprotected = dice.percent(5);
        let mixed = dice.percent(20);
        let mut max_run = Duration::MAX;
        let first = policy(dice, lease, release_on_cancel, unprotected, &mut max_run);
        let policies = (0..workers)
            .map(|_| {
                if mixed {
                    let lease = lease.mul_f64(0.3 + 0.1 * dice.range(0, 7) as f64);
                    policy(dice, lease, release_on_cancel, unprotected, &mut max_run)
                } else {
                    first
                }
            })
            .collect();
        let rough = dice.pick(&[0u64, 0, 1, 2, 4]);
        let chance = |dice: &mut Dice, most| dice.range(0, most * rough) as f64 / 100.0;
        let chaos = Chaos {
            refuse: chance(dice, 5),
            lose_request: chance(dice, 4),
            lose_reply: chance(dice, 5),
            hang: chance(dice, 3),
            delay: chance(dice, 8),
            delay_reply: chance(dice, 6),
            max_delay: lease.mul_f64(dice.pick(&[0.05, 0.5, 1.5, 3.0])),
        };
        let calm = lease * u32::try_from(dice.range(6, 12)).unwrap();
        Self {
            seed,
            keys: dice.range(1, 4),
            deliveries: dice.range(3, 14),
            policies,
            lease,
            max_run,
            release_on_cancel,
            unprotected,
            fingerprints: dice.percent(50),
            fenced: dice.percent(50),
            nested: dice.percent(25),
            batched: dice.pick(&[0, 0, 30]),
            chaos,
            monkey: lease.mul_f64(dice.pick(&[0.3, 1.0, 3.0, 1_000.0])),
            drains: dice.percent(60),
            fails: dice.pick(&[0, 10, 40]),
            panics: dice.pick(&[0, 0, 15]),
            permanent: dice.pick(&[0, 0, 10]),
            slow: dice.pick(&[0, 10, 40]),
            calm,
            // A run in progress, its lease, then for each of the others in turn a lease and a delay.
            end: calm + lease * 100 + ms(300_000),
        }
    }

    /// Nothing goes wrong but handlers.
    pub fn is_harmless(&self) -> bool {
        let harms = [self.chaos.refuse, self.chaos.lose_request, self.chaos.lose_reply, self.chaos.hang];
        let delays = [self.chaos.delay, self.chaos.delay_reply];
        harms.iter().chain(&delays).all(|chance| *chance == 0.0) && self.monkey > self.calm * 10
    }

    /// For tests of the checker: nothing in it matters but the resource.
    pub fn quiet() -> Self {
        let mut plan = Self::of(0);
        (plan.fenced, plan.fingerprints, plan.max_run) = (true, true, Duration::from_secs(20));
        (plan.chaos, plan.monkey) = (Chaos::default(), plan.calm * 100);
        (plan.unprotected, plan.release_on_cancel, plan.nested, plan.batched) = (false, false, false, 0);
        plan
    }
}

fn policy(
    dice: &mut Dice,
    lease: Duration,
    release_on_cancel: bool,
    unprotected: bool,
    shortest: &mut Duration,
) -> Policy {
    let max_run = lease * dice.pick(&[1, 2, 4, 20]);
    // Renewed for the last time up to a heartbeat before, and guarded up to half a lease before its end.
    *shortest = (*shortest).min(max_run.saturating_sub(lease.mul_f64(0.6)));
    let mut policy = Policy::new()
        .lease(lease)
        .max_run(max_run)
        .retain(lease * dice.pick(&[2, 20, 10_000, 10_000]))
        .memory(lease * dice.pick(&[1, 4, 10_000, 10_000]))
        .in_flight_delay(ms(dice.pick(&[10, 1_000])))
        .in_flight_delay_max(ms(dice.pick(&[1_000, 10_000])))
        .retry_delay(ms(dice.pick(&[1, 100, 1_000])))
        .retry_delay_max(ms(dice.pick(&[1_000, 10_000])))
        .release_on_cancel(release_on_cancel);
    if dice.percent(20) {
        policy = policy.heartbeat(lease.mul_f64(dice.pick(&[0.1, 0.45])));
    }
    if dice.percent(60) {
        policy = policy.max_retries(u32::try_from(dice.range(0, 4)).unwrap());
    }
    if dice.percent(20) {
        policy = policy.on_expiry(OnExpiry::Park);
    }
    if dice.percent(40) {
        policy = policy.on_lease_lost(OnLeaseLost::Finish);
    }
    if dice.percent(40) {
        policy = policy.on_in_flight(OnInFlight::Wait(lease.mul_f64(dice.pick(&[0.1, 1.0, 3.0]))));
    }
    if unprotected {
        policy = policy.on_store_error(OnStoreError::RunUnprotected);
    }
    policy
}

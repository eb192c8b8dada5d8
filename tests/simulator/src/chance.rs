//! Generation of a plan from a seed.
use super::dice::{Dice, fork};
use super::plan::{CallFault, Delivery, End, Harm, KEYS, Loss, Mischief, Plan, Run, Step, Terms};

/// The number of runs of a delivery with individual settings, and of calls of a worker with possible faults.
const RUNS: u64 = 8;
const CALLS: u64 = 60;

impl Plan {
    /// Creates the plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let dice = &mut fork(seed, 1);
        let lease_ms = dice.pick(&[200, 1_000, 1_500, 5_000, 30_000]);
        let workers = workers(dice, lease_ms);
        let calm_ms = lease_ms * dice.range(6, 12);
        let mut plan = Self {
            seed,
            calm_ms,
            fenced: dice.percent(50),
            fingerprints: dice.percent(50),
            workers,
            deliveries: Vec::new(),
            mischief: Vec::new(),
            faults: Vec::new(),
        };
        plan.deliveries = deliveries(&plan, &mut fork(seed, 2));
        plan.mischief = mischief(&plan, &mut fork(seed, 3));
        plan.faults = faults(&plan, &mut fork(seed, 4));
        add_claim_intervals(&mut plan.workers, &mut fork(seed, 5));
        add_turns(&mut plan.workers, &mut fork(seed, 6));
        plan
    }
}

/// Creates the workers' policies: mostly equal, sometimes different, as during a roll-out.
fn workers(dice: &mut Dice, lease_ms: u64) -> Vec<Terms> {
    let (cancels, unprotected, mixed) = (dice.percent(20), dice.percent(5), dice.percent(20));
    let first = terms(dice, lease_ms, cancels, unprotected);
    (0..dice.range(2, 6))
        .map(|_| {
            let lease_ms = lease_ms * dice.range(3, 10) / 10;
            if mixed { terms(dice, lease_ms, cancels, unprotected) } else { first.clone() }
        })
        .collect()
}

fn terms(dice: &mut Dice, lease_ms: u64, release_on_cancel: bool, unprotected: bool) -> Terms {
    Terms {
        lease_ms,
        max_run_ms: lease_ms * dice.pick(&[1, 2, 4, 20]),
        retain_ms: lease_ms * dice.pick(&[2, 20, 10_000, 10_000]),
        memory_ms: lease_ms * dice.pick(&[1, 4, 10_000, 10_000]),
        heartbeat_ms: dice.percent(20).then(|| lease_ms * dice.pick(&[10, 45]) / 100),
        max_retries: dice.percent(60).then(|| u32::try_from(dice.range(0, 4)).unwrap_or_default()),
        wait_ms: dice.percent(40).then(|| lease_ms * dice.pick(&[1, 10, 30]) / 10),
        in_flight_ms: (dice.pick(&[10, 1_000]), dice.pick(&[1_000, 10_000])),
        retry_ms: (dice.pick(&[1, 100, 1_000]), dice.pick(&[1_000, 10_000])),
        park: dice.percent(20),
        finish: dice.percent(40),
        release_on_cancel,
        unprotected,
        claim_interval_ms: 0,
        turns: 0,
    }
}

/// Sets the interval between claims of a key in flight for some workers of some plans.
fn add_claim_intervals(workers: &mut [Terms], dice: &mut Dice) {
    let share = dice.pick(&[0, 0, 50, 100]);
    for terms in workers {
        if dice.percent(share) {
            terms.claim_interval_ms = dice.pick(&[10, 100, 1_000]);
        }
    }
}

/// Limits the handlers of some workers of some plans, which then claim ahead of them.
fn add_turns(workers: &mut [Terms], dice: &mut Dice) {
    let share = dice.pick(&[0, 0, 50, 100]);
    for terms in workers {
        if dice.percent(share) {
            terms.turns = dice.range(1, 2);
        }
    }
}

fn deliveries(plan: &Plan, dice: &mut Dice) -> Vec<Delivery> {
    // Sometimes, all deliveries arrive at once and have the same key.
    let herd = dice.percent(15);
    let bare_ones = dice.pick(&[0, 0, 0, 20]);
    let keys = if herd { 1 } else { dice.range(1, KEYS) };
    let moods = Moods {
        lease_us: plan.lease_us(),
        slow: dice.pick(&[0, 10, 40]),
        fails: dice.pick(&[0, 10, 40]),
        fails_for_good: dice.pick(&[0, 0, 10]),
        panics: dice.pick(&[0, 0, 15]),
        inner: dice.pick(&[0, 0, 50]),
        batched: dice.pick(&[0, 0, 30, 60]),
        early: dice.pick(&[0, 30]),
        scripted: dice.pick(&[0, 0, 40]),
    };
    let mut at_us = 0;
    (0..dice.range(3, 14))
        .map(|_| {
            if dice.percent(if herd { 5 } else { 60 }) {
                at_us = dice.below(plan.calm_ms * 1_000);
            }
            let key = dice.below(keys);
            let payload = key * 10 + u64::from(dice.percent(15));
            let bare = dice.percent(bare_ones);
            let runs = (0..RUNS).map(|_| moods.run(dice, &plan.workers)).collect();
            Delivery { key, payload, bare, at_us, runs }
        })
        .collect()
}

/// The probabilities of faults, in percent.
struct Moods {
    lease_us: u64,
    slow: u64,
    fails: u64,
    fails_for_good: u64,
    panics: u64,
    inner: u64,
    batched: u64,
    early: u64,
    scripted: u64,
}

impl Moods {
    fn run(&self, dice: &mut Dice, workers: &[Terms]) -> Run {
        let end = match dice.below(100) {
            roll if roll < self.fails => End::Fails,
            roll if roll < self.fails + self.fails_for_good => End::FailsForGood,
            roll if roll < self.fails + self.fails_for_good + self.panics => End::Panics,
            roll if roll >= 92 => End::Empty,
            _ => End::Well,
        };
        Run {
            worker: dice.place(workers),
            before_us: self.pause(dice),
            after_us: self.pause(dice),
            polite: dice.percent(50),
            inner: dice.percent(self.inner),
            batch: if dice.percent(self.batched) { dice.range(1, 2) } else { 0 },
            end,
            script: if dice.percent(self.scripted) { self.script(dice) } else { Vec::new() },
            again_us: if dice.percent(self.early) { dice.pick(&[500, 1_000]) } else { 0 },
        }
    }

    fn script(&self, dice: &mut Dice) -> Vec<Step> {
        // Detects a store that does not check the current owner of the key.
        let late = Step::Wait { us: dice.part(self.lease_us, 4.0) };
        let (renew, complete) = (self.renewal(dice), Step::Complete { value: 0 });
        match dice.below(10) {
            0 => vec![late, renew, late, complete],
            1 => vec![late, Step::Claim, complete],
            2 => vec![Step::Release, renew, complete],
            3 => vec![Step::Release, Step::Claim, complete],
            4 => vec![late, Step::Release],
            // In the instant in which the others return.
            6 => vec![Step::Renew { lease_ms: self.lease_us / 10_000 }, Step::Wait { us: self.lease_us / 2 }, complete],
            5 => vec![Step::Wait { us: self.lease_us }, dice.pick(&[renew, complete, Step::Release])],
            _ => (0..5).map(|_| self.step(dice)).collect(),
        }
    }

    fn step(&self, dice: &mut Dice) -> Step {
        match dice.below(10) {
            0 => Step::Claim,
            1 | 2 => self.renewal(dice),
            3..=5 => Step::Complete { value: dice.below(3) },
            6 => Step::Release,
            7 if dice.percent(30) => Step::Fail,
            _ => {
                let part = dice.pick(&[0.1, 0.5, 1.2, 3.0]);
                Step::Wait { us: dice.part(self.lease_us, part) }
            }
        }
    }

    fn renewal(&self, dice: &mut Dice) -> Step {
        Step::Renew { lease_ms: (self.lease_us / 10_000 * dice.pick(&[1, 5, 10, 20])).max(1) }
    }

    fn pause(&self, dice: &mut Dice) -> u64 {
        let part = match dice.below(100) {
            roll if roll >= self.slow => dice.pick(&[0.0, 0.01, 0.2]),
            // Not with the longest leases, since a waiter polls every second.
            0 if self.lease_us <= 5_000_000 => 25.0,
            _ => dice.pick(&[0.5, 0.95, 1.2, 3.0]),
        };
        dice.part(self.lease_us, part)
    }
}

fn mischief(plan: &Plan, dice: &mut Dice) -> Vec<Mischief> {
    let (lease_us, calm_us) = (plan.lease_us(), plan.calm_ms * 1_000);
    let pace = dice.pick(&[0.3, 1.0, 3.0, 1_000.0]);
    // A clock that is set makes leases uncertain, so only some simulations have one.
    let sets_clock = dice.percent(8);
    let (drains, cleans, forgets) = (dice.percent(60), dice.percent(60), dice.percent(40));
    let (mut at_us, mut all) = (0, Vec::new());
    loop {
        at_us += dice.part(lease_us, pace * 2.0);
        if at_us >= calm_us {
            break;
        }
        all.extend(harm(plan, dice, sets_clock, drains).map(|what| Mischief { at_us, what }));
    }
    all.extend(crowded(plan).filter(|_| dice.percent(70)));
    let mut chores = |often: bool, dice: &mut Dice, what: fn(&mut Dice, u64) -> Harm| {
        for _ in 0..if often { dice.range(2, 10) } else { 0 } {
            let (at_us, what) = (dice.below(calm_us), what(dice, lease_us));
            all.push(Mischief { at_us, what });
        }
    };
    chores(cleans, dice, |dice, _| Harm::Purge { most: dice.pick(&[1, 100]) });
    chores(forgets, dice, |dice, lease_us| {
        let late = dice.pick(&[0.0, 0.3, 2.0]);
        Harm::Forget { key: dice.below(KEYS), after_us: dice.part(lease_us, late) }
    });
    all.extend(overtaken(plan).filter(|_| plan.seed.is_multiple_of(4)));
    all
}

/// Pauses the first run that ignores its lost lease, before its effect, until another delivery of the key may have run.
fn overtaken(plan: &Plan) -> Option<Mischief> {
    let (lease_us, deliveries) = (plan.lease_us(), &plan.deliveries);
    deliveries.iter().find_map(|first| {
        let is_late = |run: &&Run| run.before_us > 1 && !run.polite && plan.workers[run.worker].finish;
        let run = first.runs.first().filter(is_late)?;
        let others = deliveries.iter().filter(|other| other.key == first.key && !std::ptr::eq(*other, first));
        let last_at = others.map(|other| other.at_us).max()?;
        let what = Harm::Pause { worker: run.worker, us: last_at.saturating_sub(first.at_us) + 3 * lease_us };
        Some(Mischief { at_us: first.at_us + run.before_us / 2, what })
    })
}

/// Kills the first worker of each crowd, so that the others and a purge wait for the same lease to end.
fn crowded(plan: &Plan) -> impl Iterator<Item = Mischief> {
    let crowd = plan
        .deliveries
        .windows(3)
        .find(|three| three.iter().all(|other| (other.at_us, other.key) == (three[0].at_us, three[0].key)));
    let first = crowd.and_then(|three| Some((three[0].at_us, three[0].runs.first()?.worker)));
    let lease_us = plan.lease_us();
    first.into_iter().flat_map(move |(at_us, worker)| {
        let dies = Mischief { at_us: at_us + 1, what: Harm::Kill { worker, network: false } };
        [dies, Mischief { at_us: at_us + lease_us, what: Harm::Purge { most: 100 } }]
    })
}

fn harm(plan: &Plan, dice: &mut Dice, sets_clock: bool, drains: bool) -> Option<Harm> {
    let (lease_us, worker) = (plan.lease_us(), dice.place(&plan.workers));
    let part = |dice: &mut Dice, of: &[f64]| {
        let part = dice.pick(of);
        dice.part(lease_us, part)
    };
    Some(match dice.below(13) {
        0 | 1 => Harm::Kill { worker, network: false },
        2 => Harm::Kill { worker, network: true },
        3 if drains => Harm::Drain { worker, grace_us: part(dice, &[0.5, 5.0]) },
        4 | 5 => Harm::Drop { delivery: usize::try_from(dice.below(plan.deliveries.len() as u64)).unwrap_or_default() },
        6..=8 => Harm::Pause { worker, us: part(dice, &[0.4, 0.8, 1.05, 2.5]) },
        9 => Harm::Freeze { us: part(dice, &[0.5, 1.1]) },
        10 => Harm::StoreDown { worker, us: part(dice, &[0.2, 1.0, 2.0]) },
        11 => Harm::WorkerClock {
            worker,
            wrong_by_us: i64::try_from(dice.below(240_000_000)).unwrap_or_default() - 120_000_000,
        },
        12 if sets_clock => Harm::StoreClock { us: part(dice, &[0.3, 1.0, 3.0]) },
        _ => return None,
    })
}

fn faults(plan: &Plan, dice: &mut Dice) -> Vec<CallFault> {
    let rough = dice.pick(&[0, 0, 1, 2, 4_u64]);
    let mut most = |chance| dice.range(0, chance * rough);
    let (refused, request, reply, silence) = (most(5), most(4), most(5), most(3));
    let (delayed, delayed_reply, copied) = (most(8), most(6), most(3));
    let late = dice.pick(&[0.1, 1.0, 3.0, 6.0]);
    let lease_us = plan.lease_us();
    let mut all = Vec::new();
    for worker in 0..plan.workers.len() {
        for nth in 0..if rough == 0 { 0 } else { CALLS } {
            let loss = match dice.below(100) {
                roll if roll < refused => Some(Loss::Refused),
                roll if roll < refused + request => Some(Loss::Request),
                roll if roll < refused + request + reply => Some(Loss::Reply),
                roll if roll < refused + request + reply + silence => Some(Loss::Silence),
                _ => None,
            };
            let mut after = |chance| if dice.percent(chance) { dice.part(lease_us, late) } else { 0 };
            let (delay_us, reply_delay_us, copy) = (after(delayed), after(delayed_reply), after(copied));
            let copy_after_us = (copy > 0).then_some(copy);
            let fault = CallFault { worker, nth, loss, delay_us, reply_delay_us, copy_after_us };
            if (CallFault { worker, nth, ..CallFault::default() }) != fault {
                all.push(fault);
            }
        }
    }
    all
}

impl Plan {
    fn lease_us(&self) -> u64 {
        self.workers.iter().map(|terms| terms.lease_ms).max().unwrap_or(1_000) * 1_000
    }
}

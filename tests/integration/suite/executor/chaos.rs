//! Seeded chaos on a virtual clock with callers that drop their runs at any await.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::common::{AppError, PlainHandler, World, id, ms, on_memory, secs};
use idempotent::store::StateKind;
use idempotent::{BatchItem, Call, Clock, Disposition, Executor, Lease, OnInFlight, OnLeaseLost, Outcome, Policy};
use idempotent_simulator::{ProcessClock, Wire};
use idempotent_testkit::{FaultRates, SeededEntropy};

struct Dice(u64);
impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[derive(Default)]
struct Scene {
    running: HashMap<String, Vec<Lease>>,
    /// The number of effects whose run was reported as done.
    done: HashMap<String, u64>,
    wrong: Vec<String>,
    started: u32,
    highest: HashMap<String, u64>,
}
type Shared = Arc<Mutex<Scene>>;

struct Inside(Shared, String, Lease);
impl Inside {
    fn new(scene: &Shared, key: &str, lease: Lease, what: &str) -> Self {
        let mut at = scene.lock().unwrap();
        at.started += 1;
        if at.done.contains_key(key) {
            at.wrong.push(format!("{key} starts after it was done ({what})"));
        }
        if lease.is_lost() {
            at.wrong.push(format!("{key} starts on a lost lease ({what})"));
        }
        let others = at.running.entry(key.to_owned()).or_default();
        let live = others.iter().filter(|other| !other.is_lost()).count();
        others.push(lease.clone());
        if live > 0 {
            at.wrong.push(format!("{key} starts beside {live} that hold it ({what})"));
        }
        let before = at.highest.insert(key.to_owned(), lease.fencing().0).unwrap_or(0);
        if before >= lease.fencing().0 {
            at.wrong.push(format!("{key}: fencing {} after {before}", lease.fencing()));
        }
        drop(at);
        Self(scene.clone(), key.to_owned(), lease)
    }
}
impl Drop for Inside {
    fn drop(&mut self) {
        let mut at = self.0.lock().unwrap();
        let fencing = self.2.fencing();
        at.running.get_mut(&self.1).unwrap().retain(|other| other.fencing() != fencing);
    }
}

/// The settings of a round.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// The probability of a call without an answer.
    hang: f64,
    /// The number of batches in four calls.
    batches: u64,
    keys: u64,
    /// True if a request arrives although its sender has given it up.
    stragglers: bool,
}

async fn round(world: &World, seed: u64, setting: Setting) -> (u32, Vec<String>) {
    let Setting { hang, batches, keys: keys_of, stragglers } = setting;
    let mut dice = Dice(seed * 31 + 5);
    let scene: Shared = Arc::default();
    let mut workers = Vec::new();
    for n in 0..3u64 {
        let mut policy = Policy::new().lease(secs(3)).max_retries(if n == 1 { Policy::NO_LIMIT } else { 1000 });
        if n == 2 {
            policy = policy.on_in_flight(OnInFlight::Wait(secs(2))).on_lease_lost(OnLeaseLost::Finish);
        }
        let mut worker = world.worker(&format!("w{n}"), policy);
        if stragglers {
            let network = Wire::new(worker.store.clone(), &ProcessClock::new(&world.clock, 0));
            let builder = Executor::builder(network).clock(Arc::new(world.clock.clone()));
            let builder = builder.entropy(Arc::new(SeededEntropy::new(seed * 3 + n)));
            worker.executor = builder.policy(idempotent::Scene::Mq, policy).build().unwrap();
        }
        worker.store.chaos(
            seed * 7 + n,
            FaultRates {
                refuse: 0.1,
                lose_request: 0.1,
                lose_reply: 0.1,
                hang,
                delay: 0.2,
                delay_reply: 0.2,
                max_delay: secs(2),
            },
        );
        workers.push(worker);
    }
    let mut tasks = Vec::new();
    for n in 0..60u64 {
        let worker = workers[usize::try_from(dice.roll(3)).unwrap()].clone();
        let keys: Vec<String> = (0..=dice.roll(3)).map(|_| format!("s{seed}-{}", dice.roll(keys_of))).collect();
        let (takes, ends) = (ms(dice.roll(5000)), dice.roll(3));
        let (scene, clock) = (scene.clone(), world.clock.clone());
        let (batch, finish) = (dice.roll(4) < batches, worker.store.name() == "w2");
        let task = tokio::spawn(async move {
            if batch {
                let items = keys.iter().map(|key| (Call::new(id(key)), key.clone())).collect();
                let handler = PlainHandler::batch({
                    let scene = scene.clone();
                    move |items: Vec<BatchItem<String>>| async move {
                        let _inside: Vec<_> = items
                            .iter()
                            .map(|given| Inside::new(&scene, &given.item, given.lease.clone(), "batch"))
                            .collect();
                        clock.sleep_until(clock.now() + takes / 4).await;
                        items.iter().map(|_| if ends == 0 { Err(AppError::NoStock) } else { Ok(1u32) }).collect()
                    }
                });
                let answers = worker.executor.run_batch(items, handler).await;
                for (key, answer) in keys.iter().zip(answers) {
                    note(&scene, key, &answer.outcome, answer.output.is_ok());
                }
            } else {
                let key = keys[0].clone();
                let handler = PlainHandler::new({
                    let (scene, key) = (scene.clone(), key.clone());
                    move || async move {
                        let _inside = Inside::new(&scene, &key, Lease::current().unwrap(), "run");
                        clock.sleep_until(clock.now() + takes).await;
                        assert!(ends != 1 || finish, "as told");
                        if ends == 0 { Err(AppError::NoStock) } else { Ok(1u32) }
                    }
                });
                let (answer, outcome) = Outcome::capture(worker.executor.run(Call::new(id(&key)), handler)).await;
                note(&scene, &key, &outcome.unwrap(), answer.is_ok());
            }
        });
        world.clock.advance(ms(dice.roll(400))).await;
        if dice.roll(5) == 0 {
            task.abort();
        }
        tasks.push((n, task));
    }
    world.clock.advance(secs(120)).await;
    let mut wrong = Vec::new();
    for (n, task) in tasks {
        if !task.is_finished() {
            wrong.push(format!("call {n} hangs"));
        }
    }
    for worker in &workers {
        let counts = worker.executor.counts();
        if counts.ended() != counts.deliveries() {
            wrong.push(format!("{} of {} ended", counts.ended(), counts.deliveries()));
        }
        let drain = worker.drain(secs(1));
        world.clock.advance(secs(2)).await;
        if !drain.is_finished() {
            wrong.push("a drain with nothing to drain hangs".into());
        }
    }
    let keys: Vec<String> = scene.lock().unwrap().done.keys().cloned().collect();
    for key in keys {
        let kind = world.record(&key).await.map(|record| record.state.kind());
        if kind != Some(StateKind::Consumed) {
            wrong.push(format!("{key} was acked and is {kind:?}"));
        }
    }
    let mut scene = scene.lock().unwrap();
    wrong.append(&mut scene.wrong);
    (scene.started, wrong)
}

fn note(scene: &Shared, key: &str, outcome: &Outcome, ok: bool) {
    let mut at = scene.lock().unwrap();
    if outcome.disposition() == Disposition::Ack {
        if !ok {
            at.wrong.push(format!("{key}: {outcome:?} beside an error"));
        }
        *at.done.entry(key.to_owned()).or_default() += 1;
    }
}

async fn all(world: World, seeds: u64, setting: Setting) {
    let (mut started, mut wrong) = (0, Vec::new());
    for seed in 0..seeds {
        let (more, found) = round(&world, seed, setting).await;
        started += more;
        wrong.extend(found.into_iter().map(|what| format!("seed {seed}: {what}")));
        world.store.heal();
    }
    assert!(started > 20, "vacuous");
    let show: Vec<_> = wrong.iter().take(12).collect();
    assert!(wrong.is_empty(), "{setting:?}: {} in {seeds} seeds, {started} runs: {show:#?}", wrong.len());
}

const BATCHES: Setting = Setting { hang: 0.0, batches: 1, keys: 5, stragglers: false };
const SINGLE_CALLS: Setting = Setting { batches: 0, keys: 15, ..BATCHES };

#[test]
fn runs_that_are_dropped_at_any_await_break_no_invariant_on_memory() {
    let stragglers = Setting { stragglers: true, ..SINGLE_CALLS };
    for (seeds, setting) in
        [(15, BATCHES), (15, Setting { hang: 0.05, ..BATCHES }), (30, SINGLE_CALLS), (30, stragglers)]
    {
        on_memory(|world| all(world, seeds, setting));
    }
}

#[cfg(feature = "stores")]
#[test]
fn runs_that_are_dropped_at_any_await_break_no_invariant_on_sqlite() {
    crate::common::on_sqlite(|world| all(world, 4, BATCHES));
}

//! Workers, a broker, a monkey: one seed's simulation from its start to the last settled delivery.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent::{
    Auto, Call, Clock, Disposition, Drained, Event, Executor, Fingerprint, Handler, Identity, Json, Observer, Outcome,
    Run, Scene, Store,
};
use idempotent_testkit::{FaultStore, SeededEntropy, VirtualClock};
use tokio::task::{AbortHandle, JoinHandle};

use crate::dice::Dice;
use crate::handler::{self, Fail, Job};
use crate::history::{History, Recorder, What};
use crate::plan::Plan;
use crate::process::{ProcessClock, Wire};
use crate::tape::Tape;

/// One incarnation of a worker's process.
#[derive(Clone)]
pub struct Worker {
    pub id: u32,
    pub slot: usize,
    pub executor: Executor,
    pub clock: ProcessClock,
    pub wire: Wire,
    ear: Ear,
}

/// Writes down terminal events.
#[derive(Clone, Debug)]
struct Ear {
    recorder: Recorder,
    worker: u32,
    told: Arc<AtomicU64>,
}

impl Observer for Ear {
    fn on(&self, run: &Run<'_>, event: &Event<'_>) {
        if let Event::Ended { outcome, .. } = event {
            self.told.fetch_add(1, Ordering::SeqCst);
            let (key, fencing, outcome) = (run.key.map(idempotent::Key::hash), run.fencing, (*outcome).clone());
            self.recorder.record(self.worker, What::Ended { key, fencing, outcome });
        }
    }
}

pub struct World {
    pub plan: Plan,
    pub clock: VirtualClock,
    pub recorder: Recorder,
    /// The highest fencing number the resource has seen of each key.
    pub resource: Mutex<BTreeMap<u128, u64>>,
    root: FaultStore,
    slots: Mutex<Vec<Worker>>,
    /// All there ever were.
    born: Mutex<Vec<Worker>>,
    running: Mutex<Vec<(u32, AbortHandle)>>,
    drains: Mutex<Vec<JoinHandle<Drained>>>,
    incarnations: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
struct Delivery {
    id: u64,
    key: u64,
    payload: u64,
    first: Duration,
}

/// How a worker goes.
#[derive(Clone, Copy)]
enum Going {
    Killed,
    KilledWithItsNetwork,
    Drained,
}

pub fn call(scope: &'static str, key: u64, fingerprint: Option<u64>) -> Call {
    let call = Call::new(identity(scope, key));
    match fingerprint {
        Some(payload) => call.fingerprint(Ok(Fingerprint::of_bytes(payload.to_le_bytes()))),
        None => call,
    }
}

fn identity(scope: &'static str, key: u64) -> Identity {
    Identity::new(Scene::Rest, scope, &key)
}

pub fn key_hash(scope: &'static str, key: u64) -> u128 {
    identity(scope, key).key("idempotent").unwrap().hash()
}

impl World {
    fn worker(self: &Arc<Self>, slot: usize) -> Worker {
        let id = self.incarnations.fetch_add(1, Ordering::SeqCst) + 1;
        let mut dice = Dice::fork(self.plan.seed, 1_000 + u64::from(id));
        let skew = i64::try_from(dice.range(0, 120_000_000)).unwrap() - 60_000_000;
        let clock = ProcessClock::new(&self.clock, skew);
        let store = self.root.worker(id.to_string());
        if self.clock.elapsed() < self.plan.calm {
            store.chaos(dice.roll(), self.plan.chaos);
        }
        let wire = Wire::new(store, &clock);
        let ear = Ear { recorder: self.recorder.clone(), worker: id, told: Arc::default() };
        let executor = Executor::builder(wire.clone())
            .clock(Arc::new(clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(dice.roll())))
            .observer(ear.clone())
            .policy(Scene::Rest, self.plan.policies[slot])
            .build()
            .unwrap();
        let worker = Worker { id, slot, executor, clock, wire, ear };
        self.born.lock().unwrap().push(worker.clone());
        worker
    }

    /// Runs one delivery on `worker`; what the broker is to do with it.
    async fn run(
        self: Arc<Self>,
        worker: Worker,
        delivery: Delivery,
        mut dice: Dice,
    ) -> (Disposition, Option<Outcome>, Option<String>) {
        let Delivery { key, payload, .. } = delivery;
        let print = self.plan.fingerprints.then_some(payload);
        let roll = dice.roll();
        let job =
            Job { world: self.clone(), worker: worker.clone(), scope: "orders", key, payload, dice, batched: None };
        let (result, outcome) = if roll % 100 < self.plan.batched {
            // With an item of a key that all batches share, and a copy of itself.
            let shared = Job { scope: "inner", key: 0, payload: 0, dice: Dice::new(roll), ..job.clone() };
            let mut items = vec![(call("orders", key, print), job.clone()), (call("inner", 0, None), shared)];
            if roll.is_multiple_of(2) {
                items.insert(1, (call("orders", key, print), job));
            }
            let handler = Handler::<Auto, Json, _, _>::batch(handler::handle_all).permanent(Fail::is_permanent);
            let first = worker.executor.run_batch(items, handler).await.swap_remove(0);
            (first.output, Some(first.outcome))
        } else {
            let handler = Handler::<Auto, Json, _, _>::new(|| handler::handle(job)).permanent(Fail::is_permanent);
            Outcome::capture(worker.executor.run(call("orders", key, print), handler)).await
        };
        let returned = match &result {
            Ok(_) => Disposition::Ack,
            Err(_) => Disposition::Retry { after: Duration::from_secs(1) },
        };
        let disposition = outcome.as_ref().map_or_else(|| returned.clone(), |outcome| outcome.settle(returned.clone()));
        (disposition, outcome, result.ok())
    }

    /// The broker's side of one delivery: again and again, to any worker, until it is settled.
    async fn deliver(self: Arc<Self>, delivery: Delivery) {
        let mut dice = Dice::fork(self.plan.seed, 100 + delivery.id);
        self.sleep(delivery.first).await;
        loop {
            let worker = dice.pick(&self.slots.lock().unwrap());
            let fork = Dice::new(dice.roll());
            let run = tokio::spawn(self.clone().run(worker.clone(), delivery, fork));
            self.running.lock().unwrap().push((worker.id, run.abort_handle()));
            let (disposition, outcome, value) = match run.await {
                Ok(ended) => ended,
                Err(gone) if gone.is_panic() => {
                    if !handler::is_injected(&gone.into_panic()) {
                        self.recorder.record(worker.id, What::Chaos("AN UNEXPECTED PANIC"));
                    }
                    (Disposition::Retry { after: Duration::from_millis(dice.range(0, 1_000)) }, None, None)
                }
                // Aborted: the broker finds out some time.
                Err(_) => {
                    (Disposition::Retry { after: self.plan.lease.mul_f64(dice.pick(&[0.0, 0.1, 1.0])) }, None, None)
                }
            };
            let (id, key) = (delivery.id, key_hash("orders", delivery.key));
            let again = match &disposition {
                Disposition::Retry { after } => Some(*after),
                _ => None,
            };
            let payload = delivery.payload;
            let what = What::Delivered { delivery: id, key, payload, outcome, disposition, value };
            self.recorder.record(worker.id, what);
            match again {
                Some(after) => self.sleep(after).await,
                None => return,
            }
        }
    }

    async fn sleep(&self, pause: Duration) {
        self.clock.sleep_until(self.clock.now() + pause).await;
    }

    fn go(self: &Arc<Self>, slot: usize, going: Going) {
        let new = self.worker(slot);
        let old = std::mem::replace(&mut self.slots.lock().unwrap()[slot], new);
        match going {
            Going::Drained => {
                self.recorder.record(old.id, What::Chaos("drain"));
                let grace = self.plan.lease / 2;
                let drain = tokio::spawn(async move { old.executor.drain(grace).await });
                self.drains.lock().unwrap().push(drain);
            }
            Going::Killed | Going::KilledWithItsNetwork => {
                self.recorder.record(old.id, What::Chaos("kill"));
                old.wire.kill(matches!(going, Going::KilledWithItsNetwork));
                for (id, task) in &*self.running.lock().unwrap() {
                    if *id == old.id {
                        task.abort();
                    }
                }
            }
        }
    }

    /// Does harm now and then, until it is calm.
    async fn monkey(self: Arc<Self>) {
        let mut dice = Dice::fork(self.plan.seed, 2);
        loop {
            self.sleep(self.plan.monkey.mul_f64(dice.range(1, 200) as f64 / 100.0)).await;
            if self.clock.elapsed() >= self.plan.calm {
                return;
            }
            let worker = dice.pick(&self.slots.lock().unwrap());
            match dice.range(0, 11) {
                0 | 1 => self.go(worker.slot, Going::Killed),
                2 => self.go(worker.slot, Going::KilledWithItsNetwork),
                3 if self.plan.drains => self.go(worker.slot, Going::Drained),
                3 => {}
                4 | 5 => {
                    let running: Vec<_> = {
                        let mut running = self.running.lock().unwrap();
                        running.retain(|(_, task)| !task.is_finished());
                        running.clone()
                    };
                    if !running.is_empty() {
                        self.recorder.record(0, What::Chaos("drop a run"));
                        dice.pick(&running).1.abort();
                    }
                }
                6..=8 => {
                    self.recorder.record(worker.id, What::Chaos("stop"));
                    worker.clock.stop_for(self.plan.lease.mul_f64(dice.pick(&[0.4, 0.8, 1.05, 2.5])));
                }
                9 => {
                    // Everybody stops: all timers due fire late, in one instant.
                    self.recorder.record(0, What::Chaos("jump"));
                    self.clock.jump(self.plan.lease.mul_f64(dice.pick(&[0.5, 1.1])));
                }
                _ => {
                    self.recorder.record(worker.id, What::Chaos("store down"));
                    worker.wire.store.down();
                    let (world, pause) = (self.clone(), self.plan.lease.mul_f64(dice.pick(&[0.2, 1.0, 2.0])));
                    tokio::spawn(async move {
                        world.sleep(pause).await;
                        worker.wire.store.up();
                    });
                }
            }
        }
    }

    /// From now on nothing goes wrong.
    async fn calm_down(self: Arc<Self>) {
        self.sleep(self.plan.calm).await;
        self.recorder.record(0, What::Chaos("calm"));
        for worker in &*self.born.lock().unwrap() {
            worker.wire.store.heal();
        }
    }
}

fn deliveries(plan: &Plan) -> Vec<Delivery> {
    let mut dice = Dice::fork(plan.seed, 3);
    let spread = u64::try_from(plan.calm.as_micros()).unwrap();
    let mut first = Duration::ZERO;
    (0..plan.deliveries)
        .map(|id| {
            if dice.percent(60) {
                first = Duration::from_micros(dice.range(0, spread));
            }
            let key = dice.range(0, plan.keys - 1);
            let payload = key * 10 + u64::from(dice.percent(15));
            Delivery { id, key, payload, first }
        })
        .collect()
}

/// The whole history of one seed on `store`.
pub async fn simulate(plan: Plan, clock: VirtualClock, store: Arc<dyn Store>) -> History {
    let recorder = Recorder::new(&clock);
    let root = FaultStore::new(Tape::new(store, &recorder, &clock), &clock);
    let world = Arc::new(World {
        plan,
        clock: clock.clone(),
        recorder,
        resource: Mutex::default(),
        root,
        slots: Mutex::default(),
        born: Mutex::default(),
        running: Mutex::default(),
        drains: Mutex::default(),
        incarnations: AtomicU32::new(0),
    });
    for slot in 0..world.plan.policies.len() {
        let worker = world.worker(slot);
        world.slots.lock().unwrap().push(worker);
    }
    tokio::spawn(world.clone().monkey());
    tokio::spawn(world.clone().calm_down());
    let shepherds: Vec<_> = deliveries(&world.plan)
        .into_iter()
        .map(|delivery| (delivery, tokio::spawn(world.clone().deliver(delivery))))
        .collect();
    let open = || shepherds.iter().any(|(_, shepherd)| !shepherd.is_finished());
    while open() && clock.elapsed() < world.plan.end {
        clock.advance(world.plan.lease * 2).await;
    }
    clock.settle().await;
    let open = shepherds.iter().filter(|(_, task)| !task.is_finished()).map(|(delivery, _)| format!("{delivery:?}"));
    let mut unsettled: Vec<_> = open.collect();
    let drains = world.drains.lock().unwrap();
    unsettled.extend(drains.iter().filter(|drain| !drain.is_finished()).map(|_| "a drain".to_owned()));
    drop(drains);
    let born = world.born.lock().unwrap().clone();
    let counts = born.iter().map(|worker| {
        let counts = worker.executor.counts();
        (worker.id, (counts.deliveries(), counts.ended(), worker.ear.told.load(Ordering::SeqCst)))
    });
    let counts = counts.collect();
    let (events, calls) = (world.recorder.events(), world.root.log());
    History { plan: world.plan.clone(), events, calls, unsettled, counts }
}

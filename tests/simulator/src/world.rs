//! The simulation of a plan from its start to the last settled delivery: workers, a broker, and faults.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Call, Clock, DefaultReply, DeliveryContext, Disposition, Drained, Executor, Fingerprint, Handler, Outcome, Scene,
    Store,
};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle};

use super::dice::fork;
use super::events::{Ear, Recorder, Told, What};
use super::handler::{self, Fail, Job, Text};
use super::lookalike::{INNER, ORDERS, hash, identity, real};
use super::network::{Faults, Network};
use super::plan::{Delivery, Harm, Mischief, Plan, Run};
use super::process::{ProcessClock, Wire, lock};
use super::script::Script;
use super::tape::Tape;
use idempotent_testkit::history::{Kind, Line, Token};
use idempotent_testkit::{SeededEntropy, VirtualClock};

/// One incarnation of a worker's process.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) id: u32,
    pub(super) place: usize,
    pub(super) executor: Executor,
    pub(super) clock: ProcessClock,
    pub(super) wire: Wire,
    network: Network,
    ear: Ear,
    /// The permits of handlers, if they are limited.
    turns: Option<Arc<Semaphore>>,
    /// The number of handlers that run in a turn.
    pub(super) in_turn: Arc<AtomicU64>,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) recorder: Recorder,
    /// The highest fencing token that the resource has seen for each key.
    pub(super) resource: Mutex<BTreeMap<u128, u64>>,
    /// The owner tokens of the stored effects.
    pub(super) done: Mutex<BTreeMap<String, Vec<Token>>>,
    /// Owner tokens of clients other than the executor.
    pub(super) scripted: Mutex<BTreeSet<u128>>,
    clock: VirtualClock,
    tape: Tape,
    faults: Vec<Arc<Faults>>,
    places: Mutex<Vec<Worker>>,
    /// All workers that ever existed.
    born: Mutex<Vec<Worker>>,
    running: Mutex<Vec<(u32, usize, AbortHandle)>>,
    drains: Mutex<Vec<JoinHandle<Drained>>>,
    incarnations: AtomicU32,
}

pub(super) fn call(scope: &'static str, key: u64, fingerprint: Option<u64>) -> Call {
    let call = Call::new(identity(scope, key));
    match fingerprint {
        Some(payload) => call.fingerprint(Ok(Fingerprint::of_bytes(payload.to_le_bytes()))),
        None => call,
    }
}

/// Returns the name of a delivery's run.
fn name_of(delivery: usize, nth: usize) -> u64 {
    (delivery * 10_000 + nth) as u64
}

/// The information that the broker gets from a run.
pub(super) struct Settles {
    pub(super) disposition: Disposition,
    pub(super) outcome: Option<Outcome>,
    pub(super) value: Option<String>,
}

impl World {
    fn new(plan: Plan, clock: &VirtualClock, store: Arc<dyn Store>, in_turn: bool) -> Arc<Self> {
        let recorder = Recorder::new(clock);
        let of = |place| plan.faults.iter().filter(move |fault| fault.worker == place).cloned();
        let faults = (0..plan.workers.len()).map(|place| Faults::of(of(place))).collect();
        let tape = Tape::new(store, &recorder, clock, in_turn);
        let world = Arc::new(Self {
            plan,
            recorder,
            resource: Mutex::default(),
            done: Mutex::default(),
            scripted: Mutex::default(),
            clock: clock.clone(),
            tape,
            faults,
            places: Mutex::default(),
            born: Mutex::default(),
            running: Mutex::default(),
            drains: Mutex::default(),
            incarnations: AtomicU32::new(0),
        });
        for place in 0..world.plan.workers.len() {
            let worker = world.worker(place);
            lock(&world.places).extend(worker);
        }
        world
    }

    pub(super) fn is_calm(&self) -> bool {
        self.clock.elapsed() >= self.plan.calm()
    }

    /// Creates a worker, or `None` if the plan's policy is invalid.
    fn worker(self: &Arc<Self>, place: usize) -> Option<Worker> {
        let id = self.incarnations.fetch_add(1, Ordering::SeqCst) + 1;
        let mut dice = fork(self.plan.seed, 1_000 + u64::from(id));
        let skew = i64::try_from(dice.range(0, 120_000_000)).unwrap_or_default() - 60_000_000;
        let clock = ProcessClock::new(&self.clock, skew);
        let network = Network::new(&self.tape, &self.clock, &self.faults[place], id, &self.recorder);
        let wire = Wire::new(network.clone(), &clock).recorded(id, &self.recorder);
        let ear = Ear { recorder: self.recorder.clone(), worker: id, told: Arc::default() };
        let executor = Executor::builder(wire.clone())
            .clock(Arc::new(clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(dice.roll())))
            .observer(ear.clone())
            .claim_interval(Duration::from_millis(self.plan.workers[place].claim_interval_ms))
            .policy(Scene::Rest, self.plan.workers[place].policy())
            .build()
            .ok()?;
        let turns = usize::try_from(self.plan.workers[place].turns).ok().filter(|turns| *turns > 0);
        let turns = turns.map(|turns| Arc::new(Semaphore::new(turns)));
        let worker = Worker { id, place, executor, clock, wire, network, ear, turns, in_turn: Arc::default() };
        lock(&self.born).push(worker.clone());
        Some(worker)
    }

    fn at(&self, place: usize) -> Option<Worker> {
        let places = lock(&self.places);
        places.get(place % places.len().max(1)).cloned()
    }

    /// Runs one delivery on `worker`, and returns its settlement.
    async fn run(
        self: Arc<Self>,
        worker: Worker,
        name: u64,
        Delivery { key, payload, bare, .. }: Delivery,
        run: Run,
    ) -> Settles {
        if !run.script.is_empty() {
            return Script { world: self, worker, name, key, payload, bare, steps: run.script }.run().await;
        }
        let print = (self.plan.fingerprints && !bare).then_some(payload);
        let (batch, executor, turns) = (run.batch, worker.executor.clone(), worker.turns.clone());
        let job = Job { world: self.clone(), worker: worker.clone(), scope: ORDERS, key, payload, run, batched: None };
        let (result, outcome) = if batch > 0 {
            // With an item whose key all batches share, and a copy of itself.
            let mut items = vec![(call(ORDERS, key, print), job.clone()), (call(INNER, 0, None), job.inner())];
            if batch > 1 {
                items.insert(1, (call(ORDERS, key, print), job));
            }
            let handler = Handler::<DefaultReply, Text, _, _>::batch(handler::handle_all).permanent(Fail::is_permanent);
            let first = executor.run_batch(items, handler).await.swap_remove(0);
            (first.output, Some(first.outcome))
        } else {
            let handler =
                Handler::<DefaultReply, Text, _, _>::new(|| handler::handle(job)).permanent(Fail::is_permanent);
            let running = executor.run(call(ORDERS, key, print), handler);
            match turns {
                Some(turns) => {
                    if turns.available_permits() == 0 {
                        self.recorder.record(worker.id, What::Chaos("a turn to wait for"));
                    }
                    let delivery = DeliveryContext::new().turns(turns);
                    Outcome::capture(executor.scope_of_delivery(delivery, running)).await
                }
                None => Outcome::capture(running).await,
            }
        };
        let returned = match &result {
            Ok(_) => Disposition::Ack,
            Err(_) => Disposition::Retry { after: Duration::from_secs(1) },
        };
        let disposition = outcome.as_ref().map_or_else(|| returned.clone(), |outcome| outcome.settle(returned.clone()));
        Settles { disposition, outcome, value: result.ok() }
    }

    /// Delivers a message to any worker until it is settled.
    async fn deliver(self: Arc<Self>, id: usize, delivery: Delivery) {
        self.sleep(Duration::from_micros(delivery.at_us)).await;
        let (key, name) = (hash(ORDERS, delivery.key), real(ORDERS, delivery.key));
        self.recorder.tell(0, Kind::Produced, &name);
        for nth in 0.. {
            let smooth = || Run { worker: id + nth, ..Run::default() };
            let run = delivery.runs.get(nth).cloned().unwrap_or_else(smooth);
            let Some(worker) = self.at(run.worker) else { return };
            let again_us = Duration::from_micros(run.again_us);
            let task = tokio::spawn(self.clone().run(worker.clone(), name_of(id, nth), delivery.clone(), run));
            lock(&self.running).push((worker.id, id, task.abort_handle()));
            let retry = |after| Settles { disposition: Disposition::Retry { after }, outcome: None, value: None };
            let told = match task.await {
                Ok(told) => Some(told),
                Err(gone) if gone.is_panic() => {
                    if !handler::is_injected(&gone.into_panic()) {
                        self.recorder.record(worker.id, What::Chaos("AN UNEXPECTED PANIC"));
                    }
                    Some(retry(Duration::from_millis(500)))
                }
                // Dropped. The broker notices it some time later.
                Err(_) => None,
            };
            if let Some(told) = &told {
                self.tell_broker(&worker, told, &name);
            }
            let told = told.unwrap_or_else(|| retry(again_us * 100));
            let again = match &told.disposition {
                Disposition::Retry { after } => Some(*after),
                _ => None,
            };
            let Settles { disposition, outcome, value } = told;
            let (delivery, payload) = (id as u64, delivery.payload);
            let what = What::Delivered { delivery, key, payload, outcome, disposition, value };
            self.recorder.record(worker.id, what);
            match again {
                Some(after) => self.sleep(after.saturating_sub(again_us)).await,
                None => return,
            }
        }
    }

    fn tell_broker(&self, worker: &Worker, told: &Settles, name: &idempotent_core::Key) {
        match told.disposition {
            Disposition::Ack => self.recorder.tell(worker.id, Kind::Ack, name),
            Disposition::DeadLetter { .. } => {
                self.recorder.tell(worker.id, Kind::DeadLettered, name);
                self.recorder.tell(worker.id, Kind::Ack, name);
            }
            _ => self.recorder.tell(worker.id, Kind::Nack, name),
        }
    }

    async fn sleep(&self, pause: Duration) {
        self.clock.sleep_until(self.clock.now() + pause).await;
    }

    /// Starts another worker in the slot.
    fn replace(self: &Arc<Self>, place: usize) -> Option<Worker> {
        let new = self.worker(place)?;
        Some(std::mem::replace(lock(&self.places).get_mut(place)?, new))
    }

    fn kill(self: &Arc<Self>, place: usize, network: bool) {
        let Some(old) = self.replace(place) else { return };
        self.happens(old.id, "kill", Some(Kind::Crash));
        old.wire.kill();
        if network {
            old.network.cut();
        }
        for (id, _, task) in &*lock(&self.running) {
            if *id == old.id {
                task.abort();
            }
        }
    }

    fn happens(&self, worker: u32, what: &'static str, event: Option<Kind>) {
        self.recorder.record(worker, What::Chaos(what));
        if let Some(event) = event {
            self.recorder.line(worker, |line| Some(Line { event, ..line }));
        }
    }

    async fn misbehave(self: Arc<Self>, mischief: Mischief) {
        self.sleep(Duration::from_micros(mischief.at_us)).await;
        if !self.is_calm() {
            self.harm(mischief.what).await;
        }
    }

    async fn harm(self: &Arc<Self>, harm: Harm) {
        let us = Duration::from_micros;
        match harm {
            Harm::Kill { worker, network } => self.kill(worker, network),
            Harm::Drain { worker, grace_us } => {
                let Some(old) = self.replace(worker) else { return };
                self.happens(old.id, "drain", None);
                let drain = tokio::spawn(async move { old.executor.drain(us(grace_us)).await });
                lock(&self.drains).push(drain);
            }
            Harm::Drop { delivery } => {
                let running = lock(&self.running);
                let last = running.iter().rev().find(|(_, id, _)| *id == delivery);
                if let Some((worker, _, task)) = last.filter(|(.., task)| !task.is_finished()) {
                    self.happens(*worker, "drop a run", None);
                    task.abort();
                }
            }
            Harm::Pause { worker, us: micros } => {
                let Some(worker) = self.at(worker) else { return };
                self.happens(worker.id, "stop", Some(Kind::Paused));
                worker.clock.stop_for(us(micros));
                worker.clock.running().await;
                self.happens(worker.id, "go on", Some(Kind::Resumed));
            }
            Harm::Freeze { us: micros } => {
                self.happens(0, "jump", None);
                self.clock.jump(us(micros));
            }
            Harm::StoreDown { worker, us: micros } => {
                let Some(worker) = self.at(worker) else { return };
                self.happens(worker.id, "store down", None);
                self.faults[worker.place].down_until(self.clock.now() + us(micros));
            }
            Harm::StoreClock { us: micros } => {
                self.happens(0, "store clock", None);
                self.clock.set_wall_offset(self.clock.wall_offset().saturating_add_unsigned(micros));
            }
            Harm::WorkerClock { worker, wrong_by_us } => {
                let Some(worker) = self.at(worker) else { return };
                self.happens(worker.id, "worker clock", None);
                worker.clock.set_wall(wrong_by_us);
            }
            Harm::Purge { most } => self.tape.purge(most).await,
            Harm::Forget { key, after_us } => self.forget(key, us(after_us)).await,
        }
    }

    /// Forgets a record as an operator who has read it some time before, so that the record may have changed.
    async fn forget(&self, key: u64, after: Duration) {
        let name = real(ORDERS, key);
        let Some(seen) = self.tape.look(&name).await else { return };
        self.sleep(after).await;
        let t0 = self.recorder.now();
        if !self.is_calm() && self.tape.forget(&name, seen.fencing, self.plan.lease() * 10_000).await {
            let (event, fence) = (Kind::Forget, Some(seen.fencing.0));
            let key = Some(name.as_str().to_owned());
            self.recorder.line(0, |line| Some(Line { t0, event, key, fence, ..line }));
        }
    }

    /// Ends all faults.
    async fn calm_down(self: Arc<Self>) {
        self.sleep(self.plan.calm()).await;
        self.happens(0, "calm", None);
        self.faults.iter().for_each(|faults| faults.heal());
    }

    fn told(&self, shepherds: &[(usize, JoinHandle<()>)]) -> Told {
        let open = shepherds.iter().filter(|(_, task)| !task.is_finished());
        let mut unsettled: Vec<_> =
            open.map(|(id, _)| format!("delivery {id}: {:?}", self.plan.deliveries.get(*id))).collect();
        let drains = lock(&self.drains);
        unsettled.extend(drains.iter().filter(|drain| !drain.is_finished()).map(|_| "a drain".to_owned()));
        drop(drains);
        for worker in &*lock(&self.born) {
            worker.wire.forget_what_is_under_way();
        }
        for (key, tokens) in &*lock(&self.done) {
            let (key, tokens) = (Some(key.clone()), Some(tokens.clone()));
            self.recorder.line(0, |line| Some(Line { event: Kind::EffectTruth, key, tokens, ..line }));
        }
        let born = lock(&self.born);
        let counts = born.iter().map(|worker| {
            let counts = worker.executor.counts();
            (worker.id, (counts.deliveries(), counts.ended(), worker.ear.told.load(Ordering::SeqCst)))
        });
        let scripted = lock(&self.scripted).clone();
        Told { plan: self.plan.clone(), events: self.recorder.events(), unsettled, counts: counts.collect(), scripted }
    }
}

/// Plays a plan, and returns the events, and the lines of the history in the order in which they were written.
pub(super) async fn play(plan: Plan, clock: &VirtualClock, store: Arc<dyn Store>, in_turn: bool) -> (Told, Vec<Line>) {
    let world = World::new(plan, clock, store, in_turn);
    for mischief in world.plan.mischief.clone() {
        tokio::spawn(world.clone().misbehave(mischief));
    }
    tokio::spawn(world.clone().calm_down());
    let deliveries = world.plan.deliveries.clone().into_iter().enumerate();
    let shepherds: Vec<_> =
        deliveries.map(|(id, delivery)| (id, tokio::spawn(world.clone().deliver(id, delivery)))).collect();
    let open = || shepherds.iter().any(|(_, shepherd)| !shepherd.is_finished());
    let mut timers = TIMERS;
    while open() && clock.elapsed() < world.plan.end() && timers > 0 {
        clock.advance_by_timers(world.plan.lease() * 2, &mut timers).await;
    }
    clock.settle().await;
    let told = world.told(&shepherds);
    let lines = world.recorder.lines();
    (told, lines)
}

/// The limit of timers. A simulation that exceeds it is stuck; only a long run with many waiters comes near.
const TIMERS: u64 = 8_000;

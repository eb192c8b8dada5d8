//! The network between a worker and the store: loses, delays, duplicates and refuses calls according to the plan.
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Key, Record, Release, Settled, StoreCapabilities, StoreError,
    StoreErrorKind, Watch, Watching,
};

use super::events::{Recorder, What};
use super::plan::{CallFault, Loss};
use super::process::lock;
use super::tape::Tape;
use idempotent_testkit::__private::{Answers, Ask, Carries, all, all_ambiguous, ask, store_that_carries};
use idempotent_testkit::VirtualClock;

/// The faults of one worker slot, over all its incarnations.
#[derive(Debug)]
pub(super) struct Faults {
    by_call: BTreeMap<u64, CallFault>,
    calls: AtomicU64,
    healed: AtomicBool,
    down_until: Mutex<Option<Instant>>,
}

impl Faults {
    pub(super) fn of(faults: impl Iterator<Item = CallFault>) -> Arc<Self> {
        let by_call = faults.map(|fault| (fault.nth, fault)).collect();
        Arc::new(Self {
            by_call,
            calls: AtomicU64::new(0),
            healed: AtomicBool::new(false),
            down_until: Mutex::default(),
        })
    }

    pub(super) fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
        *lock(&self.down_until) = None;
    }

    pub(super) fn down_until(&self, until: Instant) {
        if !self.healed.load(Ordering::SeqCst) {
            *lock(&self.down_until) = Some(until);
        }
    }

    fn next(&self, now: Instant) -> CallFault {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.healed.load(Ordering::SeqCst) {
            return CallFault::default();
        }
        if lock(&self.down_until).is_some_and(|until| now < until) {
            return CallFault { loss: Some(Loss::Refused), ..CallFault::default() };
        }
        self.by_call.get(&nth).cloned().unwrap_or_default()
    }
}

/// The connection of one incarnation.
#[derive(Clone, Debug)]
pub(super) struct Network {
    inner: Tape,
    clock: VirtualClock,
    faults: Arc<Faults>,
    cut: Arc<AtomicBool>,
    incarnation: u32,
    recorder: Recorder,
}

impl Network {
    pub(super) fn new(tape: &Tape, clock: &VirtualClock, faults: &Arc<Faults>, of: u32, recorder: &Recorder) -> Self {
        let (inner, faults, recorder) = (tape.clone(), faults.clone(), recorder.clone());
        Self { inner, clock: clock.clone(), faults, cut: Arc::default(), incarnation: of, recorder }
    }

    /// Cuts the connection: a request that has not reached the store never will.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    async fn pass(&self, micros: u64) {
        if micros > 0 {
            self.clock.sleep_until(self.clock.now() + Duration::from_micros(micros)).await;
        }
        if self.cut.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }

    fn note(&self, fault: &CallFault, asks: &[Ask]) {
        let lost = fault.loss.map(|loss| match loss {
            Loss::Refused => "refused",
            Loss::Request => "lost request",
            Loss::Reply => "lost reply",
            Loss::Silence => "silence",
        });
        let others = [(fault.delay_us > 0).then_some("late"), fault.copy_after_us.map(|_| "copy")];
        for fault in lost.into_iter().chain(others.into_iter().flatten()) {
            let verb = asks.first().map_or("", Ask::verb);
            self.recorder.record(self.incarnation, What::Fault { fault, verb });
        }
    }

    /// Sends the same requests once more, later. The answers are ignored.
    fn double(&self, asks: &[Ask], together: bool, after: u64) {
        for ask in asks {
            let unknown = all_ambiguous(std::slice::from_ref(ask), "a copy");
            self.recorder.line(self.incarnation, |line| ask.line(line, &unknown[0]));
        }
        let (network, asks) = (self.clone(), asks.to_vec());
        tokio::spawn(async move {
            network.pass(after).await;
            ask(&network.inner, &asks, together).await
        });
    }
}

impl Carries for Network {
    async fn carry(&self, asks: Vec<Ask>, together: bool) -> Answers {
        let fault = self.faults.next(self.clock.now());
        self.note(&fault, &asks);
        if let Some(after) = fault.copy_after_us {
            self.double(&asks, together, after);
        }
        self.pass(fault.delay_us).await;
        match fault.loss {
            Some(Loss::Refused) => return all(&asks, StoreErrorKind::NotApplied, "injected: refused"),
            Some(Loss::Request) => return all_ambiguous(&asks, "injected: request lost"),
            _ => {}
        }
        let answers = ask(&self.inner, &asks, together).await;
        self.pass(fault.reply_delay_us).await;
        match fault.loss {
            Some(Loss::Reply) => all_ambiguous(&asks, "injected: reply lost"),
            Some(Loss::Silence) => pending().await,
            _ => answers,
        }
    }
}
store_that_carries!(Network);

impl Watch for Network {
    fn watch(&self, key: &Key) -> Watching {
        self.inner.watch(key)
    }
}

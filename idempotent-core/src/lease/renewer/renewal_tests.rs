//! Tests of the driver and of the calls of the store, with a store that answers by a script.
use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::task::yield_now;

use super::driver::Driver;
use super::*;
use crate::lease::tests::{HEARTBEAT, lease};
use crate::store::Batch;
use crate::{
    Claim, ClaimHandle, ClaimRequest, Completion, Key, Observer, Record, Release, Renewal, Settled, StoreCapabilities,
    StoreError, StoreErrorKind, SystemClock,
};

/// An answer of the store. Without one, the store confirms the renewal.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Fails(StoreErrorKind),
    Never,
}

#[derive(Clone, Debug, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// The number of leases of each call, and the time of the call.
    calls: Arc<Mutex<Vec<(usize, Instant)>>>,
    /// The dropped calls without an answer.
    dropped: Arc<Mutex<usize>>,
    batched: bool,
    dedicated: Option<Arc<Scripted>>,
}

/// A call that waits for ever, and counts its end.
struct Unanswered(Arc<Mutex<usize>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Scripted {
    fn will(self, answers: &[Answer]) -> Self {
        self.answers.lock().unwrap().extend(answers);
        self
    }

    fn calls(&self) -> Vec<usize> {
        self.calls.lock().unwrap().iter().map(|call| call.0).collect()
    }

    async fn answer(&self, leases: usize) -> Result<Settled, StoreError> {
        self.calls.lock().unwrap().push((leases, SystemClock::new().now()));
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            None => Ok(Settled::Done),
            Some(Answer::Fails(kind)) => Err(StoreError::new(kind)),
            Some(Answer::Never) => {
                let _unanswered = Unanswered(self.dropped.clone());
                std::future::pending().await
            }
        }
    }
}

#[async_trait]
impl Store for Scripted {
    async fn claim(&self, _: &ClaimRequest) -> Result<Claim, StoreError> {
        unreachable!("only renewals")
    }

    async fn renew(&self, _: &ClaimHandle, _: Duration) -> Result<Settled, StoreError> {
        self.answer(1).await
    }

    async fn complete(&self, _: &ClaimHandle, _: &Completion) -> Result<Settled, StoreError> {
        unreachable!("only renewals")
    }

    async fn release(&self, _: &ClaimHandle, _: &Release) -> Result<Settled, StoreError> {
        unreachable!("only renewals")
    }

    async fn peek(&self, _: &Key) -> Result<Option<Record>, StoreError> {
        unreachable!("only renewals")
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        let capabilities = StoreCapabilities::none();
        let capabilities = if self.batched { capabilities.with_batch(self) } else { capabilities };
        if self.dedicated.is_some() { capabilities.with_renewal(self) } else { capabilities }
    }
}

#[async_trait]
impl Batch for Scripted {
    async fn claim_all(&self, _: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        unreachable!("only renewals")
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let answer = self.answer(held.len()).await;
        held.iter().map(|_| answer.as_ref().copied().map_err(|error| StoreError::new(error.kind()))).collect()
    }

    async fn complete_all(&self, _: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        unreachable!("only renewals")
    }
}

#[async_trait]
impl Renewal for Scripted {
    async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(self.dedicated.clone().unwrap())
    }
}

/// An observer that records renewals, and whether each has failed.
#[derive(Debug, Default)]
struct Renewals(Mutex<Vec<Option<StoreErrorKind>>>);

impl Observer for Renewals {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreAnswered { error, .. } = event {
            self.0.lock().unwrap().push(error.map(StoreError::kind));
        }
    }

    fn wants_timing(&self) -> bool {
        true
    }
}

fn renewer(store: &Scripted) -> (Arc<LeaseRenewer>, Arc<Renewals>) {
    let renewals = Arc::new(Renewals::default());
    let observer = GuardedObserver::new(renewals.clone());
    (LeaseRenewer::new(Arc::new(store.clone()), Arc::new(SystemClock::new()), observer), renewals)
}

fn two_leases(now: Instant) -> Vec<Lease> {
    vec![lease(now, |_| {}), lease(now, |_| {})]
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_in_one_call_of_a_store_with_batches_and_one_by_one_without() {
    for (batched, calls) in [(true, vec![2]), (false, vec![1, 1])] {
        let store = Scripted { batched, ..Scripted::default() };
        let (renewer, renewals) = renewer(&store);
        let leases = two_leases(renewer.clock.now());
        assert!(renewer.renew_in(&store, &leases).await, "all are answered");
        assert_eq!((store.calls(), renewals.0.lock().unwrap().len()), (calls.clone(), calls.len()));
        let failing = store.will(&[Answer::Fails(StoreErrorKind::NotApplied)]);
        assert!(!renewer.renew_in(&failing, &leases).await, "another store may renew");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final_and_a_call_without_an_answer_is_reported_as_ambiguous() {
    let store = Scripted::default().will(&[Answer::Fails(StoreErrorKind::Foreign), Answer::Never]);
    let (renewer, renewals) = renewer(&store);
    let leases = [lease(renewer.clock.now(), |_| {})];
    assert!(renewer.renew_in(&store, &leases).await, "no other store has another answer");
    assert!(!renewer.renew_in(&store, &leases).await);
    assert_eq!(leases[0].guard(), renewer.clock.now(), "the call was given up at the end of the lease");
    let reported = [Some(StoreErrorKind::Foreign), Some(StoreErrorKind::Ambiguous)];
    assert_eq!(*renewals.0.lock().unwrap(), reported);
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_store_renews_after_half_a_heartbeat_or_at_once_after_a_failure() {
    for (first, after) in [(Answer::Never, HEARTBEAT / 2), (Answer::Fails(StoreErrorKind::NotApplied), Duration::ZERO)]
    {
        let dedicated = Arc::new(Scripted::default());
        let store = Scripted { dedicated: Some(dedicated.clone()), ..Scripted::default() }.will(&[first]);
        let (renewer, _) = renewer(&store);
        let start = renewer.clock.now();
        renewer.renew(vec![lease(start, |_| {})], true).await;
        assert_eq!(dedicated.calls.lock().unwrap()[..], [(1, start + after)], "{first:?}");
        assert!(renewer.dedicated_store.lock().await.is_some(), "it stays open");
        renewer.renew(vec![lease(start, |_| {})], false).await;
        assert_eq!((store.calls().len(), dedicated.calls().len()), (2, 1), "only the renewal thread uses it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_store_that_fails_is_closed_and_the_first_store_may_still_answer() {
    let unapplied = Answer::Fails(StoreErrorKind::NotApplied);
    let dedicated = Arc::new(Scripted::default().will(&[unapplied]));
    let store = Scripted { dedicated: Some(dedicated.clone()), ..Scripted::default() }.will(&[unapplied]);
    let (renewer, _) = renewer(&store);
    renewer.renew(vec![lease(renewer.clock.now(), |_| {})], true).await;
    assert_eq!((dedicated.calls().len(), renewer.dedicated_store.lock().await.is_some()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_driver_retires_without_leases_and_leaves_the_driver_that_replaced_it() {
    let (renewer, _) = renewer(&Scripted::default());
    let driver = |id| Driver { renewer: renewer.clone(), id, on_renewal_thread: false };
    let set = |current| {
        let mut table = renewer.table();
        (table.driver, table.next_due) = (Some(current), Some(renewer.clock.now()));
    };
    set(1);
    let first = driver(1);
    assert!(first.retire());
    assert_eq!(renewer.table().driver, None);
    set(2);
    assert!(first.retire());
    drop(first);
    assert!(renewer.table().driver == Some(2) && renewer.table().next_due.is_some(), "another driver");
    drop(driver(2));
    assert!(renewer.table().driver.is_none() && renewer.table().next_due.is_none(), "none drives any more");
    set(3);
    let (third, held) = (driver(3), lease(renewer.clock.now(), |_| {}));
    let guard = renewer.add(&held, renewer.clock.now());
    assert!(!third.retire(), "a lease is left");
    assert_eq!(renewer.table().driver, Some(3));
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_leases_waits_for_the_renewals_in_progress() {
    let store = Scripted::default().will(&[Answer::Never]);
    let (renewer, _) = renewer(&store);
    let start = renewer.clock.now();
    let guard = renewer.add(&lease(start, |_| {}), start);
    tokio::time::sleep(HEARTBEAT).await;
    while store.calls().is_empty() {
        yield_now().await;
    }
    drop(guard);
    renewer.wake_driver.notify_one();
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!(*store.dropped.lock().unwrap(), 0, "a cut call may cost its connection");
    renewer.close();
    while *store.dropped.lock().unwrap() == 0 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_driver_on_the_renewal_thread_is_helped_out_and_another_one_is_replaced() {
    for (on_renewal_thread, driver) in [(true, None), (false, Some(2))] {
        let store = Scripted::default();
        let (renewer, _) = renewer(&store);
        let start = renewer.clock.now();
        let _guard = renewer.add(&lease(start, |_| {}), start);
        renewer.table().on_renewal_thread = on_renewal_thread;
        renewer.table().entries.iter_mut().flatten().for_each(|entry| entry.due = start);
        renewer.start_driver();
        while store.calls().is_empty() || renewer.table().driver == Some(1) {
            yield_now().await;
        }
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!((store.calls(), renewer.table().driver), (vec![1], driver));
    }
}

#[tokio::test]
async fn the_renewal_thread_drives_again_after_it_was_helped_out() {
    // The renewal thread only exists in real time.
    let store = Scripted { dedicated: Some(Arc::default()), ..Scripted::default() };
    let (renewer, _) = renewer(&store);
    let start = renewer.clock.now();
    let _guard = renewer.add(&lease(start, |_| {}), start);
    assert!(renewer.table().driver == Some(1) && renewer.table().on_renewal_thread);
    renewer.start_driver();
    assert!(renewer.table().driver == Some(2) && !renewer.table().on_renewal_thread);
    while renewer.table().driver == Some(2) {
        yield_now().await;
    }
    assert!(renewer.table().driver == Some(3) && renewer.table().on_renewal_thread);
}

#[tokio::test(start_paused = true)]
async fn a_retry_wakes_the_driver_only_if_it_is_due_sooner() {
    let (renewer, _) = renewer(&Scripted::default());
    let start = renewer.clock.now();
    let held = lease(start, |_| {});
    let _guard = renewer.add(&held, start);
    let due = |renewer: &LeaseRenewer| renewer.table().entries[0].as_ref().unwrap().due;
    let is_woken = |renewer: &LeaseRenewer| renewer.wake_driver.notified().now_or_never().is_some();
    let retry = |next: Option<Instant>| {
        renewer.table().entries.iter_mut().flatten().for_each(|entry| entry.due = held.guard());
        renewer.table().next_due = next;
        renewer.schedule_retry(&held);
    };
    is_woken(&renewer);
    let half = (held.guard() - start) / 2;
    for (next, woken) in [(start + half, false), (start + half + Duration::from_nanos(1), true)] {
        retry(Some(next));
        assert_eq!((due(&renewer), is_woken(&renewer)), (start + half, woken));
    }
}

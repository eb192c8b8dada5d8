//! Renewal calls to the stores, and the meaning of their answers.
use std::pin::pin;
use std::time::Instant;

use futures_util::future::{Either, select};

use super::LeaseRenewer;
use crate::clock::before;
use crate::{Event, Lease, Renewal, Settled, Store, StoreError, StoreErrorKind};

impl LeaseRenewer {
    /// Renews leases in the executor's store.
    ///
    /// A driver on the renewal thread also uses a dedicated store, if the first one fails or takes longer than half a
    /// heartbeat: the connections of the first one may belong to a blocked runtime.
    pub(super) async fn renew(&self, leases: Vec<Lease>, on_renewal_thread: bool) {
        let renewal = self.store.capabilities().renewal.filter(|_| on_renewal_thread);
        let mut shared = pin!(self.renew_in(&*self.store, &leases));
        let Some(renewal) = renewal else {
            shared.await;
            return;
        };
        let soon = leases.iter().map(|lease| lease.timing().heartbeat).min().unwrap_or_default() / 2;
        let answered = before(&*self.clock, self.clock.now() + soon, &mut shared).await;
        if answered == Some(true) {
            return;
        }
        let own = pin!(self.renew_in_dedicated_store(renewal, &leases));
        if answered == Some(false) {
            own.await;
            return;
        }
        // Waits for the first answer, and for the second one if the first call failed.
        match select(shared, own).await {
            Either::Left((false, own)) => {
                own.await;
            }
            Either::Right((false, shared)) => {
                shared.await;
            }
            Either::Left((true, _)) | Either::Right((true, _)) => {}
        }
    }

    /// Renews leases in the dedicated store, which stays open as long as it answers. Returns true if it answered.
    async fn renew_in_dedicated_store(&self, renewal: &dyn Renewal, leases: &[Lease]) -> bool {
        let last = leases.iter().map(Lease::guard).max().unwrap_or_else(|| self.clock.now());
        let opened = async {
            let mut store = self.dedicated_store.lock().await;
            if store.is_none() {
                *store = Some(renewal.renewal_store().await?);
            }
            Ok(store.clone())
        };
        match before(&*self.clock, last, opened).await {
            Some(Ok(Some(store))) => {
                let answered = self.renew_in(&*store, leases).await;
                if !answered {
                    *self.dedicated_store.lock().await = None;
                }
                answered
            }
            Some(Err(error)) => {
                leases.iter().for_each(|lease| self.handle_error(lease, &error));
                false
            }
            Some(Ok(None)) | None => false,
        }
    }

    /// Renews leases in a store. Returns true if all of them were renewed, lost or refused, so that no other store
    /// needs to be tried.
    pub(super) async fn renew_in(&self, store: &dyn Store, leases: &[Lease]) -> bool {
        let sent = self.clock.now();
        leases.iter().for_each(Lease::mark_renewal_sent);
        let mut answered = 0;
        match (leases, store.capabilities().batch) {
            ([_, _, ..], Some(batch)) => {
                let held: Vec<_> = leases.iter().map(|lease| (lease.held().clone(), lease.length())).collect();
                let last = leases.iter().map(Lease::guard).max().unwrap_or(sent);
                let answers = before(&*self.clock, last, batch.renew_all(&held)).await;
                let answers = answers.unwrap_or_default();
                if let [first, ..] = leases {
                    self.report_call(first, sent, answers.first());
                }
                for (lease, answer) in leases.iter().zip(answers) {
                    answered += usize::from(self.handle_reply(lease, sent, answer));
                }
            }
            _ => {
                for lease in leases {
                    let sent_now = if self.observer.is_timed { self.clock.now() } else { sent };
                    let answer = store.renew(lease.held(), lease.length());
                    let answer = before(&*self.clock, lease.guard(), answer).await;
                    self.report_call(lease, sent_now, answer.as_ref());
                    if let Some(answer) = answer {
                        answered += usize::from(self.handle_reply(lease, sent, answer));
                    }
                }
            }
        }
        answered == leases.len()
    }

    /// Reports a call of the store for this lease, which has no answer if the lease's guard was reached first.
    fn report_call(&self, lease: &Lease, sent: Instant, answer: Option<&Result<Settled, StoreError>>) {
        if !self.observer.is_timed {
            return;
        }
        let no_answer = || StoreError::new(StoreErrorKind::Ambiguous).because("no answer before the lease expired");
        let missing = answer.is_none().then(no_answer);
        let error = answer.and_then(|answer| answer.as_ref().err()).or(missing.as_ref());
        let elapsed = self.clock.now().saturating_duration_since(sent);
        self.notify(lease, &Event::StoreAnswered { step: "renew", error, elapsed });
    }

    /// Applies a reply. Returns true if the reply is final.
    fn handle_reply(&self, lease: &Lease, sent: Instant, answer: Result<Settled, StoreError>) -> bool {
        match answer {
            Ok(Settled::Done) => lease.extend(sent),
            Ok(Settled::Lost { .. }) => self.report_lost(lease),
            Err(error) => {
                self.handle_error(lease, &error);
                return !matches!(error.kind(), StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous);
            }
        }
        true
    }

    fn handle_error(&self, lease: &Lease, error: &StoreError) {
        self.notify(lease, &Event::StoreFailed { step: "renew", error });
        self.schedule_retry(lease);
    }

    /// Schedules a retry before the guard. If the next heartbeat would come too late, the retry happens after half of
    /// the remaining time.
    pub(super) fn schedule_retry(&self, lease: &Lease) {
        let (now, guard) = (self.clock.now(), lease.guard());
        let half = (guard.saturating_duration_since(now) / 2).max(lease.length() / 10);
        let mut table = self.table();
        let own = table.entries.iter_mut().flatten().find(|entry| entry.lease.is_same(lease));
        if let Some(entry) = own.filter(|entry| entry.due >= guard) {
            entry.due = (now + half).min(guard);
            entry.not_before = entry.due;
            let due = entry.due;
            if table.next_due.is_none_or(|next| due < next) {
                drop(table);
                self.wake_driver.notify_one();
            }
        }
    }
}

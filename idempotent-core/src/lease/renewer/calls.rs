//! Renewal calls to the stores, and the meaning of their answers.
use std::pin::pin;
use std::time::Instant;

use futures_util::future::{Either, select};

use super::LeaseRenewer;
use crate::clock::before;
use crate::{Event, Lease, Renewal, Settled, Store, StoreError, StoreErrorKind};

impl LeaseRenewer {
    /// Asks the executor's store. A driver on the renewal thread also asks one with connections of its own, where the
    /// first fails or takes longer than half a heartbeat: its connections may belong to a runtime that is blocked.
    pub(super) async fn renew(&self, leases: Vec<Lease>, on_renewal_thread: bool) {
        let renewal = self.store.abilities().renewal.filter(|_| on_renewal_thread);
        let mut shared = pin!(self.renew_in(&*self.store, &leases));
        let Some(renewal) = renewal else {
            shared.await;
            return;
        };
        let soon = leases.iter().map(Lease::heartbeat).min().unwrap_or_default() / 2;
        let answered = before(&*self.clock, self.clock.now() + soon, &mut shared).await;
        if answered == Some(true) {
            return;
        }
        let own = pin!(self.renew_in_dedicated_store(renewal, &leases));
        if answered == Some(false) {
            own.await;
            return;
        }
        // The first that is done; and the other one, where that failed.
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

    /// Asks the store with connections of its own, which is kept as long as it answers. Returns whether it did.
    async fn renew_in_dedicated_store(&self, renewal: &dyn Renewal, leases: &[Lease]) -> bool {
        let last = leases.iter().map(Lease::guard).max().unwrap_or_else(|| self.clock.now());
        let opened = async {
            let mut store = self.renewal.lock().await;
            if store.is_none() {
                *store = Some(renewal.renewal_store().await?);
            }
            Ok(store.clone())
        };
        match before(&*self.clock, last, opened).await {
            Some(Ok(Some(store))) => {
                let answered = self.renew_in(&*store, leases).await;
                if !answered {
                    *self.renewal.lock().await = None;
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

    /// Asks a store. Returns whether another one would not know better: each lease was renewed, lost or refused for good.
    async fn renew_in(&self, store: &dyn Store, leases: &[Lease]) -> bool {
        let sent = self.clock.now();
        let mut answered = 0;
        match (leases, store.abilities().batch) {
            ([_, _, ..], Some(batch)) => {
                let held: Vec<_> = leases.iter().map(|lease| (lease.held().clone(), lease.length())).collect();
                let last = leases.iter().map(Lease::guard).max().unwrap_or(sent);
                let answers = before(&*self.clock, last, batch.renew_all(&held)).await;
                for (lease, answer) in leases.iter().zip(answers.unwrap_or_default()) {
                    answered += usize::from(self.handle_reply(lease, sent, answer));
                }
            }
            _ => {
                for lease in leases {
                    let answer = store.renew(lease.held(), lease.length());
                    if let Some(answer) = before(&*self.clock, lease.guard(), answer).await {
                        answered += usize::from(self.handle_reply(lease, sent, answer));
                    }
                }
            }
        }
        answered == leases.len()
    }

    /// Returns whether this is the last word on this renewal.
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

    /// There is another turn before the guard; where the next heartbeat would come too late for that, it is brought
    /// forward to half of what is left.
    fn schedule_retry(&self, lease: &Lease) {
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

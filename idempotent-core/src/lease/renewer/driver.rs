//! The task that drives the renewals.
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::{IDLE_TIMEOUT, LeaseRenewer};
use crate::Lease;

/// The task that drives the renewals. It ends after an idle time, or when another driver has replaced it.
pub(super) struct Driver {
    pub(super) renewer: Arc<LeaseRenewer>,
    pub(super) id: u64,
    /// True if the driver runs on the renewal thread.
    pub(super) on_renewal_thread: bool,
}

/// The maximum number of renewals per store call.
const MAX_BATCH: usize = 256;

impl Driver {
    pub(super) async fn drive(self) {
        let renewer = &*self.renewer;
        let mut renewals: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        while self.is_current() {
            let (due, next) = renewer.take_due(renewer.clock.now(), self.on_renewal_thread);
            renewals.extend(self.calls(&due));
            let next = match next {
                Some(next) => next,
                None if (renewals.is_empty() || renewer.is_closed()) && self.retire() => return,
                None => renewer.clock.now() + IDLE_TIMEOUT,
            };
            let mut rest = renewer.clock.sleep_until(next);
            loop {
                tokio::select! {
                    biased;
                    // An answer does not change the due times, so it needs no new scan.
                    Some(()) = renewals.next(), if !renewals.is_empty() => {}
                    () = &mut rest => break,
                    () = renewer.wake_driver.notified() => break,
                }
            }
        }
    }

    /// Sends the due renewals, and hands over to a new driver on the renewal thread.
    pub(super) async fn rescue(self) {
        let (due, _) = self.renewer.take_due(self.renewer.clock.now(), false);
        join_all(self.calls(&due)).await;
        let mut table = self.renewer.table();
        if let (Some(runtime), true) = (self.renewer.renewal_runtime(), table.driver == Some(self.id)) {
            let next = self.renewer.register_driver(&mut table, true);
            drop(table);
            runtime.spawn(next.drive());
        }
    }

    /// Returns the calls of the store that renew these leases.
    fn calls(&self, due: &[Lease]) -> Vec<BoxFuture<'_, ()>> {
        let batched = self.renewer.store.capabilities().batch.is_some();
        let calls = due.chunks(if batched { MAX_BATCH } else { 1 }).map(<[_]>::to_vec);
        // A store that panics must not end the renewal of the other leases. Its leases are due again at the next heartbeat.
        let renew = |call| AssertUnwindSafe(self.renewer.renew(call, self.on_renewal_thread)).catch_unwind().map(drop);
        calls.map(|call| Box::pin(renew(call)) as _).collect()
    }

    /// Retires the driver if no lease is left. Returns true if no lease is left.
    pub(super) fn retire(&self) -> bool {
        let mut table = self.renewer.table();
        let empty = table.entries.iter().all(Option::is_none);
        if empty && table.driver == Some(self.id) {
            table.driver = None;
        }
        empty
    }

    fn is_current(&self) -> bool {
        self.renewer.table().driver == Some(self.id)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut table = self.renewer.table();
        if table.driver == Some(self.id) {
            (table.driver, table.next_due) = (None, None);
        }
    }
}

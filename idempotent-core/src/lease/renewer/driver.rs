//! The task that turns the wheel.
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;

use super::{IDLE, LeaseRenewer};
use crate::Lease;

/// The task that turns the wheel; it ends when there was nothing to turn for a while, or another took over.
pub(super) struct Driver {
    pub(super) wheel: Arc<LeaseRenewer>,
    pub(super) number: u64,
    /// True if the driver runs on the renewal thread.
    pub(super) alone: bool,
}

/// Renewals that one call of a store may carry.
const A_CALL: usize = 256;

impl Driver {
    pub(super) async fn drive(self) {
        let wheel = &*self.wheel;
        let mut renewals: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        while self.is_at_it() {
            let (due, next) = wheel.turn(wheel.clock.now(), self.alone);
            renewals.extend(self.calls(&due));
            let next = match next {
                Some(next) => next,
                None if (renewals.is_empty() || wheel.is_closed()) && self.retire() => return,
                None => wheel.clock.now() + IDLE,
            };
            let mut rest = wheel.clock.sleep_until(next);
            loop {
                tokio::select! {
                    biased;
                    // Answers are taken in as they come; none of them needs another look through all leases.
                    Some(()) = renewals.next(), if !renewals.is_empty() => {}
                    () = &mut rest => break,
                    () = wheel.nudge.notified() => break,
                }
            }
        }
    }

    /// Makes the renewals that are due, and hands the wheel back to the renewal thread.
    pub(super) async fn rescue(self) {
        let (due, _) = self.wheel.turn(self.wheel.clock.now(), false);
        join_all(self.calls(&due)).await;
        let mut table = self.wheel.table();
        if let (Some(runtime), true) = (self.wheel.thread(), table.driver == Some(self.number)) {
            let next = self.wheel.driver(&mut table, true);
            drop(table);
            runtime.spawn(next.drive());
        }
    }

    /// Returns the calls of the store that renew these leases.
    fn calls(&self, due: &[Lease]) -> Vec<BoxFuture<'_, ()>> {
        let batched = self.wheel.store.abilities().batch.is_some();
        let calls = due.chunks(if batched { A_CALL } else { 1 }).map(<[_]>::to_vec);
        calls.map(|call| Box::pin(self.wheel.renew(call, self.alone)) as _).collect()
    }

    /// Unless a lease has come meanwhile.
    fn retire(&self) -> bool {
        let mut table = self.wheel.table();
        let empty = table.places.iter().all(Option::is_none);
        if empty && table.driver == Some(self.number) {
            table.driver = None;
        }
        empty
    }

    fn is_at_it(&self) -> bool {
        self.wheel.table().driver == Some(self.number)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut table = self.wheel.table();
        if table.driver == Some(self.number) {
            (table.driver, table.next) = (None, None);
        }
    }
}

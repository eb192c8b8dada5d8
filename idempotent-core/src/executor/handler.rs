//! A handler, and what its answers mean.
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use super::batch::BatchItem;
use super::report::Report;
use crate::{Outcome, Rejection, Rejects, Replies};

/// A handler with its reply strategy `P` and codec `C`. Made before anything is judged, so that the closures
/// given afterwards know their types.
#[must_use]
pub struct Handler<P: Replies<R>, C, R, F> {
    run: F,
    pub(super) failed_if: fn(&P::Value) -> bool,
    pub(super) permanent: fn(&P::Failure) -> bool,
    reject: fn(Rejection) -> P::Output<R>,
    codec: PhantomData<fn() -> C>,
}

impl<P: Replies<R>, C, R, F> Handler<P, C, R, F> {
    /// A handler whose answer's type can tell a rejection.
    pub fn new<Fut>(run: F) -> Self
    where
        P: Rejects<R>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        Self::rejecting(run, P::rejected)
    }

    /// Tells rejections by hand, where the answer's type cannot.
    pub fn rejecting<Fut>(run: F, reject: fn(Rejection) -> P::Output<R>) -> Self
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        Self { run, failed_if: |_| false, permanent: |_| false, reject, codec: PhantomData }
    }

    /// A handler of many items at once, for [`Executor::run_batch`](super::Executor::run_batch): one answer for
    /// each item it is given, in order.
    pub fn batch<T, Fut>(run: F) -> Self
    where
        P: Rejects<R>,
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        Self { run, failed_if: |_| false, permanent: |_| false, reject: P::rejected, codec: PhantomData }
    }

    /// A value that means "not done": given to the caller, not kept; the key is free again.
    pub fn failed_if(mut self, failed: fn(&P::Value) -> bool) -> Self {
        self.failed_if = failed;
        self
    }

    /// A failure not worth another run: duplicates are told so.
    pub fn permanent(mut self, permanent: fn(&P::Failure) -> bool) -> Self {
        self.permanent = permanent;
        self
    }

    /// The closure to run, and the rest.
    pub(super) fn take(self) -> (F, Handler<P, C, R, ()>) {
        let Self { run, failed_if, permanent, reject, codec } = self;
        (run, Handler { run: (), failed_if, permanent, reject, codec })
    }

    /// Says no to the caller, and why to whoever settles the delivery.
    pub(super) fn come_back_later(&self, report: &mut Report<'_>, rejection: Rejection) -> P::Output<R> {
        report.end(Outcome::of(&rejection));
        self.reject(rejection)
    }

    pub(super) fn reject(&self, rejection: Rejection) -> P::Output<R> {
        (self.reject)(rejection)
    }
}

impl<P: Replies<R>, C, R, F> fmt::Debug for Handler<P, C, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

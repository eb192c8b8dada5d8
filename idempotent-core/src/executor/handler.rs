//! A handler, and what its answers mean.
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use crate::{Lease, Rejection, Rejects, Replies};

/// An async function without arguments, such as `|| async { … }`: the form in which a [`Handler`] keeps the handler of a call.
///
/// Implemented for every such function, and for nothing else.
pub trait HandlerFn<R>: FnOnce() -> Self::Future {
    /// The future of one run.
    type Future: Future<Output = R>;
}

impl<F: FnOnce() -> Fut, Fut: Future> HandlerFn<Fut::Output> for F {
    type Future = Fut;
}

/// A handler with its reply strategy `P` and codec `C`. Made before anything is judged, so that the closures
/// given afterwards know their types.
#[must_use]
pub struct Handler<P: Replies<R>, C, R, F> {
    run: F,
    pub(crate) failed_if: fn(&P::Value) -> bool,
    pub(crate) permanent: fn(&P::Failure) -> bool,
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
    pub(crate) fn take(self) -> (F, Handler<P, C, R, ()>) {
        let Self { run, failed_if, permanent, reject, codec } = self;
        (run, Handler { run: (), failed_if, permanent, reject, codec })
    }

    pub(crate) fn reject(&self, rejection: Rejection) -> P::Output<R> {
        (self.reject)(rejection)
    }
}

/// An item that is this run's to handle.
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchItem<T> {
    /// The item.
    pub item: T,
    /// Its own lease: fencing number, attempt, and whether it is lost.
    pub lease: Lease,
}

impl<T> BatchItem<T> {
    /// An item with its lease, for a handler around another and for tests of handlers.
    #[must_use]
    pub fn new(item: T, lease: Lease) -> Self {
        Self { item, lease }
    }
}

impl<P: Replies<R>, C, R, F> fmt::Debug for Handler<P, C, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

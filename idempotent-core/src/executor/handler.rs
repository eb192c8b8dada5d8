//! A handler, and the classification rules of its answers.
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use crate::{Lease, RejectStrategy, Rejection, ReplyStrategy};

/// A handler with its reply strategy `P` and codec `C`. Its type is fixed before the classification rules are added, so
/// that their closures need no type annotations.
#[must_use]
pub struct Handler<P: ReplyStrategy<R>, C, R, F> {
    run: F,
    pub(crate) failed_if: fn(&P::Value) -> bool,
    pub(crate) permanent: fn(&P::Failure) -> bool,
    describe: Option<fn(&P::Failure) -> String>,
    reject: fn(Rejection) -> P::Output<R>,
    codec: PhantomData<fn() -> C>,
}

impl<P: ReplyStrategy<R>, C, R, F> Handler<P, C, R, F> {
    /// Creates a handler whose return type can represent a rejection.
    pub fn new<Fut>(run: F) -> Self
    where
        P: RejectStrategy<R>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        Self::rejecting(run, P::rejected)
    }

    /// Creates a handler with a function that converts rejections, for return types that cannot represent them.
    pub fn rejecting<Fut>(run: F, reject: fn(Rejection) -> P::Output<R>) -> Self
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        Self { run, failed_if: |_| false, permanent: |_| false, describe: None, reject, codec: PhantomData }
    }

    /// Creates a handler of many items for [`Executor::run_batch`](super::Executor::run_batch). The handler returns one
    /// answer per item, in order.
    pub fn batch<T, Fut>(run: F) -> Self
    where
        P: RejectStrategy<R>,
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        Self::batch_rejecting(run, P::rejected)
    }

    /// Creates a handler of many items with a function that converts rejections.
    pub fn batch_rejecting<T, Fut>(run: F, reject: fn(Rejection) -> P::Output<R>) -> Self
    where
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        Self { run, failed_if: |_| false, permanent: |_| false, describe: None, reject, codec: PhantomData }
    }

    /// Sets the rule for values that mean "not done". Such a value is returned but not stored, and the key is released.
    pub fn failed_if(mut self, failed: fn(&P::Value) -> bool) -> Self {
        self.failed_if = failed;
        self
    }

    /// Sets the rule for permanent failures. A permanent failure is not retried, and its duplicates are rejected.
    pub fn permanent(mut self, permanent: fn(&P::Failure) -> bool) -> Self {
        self.permanent = permanent;
        self
    }

    /// Sets the text that is recorded for a failure, shown to operators and to duplicates of a failed or dead key, and stored in a dead
    /// letter. It must contain no secret and nothing of a payload that may not be stored.
    ///
    /// # Default
    /// The [text](ReplyStrategy::describe) of the reply strategy: the name of the failure's type
    pub fn describe(mut self, describe: fn(&P::Failure) -> String) -> Self {
        self.describe = Some(describe);
        self
    }

    /// Returns the text of a failure.
    pub(crate) fn description(&self, failure: &P::Failure) -> Cow<'static, str> {
        self.describe.map_or_else(|| P::describe(failure), |describe| describe(failure).into())
    }

    /// Splits the handler into its closure and its rules.
    pub(crate) fn take(self) -> (F, Handler<P, C, R, ()>) {
        let Self { run, failed_if, permanent, describe, reject, codec } = self;
        (run, Handler { run: (), failed_if, permanent, describe, reject, codec })
    }

    pub(crate) fn reject(&self, rejection: Rejection) -> P::Output<R> {
        (self.reject)(rejection)
    }
}

/// An item of a batch that the handler has to process.
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchItem<T> {
    /// The item.
    pub item: T,
    /// The lease of this item, with its fencing token and attempt.
    pub lease: Lease,
}

impl<T> BatchItem<T> {
    /// Creates an item with its lease, for handlers that wrap another one and for tests of handlers.
    #[must_use]
    pub fn new(item: T, lease: Lease) -> Self {
        Self { item, lease }
    }
}

impl<P: ReplyStrategy<R>, C, R, F> fmt::Debug for Handler<P, C, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

//! A store whose process dies in its transactions.
use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities, Transactional,
};
use idempotent::transaction::{TransactionSource, TransactionalRun};
use idempotent::{Key, Store, StoreError, StoreErrorKind};
use sqlx::{Database, Transaction};

use super::InboxFlaw;
use super::wire::Point;
use crate::dice::Dice;
use crate::dying_store::die;

pub(super) type Tx<D> = Transaction<'static, D>;

/// A store that forwards each call, and kills the process during selected calls.
#[derive(Clone, Debug)]
pub(super) struct DyingTransactions<S: ?Sized>(Arc<Inner>, Arc<S>);

#[derive(Debug)]
struct Inner {
    dice: Dice,
    doomed: Mutex<HashMap<Key, Point>>,
    flaw: Option<InboxFlaw>,
}

impl<S: Store> DyingTransactions<S> {
    pub(super) fn new(inner: Arc<S>, dice: Dice, flaw: Option<InboxFlaw>) -> Self {
        Self(Arc::new(Inner { dice, doomed: Mutex::default(), flaw }), inner)
    }

    /// The next call of that kind for this key is the process's last one.
    pub(super) fn doom(&self, key: Key, at: Point) {
        self.0.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(key, at);
    }
}

impl Inner {
    fn dies(&self, key: &Key, points: &[Point]) -> bool {
        let doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        doomed.get(key).is_some_and(|point| points.contains(point))
    }

    /// Executes a call, or kills the process: before the request is sent, before the response arrives, or directly
    /// after the call.
    async fn survive<T>(&self, key: &Key, points: &[Point], call: impl Future<Output = T> + Send) -> T {
        if !self.dies(key, points) {
            return call.await;
        }
        tokio::select! {
            biased;
            _ = call => {}
            () = tokio::time::sleep(Duration::from_micros(self.dice.below(4_000))) => {}
        }
        die()
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for DyingTransactions<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = self.0.survive(&request.key, &[Point::AtClaim], self.1.claim(request)).await?;
        if matches!(claim, Claim::Acquired(_)) && self.0.dies(&request.key, &[Point::BeforeHandler]) {
            die();
        }
        Ok(claim)
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.1.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let points = [Point::AtComplete, Point::AtCommit];
        let done = self.0.survive(&held.key, &points, self.1.complete(held, completion)).await;
        match done {
            Err(error) if self.0.flaw == Some(InboxFlaw::CommitIsDone) && is_unsure(&error) => Ok(Settled::Done),
            done => done,
        }
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.survive(&held.key, &[Point::AtRelease], self.1.release(held, release)).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.1.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

/// Returns whether the error leaves the commit unknown to a caller that does not look it up.
fn is_unsure(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Ambiguous || error.to_string().contains("failed before the commit")
}

/// The same, with transactions.
#[derive(Debug)]
pub(super) struct Begins<S, D>(pub(super) DyingTransactions<S>, pub(super) PhantomData<fn() -> D>);

#[async_trait]
impl<S: Store, D: Database> Store for Begins<S, D> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.0.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.0.complete(held, completion).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_transact(self)
    }
}

impl<S: Store, D: Database> Transactional for Begins<S, D> {
    fn transactional_run(&self, mode: ClaimMode) -> Box<dyn Any + Send> {
        let own = self.0.1.capabilities().transact.map(|transact| transact.transactional_run(mode));
        let own = own.and_then(|own| own.downcast::<Arc<dyn TransactionSource<Tx<D>>>>().ok());
        match own {
            Some(own) => {
                let mortal: Arc<dyn TransactionSource<Tx<D>>> = Arc::new(DyingTransactions(self.0.0.clone(), *own));
                Box::new(mortal)
            }
            None => Box::new(()),
        }
    }

    fn step_transactions(&self) -> Box<dyn Any + Send> {
        self.0.1.capabilities().transact.map_or_else(|| Box::new(()) as _, |transact| transact.step_transactions())
    }

    fn transaction(&self) -> &'static str {
        "a transaction of its database"
    }
}

impl<D: Database> TransactionalRun for DyingTransactions<dyn TransactionSource<Tx<D>>> {
    fn retains(&self, retain: Duration) {
        self.1.retains(retain);
    }

    fn renews(&self) -> bool {
        self.1.renews()
    }
}

impl<D: Database> TransactionSource<Tx<D>> for DyingTransactions<dyn TransactionSource<Tx<D>>> {
    fn lend(&self) -> Option<Tx<D>> {
        self.1.lend()
    }

    fn take_back(&self, transaction: Tx<D>) {
        self.1.take_back(transaction);
    }
}

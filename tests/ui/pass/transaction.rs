//! A transaction that callers do not pass, of a type that the attribute does not know.
#![deny(warnings)]
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent::store::{Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities, Transactional};
use idempotent::transaction::{TransactionSource, TransactionalRun};
use idempotent::{Executor, Key, MemoryStore, Rejection, Store, StoreError, idempotent};

static BEGUN: AtomicU32 = AtomicU32::new(0);
static COMMITTED: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
struct Transaction<'c, Db> {
    writes: u32,
    of: PhantomData<&'c Db>,
}

#[derive(Debug)]
struct Db;

type Tx<'c> = Transaction<'c, Db>;

#[derive(Clone, Debug)]
struct Database(MemoryStore);

#[derive(Debug)]
struct Run(MemoryStore);

macro_rules! store {
    ($($store:ident: $complete:expr, $capabilities:expr;)*) => {$(
        #[async_trait::async_trait]
        impl Store for $store {
            async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
                self.0.claim(request).await
            }
            async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
                self.0.renew(held, lease).await
            }
            async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
                let complete: fn() = $complete;
                complete();
                self.0.complete(held, completion).await
            }
            async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
                self.0.release(held, release).await
            }
            async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
                self.0.peek(key).await
            }
            fn capabilities(&self) -> StoreCapabilities<'_> {
                let capabilities: fn(&Self) -> StoreCapabilities<'_> = $capabilities;
                capabilities(self)
            }
        }
    )*};
}
store! {
    Database: || {}, |this| StoreCapabilities::none().with_transact(this);
    Run: || { COMMITTED.fetch_add(1, SeqCst); }, |_| StoreCapabilities::none();
}

impl Transactional for Database {
    fn transactional_run(&self, _: ClaimMode) -> Box<dyn Any + Send> {
        let own: Arc<dyn TransactionSource<Tx<'static>>> = Arc::new(Run(self.0.clone()));
        Box::new(own)
    }

    fn step_transactions(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn transaction(&self) -> &'static str {
        "`Transaction<'_, Db>`"
    }
}

impl TransactionalRun for Run {
    fn retains(&self, _: Duration) {}

    fn renews(&self) -> bool {
        true
    }
}

impl TransactionSource<Tx<'static>> for Run {
    fn lend(&self) -> Option<Tx<'static>> {
        BEGUN.fetch_add(1, SeqCst);
        Some(Transaction { writes: 0, of: PhantomData })
    }

    fn take_back(&self, transaction: Tx<'static>) {
        assert_eq!(transaction.writes, 1);
    }
}

fn write(tx: &mut Transaction<'_, Db>) -> u32 {
    tx.writes += 1;
    tx.writes
}

#[idempotent(key = order, transaction = tx, with = e)]
async fn first(tx: &mut Transaction<'_, Db>, order: u32, e: &Executor) -> Result<u32, Rejection> {
    if order == 0 {
        return Ok(write(tx));
    }
    tokio::task::yield_now().await;
    Ok(write(tx))
}

#[idempotent(key = order, transaction = leased(r#match), with = e, detach)]
async fn alias(e: Executor, order: u32, mut r#match: &mut Tx<'_>) -> Result<u32, Rejection> {
    let tx = &mut r#match;
    Ok(write(tx))
}

/// All arguments are the key, but for those.
#[idempotent(by = param, with = e, transaction = tx, replay)]
async fn by_param(e: &Executor, order: u32, tx: &mut Transaction<'_, Db>) -> Result<u32, Rejection> {
    Ok(write(tx) + order)
}

struct Service(Executor);

impl Service {
    #[idempotent(key = order, transaction = tx, with = self.0)]
    async fn method(&self, order: u32, tx: &mut Tx<'_>) -> Result<u32, Rejection> {
        fn inner(tx: &mut Tx<'_>) -> u32 {
            write(tx)
        }
        Ok(inner(tx))
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(Database(MemoryStore::new()));
    for _ in 0..2 {
        assert_eq!(first(0, &e).await.unwrap(), 1);
        assert_eq!(first(1, &e).await.unwrap(), 1);
        assert_eq!(alias(e.clone(), 2).await.unwrap(), 1);
        assert_eq!(by_param(&e, 3).await.unwrap(), 4);
        assert_eq!(Service(e.clone()).method(4).await.unwrap(), 1);
    }
    assert_eq!((BEGUN.load(SeqCst), COMMITTED.load(SeqCst)), (5, 5));
}

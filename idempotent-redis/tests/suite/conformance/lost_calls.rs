//! A store with a proxy that loses calls.
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Key, Record, Release, ReleaseKind, Settled, Store, StoreCapabilities,
    StoreError,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{RedisStore, RedisStoreBuilder};
use idempotent_testkit::{LossInjector, LostPart, StoreOperation};

use crate::support::{ask, done, key, put_down};

/// The real store, and the point at which its next call is lost.
#[derive(Clone)]
pub(crate) struct Lossy(Arc<Inner>);

struct Inner {
    store: RedisStore,
    proxy: Proxy,
    next: Mutex<Option<(StoreOperation, LostPart)>>,
}

impl Lossy {
    pub(crate) async fn open(server: &RedisServer, set: impl Fn(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        let proxy = Proxy::start(&server.address()).await;
        let store = set(crate::conformance::builder(proxy.url())).connect().await.unwrap();
        know_the_scripts(&store).await;
        Self(Arc::new(Inner { store, proxy, next: Mutex::default() }))
    }

    /// Loses the selected call in the network; all other calls pass.
    async fn sent<T>(
        &self,
        verb: StoreOperation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Inner { store, proxy, next } = &*self.0;
        let at = next.lock().unwrap().take_if(|(wanted, _)| *wanted == verb).map(|(_, at)| at);
        match at {
            None => return call.await,
            Some(LostPart::Request) => proxy.fail_next_with("EVALSHA", Fault::CutBeforeSend),
            Some(LostPart::Reply) => proxy.fail_next_with("EVALSHA", Fault::CutAfterApply),
            Some(LostPart::Connection) => {
                // Waits until the store has noticed: a call on a connection that was just cut is another case.
                proxy.refuse();
                proxy.cut_all();
                answers(store, false).await;
            }
            Some(other) => panic!("no way to lose a call there: {other:?}"),
        }
        let met = proxy.met();
        let answer = call.await;
        if at == Some(LostPart::Connection) {
            proxy.listen();
            answers(store, true).await;
        } else {
            assert_eq!(proxy.met(), met + 1, "the call did not get lost");
        }
        answer
    }
}

impl LossInjector for Lossy {
    fn lose(&self, verb: StoreOperation, at: LostPart) {
        *self.0.next.lock().unwrap() = Some((verb, at));
    }
}

/// Waits until the store can reach the server, or cannot.
async fn answers(store: &RedisStore, wanted: bool) {
    while store.peek(&key("losing")).await.is_ok() != wanted {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Loads the scripts: a rejected unknown digest must not be the lost call.
async fn know_the_scripts(store: &RedisStore) {
    let request = ask("losing", 1);
    let held = ClaimHandle::unanswered(request.key.clone(), request.owner);
    store.claim(&request).await.unwrap();
    store.renew(&held, request.lease).await.unwrap();
    assert_eq!(store.release(&held, &put_down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
    store.complete(&held, &done(None)).await.unwrap();
    assert_eq!(store.peek(&held.key).await.unwrap(), None);
}

impl fmt::Debug for Lossy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.store.fmt(f)
    }
}

#[async_trait]
impl Store for Lossy {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.sent(StoreOperation::Claim, self.0.store.claim(request)).await
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.sent(StoreOperation::Renew, self.0.store.renew(held, lease)).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.sent(StoreOperation::Complete, self.0.store.complete(held, completion)).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.sent(StoreOperation::Release, self.0.store.release(held, release)).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.store.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        self.0.store.capabilities()
    }
}

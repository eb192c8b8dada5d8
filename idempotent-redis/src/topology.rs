//! Which server a key's calls go to, and what is tried again.
pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod single;
mod staggered;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Key, StoreError};

use crate::batching::batcher::CallBatcher;
use crate::batching::call::{ReplyBody, ScriptCall, ScriptReply};
use crate::failure::{CallFailure, FailureKind};
use crate::topology::cluster::ClusterRouter;

/// What goes to one server and may go to another one after that: a call of the store's, or of a delay queue.
pub(crate) trait RoutedCall: Sync {
    type Reply: Send;

    /// The key whose slot says where to.
    fn key(&self) -> &str;

    fn send(&self, batcher: &CallBatcher) -> impl Future<Output = Result<Self::Reply, CallFailure>> + Send;

    /// To a node that the slot is being moved to.
    fn send_asking(&self, batcher: &CallBatcher) -> impl Future<Output = Result<Self::Reply, CallFailure>> + Send;
}

impl RoutedCall for ScriptCall {
    type Reply = ScriptReply;

    fn key(&self) -> &str {
        self.key.as_str()
    }

    fn send(&self, batcher: &CallBatcher) -> impl Future<Output = Result<ScriptReply, CallFailure>> + Send {
        batcher.send(self)
    }

    fn send_asking(&self, batcher: &CallBatcher) -> impl Future<Output = Result<ScriptReply, CallFailure>> + Send {
        batcher.send_asking(self)
    }
}

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Topology {
    /// The only one.
    Single(CallBatcher),
    /// The one that sentinels name.
    Sentinel(CallBatcher),
    /// Some that share the slots.
    Cluster(Arc<ClusterRouter>),
}

/// Between two tries of what was surely not applied.
const PAUSES: [u64; 6] = [5, 10, 20, 40, 80, 160];
/// Redirections of one call. More of them mean nodes that disagree for longer than a migration takes.
const MAX_HOPS: usize = 16;
/// So many are followed at once: a slot that has moved, or is moving.
const FREE_HOPS: usize = 3;

impl Topology {
    /// Sends a call; what was surely not applied and may pass in a moment is tried again within `budget`.
    pub(crate) async fn call<T: RoutedCall>(&self, call: &T, budget: Duration) -> Result<T::Reply, StoreError> {
        // Before it is sent: what has changed by the time that it fails was not tried.
        let version = self.version();
        match self.try_once(call).await {
            Ok(answer) => Ok(answer),
            Err(failure) if !self.is_retryable(&failure) => Err(self.explain(failure)),
            Err(failure) => Box::pin(self.retry(call, (failure, version), Instant::now() + budget)).await,
        }
    }

    /// Sends calls in their order, those of one server together. What was surely not applied and may pass is then tried
    /// again, one by one, within `budget` for all of them.
    pub(crate) async fn call_all(
        &self,
        calls: &[&ScriptCall],
        budget: Duration,
    ) -> Vec<Result<ScriptReply, StoreError>> {
        let version = self.version();
        let reply = match self {
            Self::Single(batcher) | Self::Sentinel(batcher) => batcher.send_all(calls).await,
            Self::Cluster(cluster) => cluster.call_all(calls).await,
        };
        let until = Instant::now() + budget;
        let mut answers = Vec::with_capacity(reply.len());
        for (call, reply) in calls.iter().zip(reply) {
            answers.push(match reply {
                Ok(answer) => Ok(answer),
                Err(failure) if !self.is_retryable(&failure) => Err(self.explain(failure)),
                Err(failure) => self.retry(*call, (failure, version), until).await,
            });
        }
        answers
    }

    /// How many were removed: 0 or 1.
    pub(crate) async fn purge(&self, key: &Key) -> Result<usize, StoreError> {
        let answer = self.call(&ScriptCall::purge(key), Duration::ZERO).await?;
        Ok(usize::from(answer.body == ReplyBody::Flag(true)))
    }

    /// All servers that hold keys, `refresh` as they say now.
    pub(crate) async fn batchers(&self, refresh: bool) -> Result<Vec<CallBatcher>, StoreError> {
        match self {
            Self::Single(batcher) | Self::Sentinel(batcher) => Ok(vec![batcher.clone()]),
            Self::Cluster(cluster) => Ok(cluster.batchers(refresh).await?),
        }
    }

    async fn try_once<T: RoutedCall>(&self, call: &T) -> Result<T::Reply, CallFailure> {
        match self {
            Self::Single(batcher) | Self::Sentinel(batcher) => call.send(batcher).await,
            Self::Cluster(cluster) => cluster.call(call).await,
        }
    }

    /// Which knowledge of the servers a try is made by.
    fn version(&self) -> u64 {
        match self {
            Self::Single(_) => 0,
            Self::Sentinel(batcher) => batcher.connection().number(),
            Self::Cluster(cluster) => cluster.version(),
        }
    }

    /// After a try that failed, by a view of the servers.
    async fn retry<T: RoutedCall>(
        &self,
        call: &T,
        (mut failure, mut version): (CallFailure, u64),
        until: Instant,
    ) -> Result<T::Reply, StoreError> {
        let (mut hops, mut pauses) = (0, PAUSES.into_iter());
        loop {
            let redirected = matches!(failure.kind, FailureKind::Moved(_) | FailureKind::Ask(_));
            hops += usize::from(redirected);
            if hops > MAX_HOPS {
                let why = format!("cluster topology is not settling: redirected {hops} times");
                return Err(failure.because(&why).into());
            }
            // One call of a batch finds out for all of them.
            let is_new = self.version() != version;
            if !redirected && !is_new || hops > FREE_HOPS {
                let pause = Duration::from_millis(pauses.next().unwrap_or(PAUSES[PAUSES.len() - 1]));
                if Instant::now() + pause >= until {
                    return Err(failure.because("gave up retrying").into());
                }
                tokio::time::sleep(pause).await;
            }
            let seen = std::mem::replace(&mut version, self.version());
            failure = match self.retry_once(&failure, call, seen).await {
                Ok(answer) => return Ok(answer),
                Err(next) if self.is_retryable(&next) => next,
                Err(next) => return Err(next.into()),
            };
        }
    }

    /// The next try, where the last one says that it should be made.
    async fn retry_once<T: RoutedCall>(
        &self,
        failure: &CallFailure,
        call: &T,
        seen: u64,
    ) -> Result<T::Reply, CallFailure> {
        match self {
            Self::Single(batcher) => call.send(batcher).await,
            Self::Sentinel(batcher) => {
                if failure.kind == FailureKind::NotPrimary {
                    // Not the one that another call has made meanwhile.
                    batcher.connection().reconnect(seen);
                }
                call.send(batcher).await
            }
            Self::Cluster(cluster) => cluster.retry_once(failure, call, seen).await,
        }
    }

    fn is_retryable(&self, failure: &CallFailure) -> bool {
        match failure.kind {
            FailureKind::Transient | FailureKind::NoScript => true,
            // Of a single server: nothing else will take its place.
            FailureKind::NotPrimary | FailureKind::Unreachable => !matches!(self, Self::Single(_)),
            FailureKind::Moved(_) | FailureKind::Ask(_) => matches!(self, Self::Cluster(_)),
            FailureKind::Store(_) => false,
        }
    }

    fn explain(&self, failure: CallFailure) -> StoreError {
        match (self, &failure.kind) {
            (Self::Single(_) | Self::Sentinel(_), FailureKind::Moved(_) | FailureKind::Ask(_)) => {
                failure.because("the server is part of a cluster; use redis+cluster://").into()
            }
            _ => failure.into(),
        }
    }
}

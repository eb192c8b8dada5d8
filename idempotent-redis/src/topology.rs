//! Routing of calls to servers, and retries.
pub(crate) mod cluster;
pub(crate) mod sentinel;
mod staggered;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::StoreError;

use crate::batching::batcher::CallBatcher;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ScriptReply;
use crate::connection::ConnectTarget;
use crate::connection::client::ClientFactory;
use crate::connection::url::ServerEndpoint;
use crate::failure::{CallFailure, FailureKind};
use crate::topology::cluster::ClusterRouter;

/// A call that may be redirected to another server: a call of the store or of a delay queue.
pub(crate) trait RoutedCall: Sync {
    type Reply: Send;

    /// Returns the key whose slot determines the server.
    fn key(&self) -> &str;

    fn send(&self, batcher: &CallBatcher) -> impl Future<Output = Result<Self::Reply, CallFailure>> + Send;

    /// Sends the call to the node that the slot is being moved to.
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
    /// The only server.
    Single(CallBatcher),
    /// The primary that sentinels report.
    Sentinel(CallBatcher),
    /// A cluster, whose nodes share the slots.
    Cluster(Arc<ClusterRouter>),
}

/// Pauses in ms between retries of a call that was not applied.
const PAUSES: [u64; 6] = [5, 10, 20, 40, 80, 160];
/// Maximum number of redirections of one call. More mean that the nodes disagree for longer than a migration takes.
const MAX_HOPS: usize = 16;
/// Number of redirections that are followed without a pause, for a slot that has moved or is moving.
const FREE_HOPS: usize = 3;

impl Topology {
    /// Sends a call. Retries a call that was not applied within `budget`, if the failure is transient.
    pub(crate) async fn call<T: RoutedCall>(&self, call: &T, budget: Duration) -> Result<T::Reply, StoreError> {
        // Read before the call is sent: a newer version has not been tried.
        let version = self.version();
        match self.try_once(call).await {
            Ok(answer) => Ok(answer),
            Err(failure) if !self.is_retryable(&failure) => Err(self.explain(failure)),
            Err(failure) => Box::pin(self.retry(call, (failure, version), Instant::now() + budget)).await,
        }
    }

    /// Sends calls in order, grouped by server. Retries calls that were not applied one by one, within `budget` for all
    /// of them.
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

    /// Returns the batchers of all servers that hold keys. With `refresh`, a cluster is queried for its nodes first.
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

    /// Returns the version of the topology that an attempt uses.
    fn version(&self) -> u64 {
        match self {
            Self::Single(_) => 0,
            Self::Sentinel(batcher) => batcher.connection().number(),
            Self::Cluster(cluster) => cluster.version(),
        }
    }

    /// Retries a call after a failed attempt that used `version` of the topology.
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
            // The first failed call of a batch refreshes the topology for all calls.
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

    /// Makes the next attempt, at the server that the failure indicates.
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
                    // Keeps a connection that another call has opened since.
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
            // No other server can replace a single server.
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

/// A server with a fixed address.
#[derive(Debug)]
pub(crate) struct SingleServer {
    pub(crate) server: ServerEndpoint,
    pub(crate) access: ClientFactory,
}

#[async_trait]
impl ConnectTarget for SingleServer {
    async fn client(&self) -> Result<redis::Client, CallFailure> {
        match &self.server {
            ServerEndpoint::Tcp(address) => self.access.client(address),
            ServerEndpoint::Unix(path) => self.access.socket(path),
        }
    }

    fn name(&self) -> String {
        self.server.to_string()
    }
}

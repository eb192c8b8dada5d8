//! Which server a key's calls go to, and what is tried again.
pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod single;
mod staggered;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Key, StoreError};

use crate::batching::batcher::Lane;
use crate::batching::call::{Answer, Call, Said};
use crate::failure::{Failure, FailureKind};
use crate::topology::cluster::Cluster;

/// What goes to one server and may go to another one after that: a call of the store's, or of a delay queue.
pub(crate) trait Trip: Sync {
    type Answer: Send;

    /// The key whose slot says where to.
    fn key(&self) -> &str;

    fn send(&self, lane: &Lane) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;

    /// To a node that the slot is being moved to.
    fn send_asking(&self, lane: &Lane) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

impl Trip for Call {
    type Answer = Answer;

    fn key(&self) -> &str {
        self.key.as_str()
    }

    fn send(&self, lane: &Lane) -> impl Future<Output = Result<Answer, Failure>> + Send {
        lane.call(self)
    }

    fn send_asking(&self, lane: &Lane) -> impl Future<Output = Result<Answer, Failure>> + Send {
        lane.asking(self)
    }
}

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Topology {
    /// The only one.
    One(Lane),
    /// The one that sentinels name.
    Named(Lane),
    /// Some that share the slots.
    Cluster(Arc<Cluster>),
}

/// Between two tries of what was surely not applied.
const PAUSES: [u64; 6] = [5, 10, 20, 40, 80, 160];
/// Redirections of one call. More of them mean nodes that disagree for longer than a migration takes.
const MOST_HOPS: usize = 16;
/// So many are followed at once: a slot that has moved, or is moving.
const FREE_HOPS: usize = 3;

impl Topology {
    /// Sends a call; what was surely not applied and may pass in a moment is tried again within `budget`.
    pub(crate) async fn ask<T: Trip>(&self, call: &T, budget: Duration) -> Result<T::Answer, StoreError> {
        // Before it is sent: what has changed by the time that it fails was not tried.
        let view = self.view();
        match self.once(call).await {
            Ok(answer) => Ok(answer),
            Err(failure) if !self.passes(&failure) => Err(self.refused(failure)),
            Err(failure) => Box::pin(self.again(call, (failure, view), Instant::now() + budget)).await,
        }
    }

    /// Sends calls in their order, those of one server together. What was surely not applied and may pass is then tried
    /// again, one by one, within `budget` for all of them.
    pub(crate) async fn ask_all(&self, calls: &[&Call], budget: Duration) -> Vec<Result<Answer, StoreError>> {
        let view = self.view();
        let said = match self {
            Self::One(lane) | Self::Named(lane) => lane.all(calls).await,
            Self::Cluster(cluster) => cluster.all(calls).await,
        };
        let until = Instant::now() + budget;
        let mut answers = Vec::with_capacity(said.len());
        for (call, said) in calls.iter().zip(said) {
            answers.push(match said {
                Ok(answer) => Ok(answer),
                Err(failure) if !self.passes(&failure) => Err(self.refused(failure)),
                Err(failure) => self.again(*call, (failure, view), until).await,
            });
        }
        answers
    }

    /// How many were removed: 0 or 1.
    pub(crate) async fn purge(&self, key: &Key) -> Result<usize, StoreError> {
        let answer = self.ask(&Call::purge(key), Duration::ZERO).await?;
        Ok(usize::from(answer.said == Said::Held(true)))
    }

    /// All servers that hold keys, `anew` as they say now.
    pub(crate) async fn lanes(&self, anew: bool) -> Result<Vec<Lane>, StoreError> {
        match self {
            Self::One(lane) | Self::Named(lane) => Ok(vec![lane.clone()]),
            Self::Cluster(cluster) => Ok(cluster.lanes(anew).await?),
        }
    }

    async fn once<T: Trip>(&self, call: &T) -> Result<T::Answer, Failure> {
        match self {
            Self::One(lane) | Self::Named(lane) => call.send(lane).await,
            Self::Cluster(cluster) => cluster.call(call).await,
        }
    }

    /// Which knowledge of the servers a try is made by.
    fn view(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Named(lane) => lane.link().number(),
            Self::Cluster(cluster) => cluster.view(),
        }
    }

    /// After a try that failed, by a view of the servers.
    async fn again<T: Trip>(
        &self,
        call: &T,
        (mut failure, mut view): (Failure, u64),
        until: Instant,
    ) -> Result<T::Answer, StoreError> {
        let (mut hops, mut pauses) = (0, PAUSES.into_iter());
        loop {
            let redirected = matches!(failure.kind, FailureKind::Moved(_) | FailureKind::Ask(_));
            hops += usize::from(redirected);
            if hops > MOST_HOPS {
                let why = format!("the cluster's topology is not settling: redirected {hops} times");
                return Err(failure.because(&why).into());
            }
            // One call of a batch finds out for all of them.
            let is_new = self.view() != view;
            if !redirected && !is_new || hops > FREE_HOPS {
                let pause = Duration::from_millis(pauses.next().unwrap_or(PAUSES[PAUSES.len() - 1]));
                if Instant::now() + pause >= until {
                    return Err(failure.because("tried again until the time for it was up").into());
                }
                tokio::time::sleep(pause).await;
            }
            let seen = std::mem::replace(&mut view, self.view());
            failure = match self.after(&failure, call, seen).await {
                Ok(answer) => return Ok(answer),
                Err(next) if self.passes(&next) => next,
                Err(next) => return Err(next.into()),
            };
        }
    }

    /// The next try, where the last one says that it should be made.
    async fn after<T: Trip>(&self, failure: &Failure, call: &T, seen: u64) -> Result<T::Answer, Failure> {
        match self {
            Self::One(lane) => call.send(lane).await,
            Self::Named(lane) => {
                if failure.kind == FailureKind::NotPrimary {
                    // Not the one that another call has made meanwhile.
                    lane.link().reconnect(seen);
                }
                call.send(lane).await
            }
            Self::Cluster(cluster) => cluster.after(failure, call, seen).await,
        }
    }

    fn passes(&self, failure: &Failure) -> bool {
        match failure.kind {
            FailureKind::Soon | FailureKind::NoScript => true,
            // Of a single server: nothing else will take its place.
            FailureKind::NotPrimary | FailureKind::Unreachable => !matches!(self, Self::One(_)),
            FailureKind::Moved(_) | FailureKind::Ask(_) => matches!(self, Self::Cluster(_)),
            FailureKind::Store(_) => false,
        }
    }

    fn refused(&self, failure: Failure) -> StoreError {
        match (self, &failure.kind) {
            (Self::One(_) | Self::Named(_), FailureKind::Moved(_) | FailureKind::Ask(_)) => {
                failure.because("this server is a cluster's: use redis+cluster://").into()
            }
            _ => failure.into(),
        }
    }
}

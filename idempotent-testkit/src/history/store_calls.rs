//! Requests and answers of a store as data, so that a recording and a simulated network treat all operations
//! alike.
#![allow(missing_docs, reason = "hidden: for the simulator of this project")]
use std::future::Future;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Key, Release, ReleaseKind, Settled, Store, StoreError,
    StoreErrorKind,
};

use super::{Kind, Line, Token};

#[derive(Clone, Debug)]
pub enum Ask {
    Claim(ClaimRequest),
    Renew(ClaimHandle, Duration),
    Complete(ClaimHandle, Completion),
    Release(ClaimHandle, Release),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Claim(Claim),
    Settled(Settled),
}

pub type Answers = Vec<Result<Answer, StoreError>>;

/// A carrier of requests. With `together`, the requests are one call of the store's batch.
pub trait Carries: Clone + Send + Sync + 'static {
    fn carry(&self, asks: Vec<Ask>, together: bool) -> impl Future<Output = Answers> + Send;
}

impl Ask {
    pub fn key(&self) -> &Key {
        match self {
            Self::Claim(request) => &request.key,
            Self::Renew(held, _) | Self::Complete(held, _) | Self::Release(held, _) => &held.key,
        }
    }

    pub fn verb(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Renew(..) => "renew",
            Self::Complete(..) => "complete",
            Self::Release(..) => "release",
        }
    }

    /// Returns the same request with another key.
    pub fn at(mut self, key: &Key) -> Self {
        match &mut self {
            Self::Claim(request) => request.key = key.clone(),
            Self::Renew(held, _) | Self::Complete(held, _) | Self::Release(held, _) => held.key = key.clone(),
        }
        self
    }

    async fn alone(&self, store: &dyn Store) -> Result<Answer, StoreError> {
        match self {
            Self::Claim(request) => store.claim(request).await.map(Answer::Claim),
            Self::Renew(held, lease) => store.renew(held, *lease).await.map(Answer::Settled),
            Self::Complete(held, done) => store.complete(held, done).await.map(Answer::Settled),
            Self::Release(held, release) => store.release(held, release).await.map(Answer::Settled),
        }
    }

    /// Returns the history's line for this call, or `None` if the call certainly had no effect and no result.
    pub fn line(&self, line: Line, answer: &Result<Answer, StoreError>) -> Option<Line> {
        let unknown = matches!(answer, Err(error) if error.kind() == StoreErrorKind::Ambiguous);
        let (line, answer) = (Line { key: Some(self.key().as_str().to_owned()), ..line }, answer.as_ref().ok());
        match self {
            Self::Claim(request) => claim_line(line, request, answer, unknown),
            Self::Renew(held, lease) => {
                let event = settled(answer, unknown, Kind::RenewOk, Some(Kind::RenewLost), Kind::RenewUnknown)?;
                Some(Line { lease_ms: Some(ms(*lease)), ..owned(line, held, event) })
            }
            Self::Complete(held, done) => {
                let event =
                    settled(answer, unknown, Kind::CompleteOk, Some(Kind::CompleteLost), Kind::CompleteUnknown)?;
                let result = Some(digest(done.value.as_deref()));
                Some(Line { retain_ms: Some(ms(done.retain)), result, ..owned(line, held, event) })
            }
            Self::Release(held, release) => {
                let done = match release.kind {
                    ReleaseKind::Delete | ReleaseKind::Vacate | ReleaseKind::Refund => Kind::Released,
                    ReleaseKind::MarkFailed => Kind::Failed,
                    ReleaseKind::MarkDead => Kind::Dead,
                };
                Some(owned(line, held, settled(answer, unknown, done, None, Kind::ReleaseUnknown)?))
            }
        }
    }
}

fn claim_line(line: Line, request: &ClaimRequest, answer: Option<&Answer>, unknown: bool) -> Option<Line> {
    let fp = request.fingerprint.map(|print| hex(&print.to_bytes()[1..9]));
    let line = Line { token: Some(Token(request.owner.0)), fp, ..line };
    let said = |event| Some(Line { event, ..line.clone() });
    let claim = match answer {
        Some(Answer::Claim(claim)) => claim,
        _ if unknown => return said(Kind::ClaimUnknown),
        _ => return None,
    };
    match claim {
        Claim::Acquired(grant) => {
            let (fence, lease_ms) = (Some(grant.fencing.0), Some(ms(request.lease)));
            Some(Line { event: Kind::ClaimWon, fence, lease_ms, ..line })
        }
        Claim::Consumed(done) => {
            let (fence, result) = (Some(done.fencing.0), Some(digest(done.value.as_deref())));
            Some(Line { event: Kind::ClaimConsumed, fence, result, ..line })
        }
        Claim::Dead(dead) => Some(Line { event: Kind::Dead, fence: Some(dead.fencing.0), ..line }),
        Claim::InFlight(InFlight::Leased { .. }) => said(Kind::ClaimInflight),
        Claim::InFlight(InFlight::Busy) => None,
        Claim::Failed { .. } => said(Kind::ClaimFailed),
        Claim::Delayed { .. } => said(Kind::ClaimDelayed),
        Claim::Mismatch => said(Kind::Mismatch),
    }
}

fn settled(answer: Option<&Answer>, unheard: bool, done: Kind, lost: Option<Kind>, unknown: Kind) -> Option<Kind> {
    match answer {
        Some(Answer::Settled(Settled::Done)) => Some(done),
        Some(Answer::Settled(Settled::Lost { .. })) => lost,
        _ if unheard => Some(unknown),
        _ => None,
    }
}

fn owned(line: Line, held: &ClaimHandle, event: Kind) -> Line {
    Line { event, token: Some(Token(held.owner.0)), fence: held.fencing.map(|fencing| fencing.0), ..line }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest(value: Option<&[u8]>) -> String {
    match value {
        Some(value) => hex(&idempotent_core::Fingerprint::of_bytes(value).to_bytes()[1..9]),
        None => "none".to_owned(),
    }
}

/// Sends one request, or a batch of one operation, in order.
pub async fn ask(store: &dyn Store, asks: &[Ask], together: bool) -> Answers {
    let Some(batch) = store.capabilities().batch.filter(|_| together) else {
        let mut answers = Vec::new();
        for ask in asks {
            answers.push(ask.alone(store).await);
        }
        return answers;
    };
    let settled = |answers: Vec<Result<Settled, StoreError>>| {
        answers.into_iter().map(|answer| answer.map(Answer::Settled)).collect()
    };
    match asks {
        [Ask::Claim(_), ..] => {
            let requests = asks.iter().filter_map(|ask| match ask {
                Ask::Claim(request) => Some(request.clone()),
                _ => None,
            });
            let claims = batch.claim_all(&requests.collect::<Vec<_>>()).await;
            claims.into_iter().map(|answer| answer.map(Answer::Claim)).collect()
        }
        [Ask::Renew(..), ..] => {
            let held = asks.iter().filter_map(|ask| match ask {
                Ask::Renew(held, lease) => Some((held.clone(), *lease)),
                _ => None,
            });
            settled(batch.renew_all(&held.collect::<Vec<_>>()).await)
        }
        _ => {
            let done = asks.iter().filter_map(|ask| match ask {
                Ask::Complete(held, done) => Some((held.clone(), done.clone())),
                _ => None,
            });
            settled(batch.complete_all(&done.collect::<Vec<_>>()).await)
        }
    }
}

/// Returns an ambiguous error for each request.
pub fn all_ambiguous(asks: &[Ask], why: &str) -> Answers {
    all(asks, StoreErrorKind::Ambiguous, why)
}

pub fn all(asks: &[Ask], kind: StoreErrorKind, why: &str) -> Answers {
    asks.iter().map(|_| Err(StoreError::new(kind).because(why.to_owned()))).collect()
}

fn claimed(answer: Option<Result<Answer, StoreError>>) -> Result<Claim, StoreError> {
    match answer {
        Some(Ok(Answer::Claim(claim))) => Ok(claim),
        Some(Err(error)) => Err(error),
        _ => Err(StoreError::new(StoreErrorKind::Ambiguous).because("no answer to this request of a batch")),
    }
}

fn done(answer: Option<Result<Answer, StoreError>>) -> Result<Settled, StoreError> {
    match answer {
        Some(Ok(Answer::Settled(settled))) => Ok(settled),
        Some(Err(error)) => Err(error),
        _ => Err(StoreError::new(StoreErrorKind::Ambiguous).because("no answer to this request of a batch")),
    }
}

pub async fn one_claim(via: &impl Carries, request: &ClaimRequest) -> Result<Claim, StoreError> {
    claimed(via.carry(vec![Ask::Claim(request.clone())], false).await.pop())
}

pub async fn one(via: &impl Carries, ask: Ask) -> Result<Settled, StoreError> {
    done(via.carry(vec![ask], false).await.pop())
}

pub async fn all_claims(via: &impl Carries, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
    let asks = requests.iter().cloned().map(Ask::Claim).collect();
    via.carry(asks, true).await.into_iter().map(|answer| claimed(Some(answer))).collect()
}

pub async fn all_settled(via: &impl Carries, asks: Vec<Ask>) -> Vec<Result<Settled, StoreError>> {
    via.carry(asks, true).await.into_iter().map(|answer| done(Some(answer))).collect()
}

/// Implements a store that forwards all requests. `peek` uses `inner`, and `watch` has its own method. Purge, search
/// and admin are missing, because operators call them elsewhere.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_that_carries {
    ($name:ty) => {
        #[async_trait::async_trait]
        impl idempotent_core::Store for $name {
            async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
                $crate::__private::one_claim(self, request).await
            }
            async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
                $crate::__private::one(self, $crate::__private::Ask::Renew(held.clone(), lease)).await
            }
            async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
                $crate::__private::one(self, $crate::__private::Ask::Complete(held.clone(), done.clone())).await
            }
            async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
                $crate::__private::one(self, $crate::__private::Ask::Release(held.clone(), release.clone())).await
            }
            async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
                self.inner.peek(key).await
            }
            fn capabilities(&self) -> StoreCapabilities<'_> {
                let inner = self.inner.capabilities();
                let mut capabilities = StoreCapabilities::none();
                if inner.watch.is_some() {
                    capabilities = capabilities.with_watch(self);
                }
                if inner.batch.is_some() {
                    capabilities = capabilities.with_batch(self);
                }
                capabilities
            }
        }

        #[async_trait::async_trait]
        impl idempotent_core::Batch for $name {
            async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
                $crate::__private::all_claims(self, requests).await
            }
            async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
                let asks = held.iter().cloned().map(|(held, lease)| $crate::__private::Ask::Renew(held, lease));
                $crate::__private::all_settled(self, asks.collect()).await
            }
            async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
                let asks = done.iter().cloned().map(|(held, done)| $crate::__private::Ask::Complete(held, done));
                $crate::__private::all_settled(self, asks.collect()).await
            }
        }
    };
}

//! A place beside the record store for bodies that are too large for a record.
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use idempotent_core::{Clock, Fingerprint, Lease};

use crate::panic_guard::panicked;

/// What a [`Spill`] answers, in time.
pub type Spilling<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;

/// Keeps bodies that are too large for a record: a folder, a bucket. See [`ResponseRules::spill`](crate::ResponseRules::spill).
///
/// Whoever keeps them removes them: not before the retention of their records is over. The record has their length and
/// their digest: a body that is not the one that was put is not replayed. What takes longer than
/// [`ResponseRules::spill_within`](crate::ResponseRules::spill_within) is dropped midway and counts as an error, as a
/// panic does.
pub trait Spill: Send + Sync + 'static {
    /// Keeps a body under a name that was never used before: hexadecimal digits and a hyphen.
    ///
    /// # Errors
    /// Any: the request is done all the same, and duplicates are told that its answer was not kept.
    fn put<'a>(&'a self, name: &'a str, body: Bytes) -> Spilling<'a, ()>;

    /// The body of this name, as [`put`](Self::put) has them; `None` if there is none any more.
    ///
    /// # Errors
    /// Any: the duplicate is told that the answer was not kept.
    fn get<'a>(&'a self, name: &'a str) -> Spilling<'a, Option<Bytes>>;
}

/// A spill, the most it takes, and how long it may take.
#[derive(Clone)]
pub(crate) struct Spilled {
    pub(crate) to: Arc<dyn Spill>,
    pub(crate) max: u64,
    pub(crate) within: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What a record says of a body that is elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) name: Box<str>,
    pub(crate) length: u64,
    pub(crate) digest: Fingerprint,
}

impl Spilled {
    /// Where it is kept, if it is.
    pub(crate) async fn put(&self, body: Bytes) -> Option<Box<Elsewhere>> {
        // Of one grant, so of one answer. A run without protection has none, and is not recorded.
        let lease = Lease::current()?;
        let name = format!("{:032x}-{}", lease.key().hash(), lease.fencing().0).into_boxed_str();
        let (length, digest) = (body.len() as u64, Fingerprint::of_bytes(&body));
        self.bounded("Spill::put", &name, || self.to.put(&name, body)).await?;
        Some(Box::new(Elsewhere { name, length, digest }))
    }

    /// The body that was put there, and no other.
    pub(crate) async fn get(&self, kept: &Elsewhere) -> Option<Bytes> {
        let body = self.bounded("Spill::get", &kept.name, || self.to.get(&kept.name)).await??;
        if body.len() as u64 == kept.length && Fingerprint::of_bytes(&body) == kept.digest {
            return Some(body);
        }
        tracing::warn!(target: "idempotent", name = &*kept.name, "a large answer is not what was kept");
        None
    }

    /// What the store answers, if it does in time.
    async fn bounded<'a, T>(
        &self,
        hook: &'static str,
        name: &str,
        ask: impl FnOnce() -> Spilling<'a, T> + Send,
    ) -> Option<T> {
        let end = self.clock.sleep_until(self.clock.now() + self.within.min(LONGEST));
        let answer = pin!(AssertUnwindSafe(async { ask().await }).catch_unwind());
        match select(answer, end).await {
            Either::Left((Ok(Ok(answer)), _)) => return Some(answer),
            Either::Left((Ok(Err(error)), _)) => {
                tracing::warn!(target: "idempotent", hook, name, error = &*error as &dyn std::error::Error,
                    "a large answer could not be kept or read");
            }
            Either::Left((Err(_), _)) => panicked(hook),
            Either::Right(_) => {
                tracing::warn!(target: "idempotent", hook, name, within = ?self.within,
                    "a large answer could not be kept or read in time");
            }
        }
        None
    }
}

/// A name as [`Spilled::put`] gives it: whoever looks it up in a folder may rely on that, whatever a record says.
pub(crate) fn name(bytes: &[u8]) -> Option<&str> {
    let ours = matches!(bytes.len(), 1..=64) && bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    std::str::from_utf8(bytes).ok().filter(|_| ours)
}

/// Longer than this nobody waits.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl fmt::Debug for Spilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spilled(up to {} bytes)", self.max)
    }
}

//! External storage for bodies that are too large for a record.
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

use crate::panic_guard::log_panic;

/// The future that a [`BodyStore`] returns.
pub type BodyStoreFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;

/// Stores bodies that are too large for a record, for example in a directory or a bucket. See
/// [`ResponseRules::spill`](crate::ResponseRules::spill).
///
/// The implementation deletes old bodies, but not before the retention of their records has passed. The record contains
/// the length and digest of the body, and a body that differs is not replayed. An operation that takes longer than
/// [`ResponseRules::spill_within`](crate::ResponseRules::spill_within) is dropped and counts as an error. A panic
/// counts as an error as well.
pub trait BodyStore: Send + Sync + 'static {
    /// Stores a body under a name that was never used before. The name consists of hexadecimal digits and a hyphen.
    ///
    /// # Errors
    /// Any. The request still completes, and duplicates learn that its response was not stored.
    fn put<'a>(&'a self, name: &'a str, body: Bytes) -> BodyStoreFuture<'a, ()>;

    /// Returns the body that [`put`](Self::put) stored under this name, or `None` if it no longer exists.
    ///
    /// # Errors
    /// Any. The duplicate learns that the response was not stored.
    fn get<'a>(&'a self, name: &'a str) -> BodyStoreFuture<'a, Option<Bytes>>;
}

/// A [`BodyStore`] with its limits.
#[derive(Clone)]
pub(crate) struct BodyStoreConfig {
    pub(crate) to: Arc<dyn BodyStore>,
    pub(crate) max: u64,
    pub(crate) within: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The part of a record that identifies an external body.
#[derive(Clone, Debug)]
pub(crate) struct ExternalBody {
    pub(crate) name: Box<str>,
    pub(crate) length: u64,
    pub(crate) digest: Fingerprint,
}

impl BodyStoreConfig {
    /// Stores a body. Returns `None` if that fails or if the run has no lease.
    pub(crate) async fn put(&self, body: Bytes) -> Option<Box<ExternalBody>> {
        // The fencing token makes the name unique to one response. A run without protection has no lease and no record.
        let lease = Lease::current()?;
        let name = format!("{:032x}-{}", lease.key().hash(), lease.fencing().0).into_boxed_str();
        let (length, digest) = (body.len() as u64, Fingerprint::of_bytes(&body));
        self.bounded("BodyStore::put", &name, || self.to.put(&name, body)).await?;
        Some(Box::new(ExternalBody { name, length, digest }))
    }

    /// Returns the body that was stored, or `None` if it is missing or differs.
    pub(crate) async fn get(&self, kept: &ExternalBody) -> Option<Bytes> {
        let body = self.bounded("BodyStore::get", &kept.name, || self.to.get(&kept.name)).await??;
        if body.len() as u64 == kept.length && Fingerprint::of_bytes(&body) == kept.digest {
            return Some(body);
        }
        tracing::warn!(target: "idempotent", name = &*kept.name, "spilled body differs from its digest; the response is not replayed");
        None
    }

    /// Returns the output of an operation, or `None` if it fails, panics or exceeds the time limit.
    async fn bounded<'a, T>(
        &self,
        hook: &'static str,
        name: &str,
        ask: impl FnOnce() -> BodyStoreFuture<'a, T> + Send,
    ) -> Option<T> {
        let end = self.clock.sleep_until(self.clock.now() + self.within.min(MAX_TIMEOUT));
        let answer = pin!(AssertUnwindSafe(async { ask().await }).catch_unwind());
        match select(answer, end).await {
            Either::Left((Ok(Ok(answer)), _)) => return Some(answer),
            Either::Left((Ok(Err(error)), _)) => {
                tracing::warn!(target: "idempotent", hook, name, error = &*error as &dyn std::error::Error,
                    "spill failed; the body was not stored or read");
            }
            Either::Left((Err(_), _)) => log_panic(hook),
            Either::Right(_) => {
                tracing::warn!(target: "idempotent", hook, name, within = ?self.within,
                    "spill timed out; raise `spill_within`, or look at the storage");
            }
        }
        None
    }
}

/// Returns a name of the form that `put` creates. A spill may use the name in a path, so a name from a damaged record
/// must have this form.
pub(crate) fn name(bytes: &[u8]) -> Option<&str> {
    let ours = matches!(bytes.len(), 1..=64) && bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    std::str::from_utf8(bytes).ok().filter(|_| ours)
}

/// The upper bound of the timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

impl fmt::Debug for BodyStoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyStoreConfig(up to {} bytes)", self.max)
    }
}

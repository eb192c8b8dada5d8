//! A place beside the record store for bodies that are too large for a record.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use idempotent_core::Lease;

/// What a [`Spill`] answers, in time.
pub type Spilling<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;

/// Keeps bodies that are too large for a record: a folder, a bucket. See [`ResponseRules::spill`](crate::ResponseRules::spill).
///
/// Whoever keeps them removes them: not before the retention of their records is over.
pub trait Spill: Send + Sync + 'static {
    /// Keeps a body under a name that was never used before: hexadecimal digits and a hyphen.
    ///
    /// # Errors
    /// Any: the request is done all the same, and duplicates are told that its answer was not kept.
    fn put<'a>(&'a self, name: &'a str, body: Bytes) -> Spilling<'a, ()>;

    /// The body of this name; `None` if there is none any more.
    ///
    /// # Errors
    /// Any: the duplicate is told that the answer was not kept.
    fn get<'a>(&'a self, name: &'a str) -> Spilling<'a, Option<Bytes>>;
}

/// A spill, and the most it takes.
#[derive(Clone)]
pub(crate) struct Spilled {
    pub(crate) to: Arc<dyn Spill>,
    pub(crate) max: u64,
}

impl Spilled {
    /// The name it is kept under, if it is.
    pub(crate) async fn put(&self, body: Bytes) -> Option<Box<str>> {
        // Of one grant, so of one answer. A run without protection has none, and is not recorded.
        let lease = Lease::current()?;
        let name = format!("{:032x}-{}", lease.key().hash(), lease.fencing().0);
        match self.to.put(&name, body).await {
            Ok(()) => Some(name.into()),
            Err(error) => {
                tracing::warn!(target: "idempotent", key = %lease.key(), error = &*error as &dyn std::error::Error,
                    "a large answer could not be kept");
                None
            }
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Bytes> {
        match self.to.get(name).await {
            Ok(body) => body,
            Err(error) => {
                tracing::warn!(target: "idempotent", name, error = &*error as &dyn std::error::Error,
                    "a large answer could not be read");
                None
            }
        }
    }
}

impl fmt::Debug for Spilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spilled(up to {} bytes)", self.max)
    }
}

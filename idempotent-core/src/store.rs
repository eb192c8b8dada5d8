//! Where records live.
mod ability;
mod cas;
mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::ability::{Abilities, Admin, Batch, Browse, Entry, Page, Purge, Watch, Watching};
pub use self::cas::{Cas, CasBackend, Seen, Version};
pub use self::memory::{MemoryStore, MemoryStoreBuilder};
use crate::{Claim, ClaimRequest, Completion, Held, Key, Record, Release, Settled, StoreError};

/// Claims a key for one owner at a time.
///
/// Six methods, all required: a default that quietly weakens the promise would be a trap. The short way to one
/// of your own is [`CasBackend`], two methods. Run the test kit's `conformance!` over an implementation before
/// trusting it; each list below names its laws.
///
/// Each method is one atomic step, judged by the store's own clock: a client's wall clock plays no part.
/// [`protocol`](crate::protocol) is the same behaviour as pure functions.
///
/// # Errors
/// Every method fails with a [`StoreError`] whose kind says what is known: `NotApplied` only if surely nothing
/// was done, `Ambiguous` if it may have been. A record that cannot be read is never overwritten or deleted.
///
/// # Cancellation
/// A dropped future may have been applied or not, as with a lost reply; the executor treats it so.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Claims the key, or says why not: [`protocol::claim`](crate::protocol::claim).
    ///
    /// # Behaviour
    /// - an absent, vacant or expired key is acquired by exactly one of several claims;
    /// - the same owner asking again gets the same grant, and no attempt is counted;
    /// - a lease at its end may be taken over, a moment before it may not;
    /// - the fencing number of a grant is higher than of any before it, also over release, expiry and deletion;
    /// - with `max_attempts` reached the key is buried instead of granted.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// The lease lasts at least `lease` from now: [`protocol::renew`](crate::protocol::renew).
    ///
    /// # Behaviour
    /// - only for its owner while consuming, also after the lease's end if nobody took over;
    /// - never shortens.
    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError>;

    /// Consuming becomes consumed: [`protocol::complete`](crate::protocol::complete).
    ///
    /// # Behaviour
    /// - only for its owner; asked again by its owner it is still `Done`, and the first result stands;
    /// - a late owner that nobody took over from may complete.
    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError>;

    /// Deletes, vacates, fails or buries: [`protocol::release`](crate::protocol::release).
    ///
    /// # Behaviour
    /// - only for its owner while consuming: a consumed record is never undone;
    /// - a deleted key may be claimed at once, a vacant one from its delay on.
    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError>;

    /// What is there, for people and tests; `None` past the record's time.
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// What it can do beyond this. A wrapper forwards or drops each ability on purpose.
    fn abilities(&self) -> Abilities<'_>;
}

macro_rules! forward {
    ($($pointer:ident)*) => {$(
        #[async_trait]
        impl<S: Store + ?Sized> Store for $pointer<S> {
            async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
                (**self).claim(request).await
            }
            async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
                (**self).renew(held, lease).await
            }
            async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
                (**self).complete(held, completion).await
            }
            async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
                (**self).release(held, release).await
            }
            async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
                (**self).peek(key).await
            }
            fn abilities(&self) -> Abilities<'_> {
                (**self).abilities()
            }
        }
    )*};
}
forward!(Arc Box);

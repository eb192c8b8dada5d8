//! The admission of claims, by which a consumer keeps the claims of one failed node from occupying all of its handlers.
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::{Key, Store, StoreError};

/// A future that ends when a claim must not wait any longer, with the error for the call.
pub type Withdrawal = Pin<Box<dyn Future<Output = StoreError> + Send + 'static>>;

/// A consumer's decision whether claims of its deliveries may be sent.
///
/// The executor asks before the claim of each outermost run of a delivery. It does not ask for runs with
/// [`RunUnprotected`](crate::OnStoreError::RunUnprotected), which do not depend on the store, and for runs in the transaction of
/// another store.
pub trait ClaimAdmission: fmt::Debug + Send + Sync + 'static {
    /// Admits the claim of this key by this store. Returns `None` if its end does not matter.
    ///
    /// # Errors
    /// Returns the error with which the call is rejected. No claim is sent.
    fn admit(&self, store: &dyn Store, key: &Key) -> Result<Option<Box<dyn AdmittedClaim>>, StoreError>;
}

/// A claim that waits for the answer of the store. A drop without a note is the same as [`exempt`](Self::exempt): the consumer learns of
/// failures from the summary of the run.
pub trait AdmittedClaim: Send + Sync {
    /// Notes that the store answered.
    fn answered(&self);

    /// Notes that this claim shows nothing about the store: no request of it waits, or something without a request answered it.
    fn exempt(&self);

    /// Returns the end of the admission, or `None` if the claim may wait until its own timeout.
    ///
    /// When the future ends, the executor drops the claim, and rejects the call with the error.
    fn withdrawal(&self) -> Option<Withdrawal>;
}

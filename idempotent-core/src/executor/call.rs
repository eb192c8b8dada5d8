//! One call to be made idempotent.
use std::sync::Arc;
use std::time::Duration;

use crate::transaction::Via;
use crate::{Fingerprint, Identity, KeyError, Policy};

/// What makes a call the same as another, and how it is to be treated.
#[derive(Clone, Debug)]
#[must_use]
pub struct Call {
    pub(super) identity: Identity,
    pub(super) fingerprint: Result<Option<Fingerprint>, KeyError>,
    pub(super) policy: Policy,
    pub(super) message: Option<Arc<str>>,
    pub(super) issued: Option<Duration>,
    /// A store of its own.
    pub(crate) via: Option<Via>,
}

impl Call {
    /// A call of this identity, by the executor's policy.
    pub fn new(identity: Identity) -> Self {
        Self { identity, fingerprint: Ok(None), policy: Policy::new(), message: None, issued: None, via: None }
    }

    /// Refuses the key with another payload.
    pub fn fingerprint(mut self, fingerprint: Result<Fingerprint, KeyError>) -> Self {
        self.fingerprint = fingerprint.map(Some);
        self
    }

    /// Goes over the executor's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Runs only if the key is a token that [`Tokens`](crate::Tokens) issued; after a run that failed it is good for
    /// `ttl` again. It is never run unprotected: without the store nobody can tell a token from a guess.
    pub fn issued(mut self, ttl: Duration) -> Self {
        self.identity = self.identity.token();
        self.issued = Some(ttl);
        self
    }

    /// What a duplicate that gets no result is told instead of the usual text.
    pub fn message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// For [`Executor::run`](super::Executor::run), whose future is smaller by it.
impl From<Box<Call>> for Call {
    fn from(call: Box<Call>) -> Self {
        *call
    }
}

//! Tokens that the server issues, each good for one call that succeeds.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{
    Call, Claim, ClaimRequest, Executor, Held, Identity, KeyPart, OnConsumed, OnExpiry, OwnerToken, Policy, Rejection,
    Release, Scene, Settled, Store, StoreError, StoreErrorKind, Verdict,
};

/// Issues tokens, and makes calls of them: a form fetches one, its submit spends it, a second submit of the same form is
/// refused. A run that fails gives the token back.
///
/// A token is 192 random bits, bound to the tenant it was issued to and to a scope; what a client makes up, or has from
/// somebody else, is unknown. In the store it is a record like any other, under a key of its own kind: no token can name
/// anything else that is there.
///
/// ```
/// use idempotent_core::{Auto, Executor, Handler, Json, MemoryStore, Rejection, Tokens};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let tokens = Tokens::new(&executor);
/// let token = tokens.issue("user-7").await?;
/// let submit = async || Ok::<_, Rejection>(42);
/// let call = || tokens.call(&token, "user-7");
/// assert_eq!(executor.run(call(), Handler::<Auto, Json, _, _>::new(submit)).await?, 42);
/// let again = executor.run(call(), Handler::<Auto, Json, _, _>::new(submit)).await;
/// assert!(matches!(again, Err(Rejection::Duplicate { .. })));
/// # Ok::<(), Rejection>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Tokens {
    executor: Executor,
    scope: Cow<'static, str>,
    ttl: Duration,
}

impl Tokens {
    /// How long a token is good for, unless told otherwise: 10 minutes.
    pub const TTL: Duration = Duration::from_secs(600);
    /// The scope of tokens that are for no handler in particular.
    pub const SCOPE: &'static str = "token";
    /// How long issuing may take.
    const ISSUING: Duration = Duration::from_secs(10);

    /// Tokens of this executor's store.
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), scope: Cow::Borrowed(Self::SCOPE), ttl: Self::TTL }
    }

    /// For one handler only: the attribute's `scope`, with `by = token`.
    ///
    /// # Default
    /// [`SCOPE`](Self::SCOPE)
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// How long a token is good for, from its issue or from the failure of a run.
    ///
    /// # Default
    /// [`TTL`](Self::TTL)
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(Duration::from_millis(1));
        self
    }

    /// The executor they are of.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// A new token for `tenant`: the caller it is bound to.
    ///
    /// # Errors
    /// [`Rejection::Store`] if it could not be recorded, [`Rejection::Entropy`] if there is no randomness,
    /// [`Rejection::Key`] if the tenant is empty.
    ///
    /// # Cancellation
    /// What may have been recorded by then is known to nobody, and goes by itself.
    pub async fn issue(&self, tenant: impl KeyPart) -> Result<Token, Rejection> {
        let (token, owner) = (Token::new(&self.executor)?, OwnerToken(self.executor.entropy().bits()?.max(1)));
        let key = self.identity(&token, tenant).token().key(self.executor.namespace())?;
        let request = ClaimRequest {
            key: key.clone(),
            owner,
            lease: Self::ISSUING,
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            memory: Duration::from_millis(1),
            display: None,
        };
        let store = self.executor.store();
        let Claim::Acquired(grant) = self.executor.0.with_timeout(Self::ISSUING, store.claim(&request)).await? else {
            // One in 2^192, or a generator that repeats itself.
            let error = StoreError::new(StoreErrorKind::NotApplied);
            return Err(error.because("a token just drawn is taken: is the random generator broken?").into());
        };
        let held = Held { key, owner, fencing: Some(grant.fencing) };
        let unused =
            Release { verdict: Verdict::Vacate, delay: Duration::ZERO, memory: self.ttl, error: Arc::from("issued") };
        match self.executor.0.with_timeout(Self::ISSUING, store.release(&held, &unused)).await? {
            Settled::Done => Ok(token),
            Settled::Lost { .. } => Err(StoreError::new(StoreErrorKind::NotApplied)
                .because("the store took too long to issue a token")
                .into()),
        }
    }

    /// The call that spends `token`: it runs if the token was issued to `tenant` and was not used yet, and tells a
    /// duplicate that it is one.
    pub fn call(&self, token: impl KeyPart, tenant: impl KeyPart) -> Call {
        let policy = Policy::new().on_consumed(OnConsumed::Refuse);
        Call::new(self.identity(token, tenant)).issued(self.ttl).policy(policy)
    }

    fn identity(&self, token: impl KeyPart, tenant: impl KeyPart) -> Identity {
        Identity::new(Scene::Rest, self.scope.clone(), &token).tenant(&tenant).described("token")
    }
}

/// 192 random bits: 32 characters of base64url.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(Box<str>);

impl Token {
    fn new(executor: &Executor) -> Result<Self, Rejection> {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&executor.entropy().bits()?.to_le_bytes());
        bytes[16..].copy_from_slice(&executor.entropy().bits()?.to_le_bytes()[..8]);
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes).into()))
    }

    /// For the client.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyPart for Token {
    fn feed(&self, parts: &mut crate::Parts) {
        self.as_str().feed(parts);
    }
}

/// Whoever has it may spend it: never shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

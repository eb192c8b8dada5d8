//! Tokens that the server issues, each valid for one successful call.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{
    Call, Claim, ClaimHandle, ClaimRequest, Executor, Identity, KeyPart, OnConsumed, OnExpiry, OwnerToken, Policy,
    Rejection, Release, ReleaseKind, Scene, Settled, Store, StoreError, StoreErrorKind,
};

/// Issues tokens and builds the calls that spend them.
///
/// A form fetches a token, and its submission spends the token. A second submission of the same form is refused. After
/// a failed run the token is valid again.
///
/// A token consists of 192 random bits, and is bound to the tenant it was issued to and to a scope. A token that a
/// client makes up, or takes from another tenant, is unknown. The store keeps a token in an ordinary record under a key
/// of its own kind, so that no token can name another record.
///
/// ```
/// use idempotent_core::{DefaultReply, Executor, Handler, Json, MemoryStore, Rejection, Tokens};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let tokens = Tokens::new(&executor);
/// let token = tokens.issue("user-7").await?;
/// let submit = async || Ok::<_, Rejection>(42);
/// let call = || tokens.call(&token, "user-7");
/// assert_eq!(executor.run(call(), Handler::<DefaultReply, Json, _, _>::new(submit)).await?, 42);
/// let again = executor.run(call(), Handler::<DefaultReply, Json, _, _>::new(submit)).await;
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
    /// The default validity of a token: 10 minutes.
    pub const TTL: Duration = Duration::from_secs(600);
    /// The default scope, for tokens that are not bound to one handler.
    pub const SCOPE: &'static str = "token";
    /// The time limit for issuing a token.
    const ISSUE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates an issuer that keeps its tokens in the store of `executor`.
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), scope: Cow::Borrowed(Self::SCOPE), ttl: Self::TTL }
    }

    /// Sets the scope, to bind tokens to one handler: the attribute's `scope`, with `by = token`.
    ///
    /// # Default
    /// [`SCOPE`](Self::SCOPE)
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets how long a token is valid, measured from its issue or from the failure of a run. At least 1 ms.
    ///
    /// # Default
    /// [`TTL`](Self::TTL)
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(Duration::from_millis(1));
        self
    }

    /// Returns the executor in whose store the tokens are kept.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Issues a token that is bound to the caller `tenant`.
    ///
    /// # Errors
    /// - [`Rejection::Store`] if the token could not be recorded.
    /// - [`Rejection::Entropy`] if the system has no randomness.
    /// - [`Rejection::Key`] if the tenant is empty.
    ///
    /// # Cancellation
    /// If a dropped call has recorded a token, no client knows that token, and its record expires.
    pub async fn issue(&self, tenant: impl KeyPart) -> Result<Token, Rejection> {
        let (token, owner) = (Token::new(&self.executor)?, OwnerToken(self.executor.entropy().bits()?.max(1)));
        let key = self.identity(&token, tenant).token().key(self.executor.namespace())?;
        let request = ClaimRequest {
            key: key.clone(),
            owner,
            lease: Self::ISSUE_TIMEOUT,
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_millis(1),
            display: None,
        };
        let store = self.executor.store();
        let Claim::Acquired(grant) = self.executor.0.with_timeout(Self::ISSUE_TIMEOUT, store.claim(&request)).await?
        else {
            // A collision has a probability of 2^-192, so the generator probably repeats itself.
            let error = StoreError::new(StoreErrorKind::NotApplied);
            return Err(error.because("issue a token: a new token exists already; check the random generator").into());
        };
        let held = ClaimHandle::granted(&request, &grant);
        let unused = Release {
            kind: ReleaseKind::Vacate,
            delay: Duration::ZERO,
            retention: self.ttl,
            error: Arc::from("issued"),
        };
        match self.executor.0.with_timeout(Self::ISSUE_TIMEOUT, store.release(&held, &unused)).await? {
            Settled::Done => Ok(token),
            Settled::Lost { .. } => Err(StoreError::new(StoreErrorKind::NotApplied)
                .because("issue a token: the store took too long; retry")
                .into()),
        }
    }

    /// Returns the call that spends `token`.
    ///
    /// The call runs if the token was issued to `tenant` and has not been used. A duplicate is rejected as such.
    pub fn call(&self, token: impl KeyPart, tenant: impl KeyPart) -> Call {
        let policy = Policy::new().on_consumed(OnConsumed::Refuse);
        Call::new(self.identity(token, tenant)).issued(self.ttl).policy(policy)
    }

    fn identity(&self, token: impl KeyPart, tenant: impl KeyPart) -> Identity {
        Identity::new(Scene::Rest, self.scope.clone(), &token).tenant(&tenant).described("token")
    }
}

/// An issued token: 192 random bits as 32 characters of base64url.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(Box<str>);

impl Token {
    fn new(executor: &Executor) -> Result<Self, Rejection> {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&executor.entropy().bits()?.to_le_bytes());
        bytes[16..].copy_from_slice(&executor.entropy().bits()?.to_le_bytes()[..8]);
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes).into()))
    }

    /// Returns the text to send to the client.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyPart for Token {
    fn write_to(&self, parts: &mut crate::Parts) {
        self.as_str().write_to(parts);
    }
}

/// Prints no part of the token, because every holder of the token may spend it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

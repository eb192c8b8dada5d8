//! Sources of randomness for owner tokens and jitter.
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::panic_guard::catch_panic;

/// Supplies random bits to an [`Executor`](crate::Executor).
///
/// Use [`OsEntropy`] in production. The test kit has a seeded source, which makes runs repeatable.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Returns 128 unpredictable bits that no other call returns. They become owner tokens.
    ///
    /// # Errors
    /// Returns the reason if no randomness is available. The run is then refused and never starts with a weak token.
    fn bits(&self) -> Result<u128, EntropyError>;
}

/// The error of a system that provides no randomness.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no randomness for an owner token: {0}")]
pub struct EntropyError(pub String);

/// A source whose panics count as missing randomness.
#[derive(Debug)]
pub(crate) struct GuardedEntropy(pub(crate) Arc<dyn Entropy>);

impl Entropy for GuardedEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        let bits = catch_panic("entropy", || self.0.bits());
        bits.unwrap_or_else(|| Err(EntropyError("the source of randomness panicked".to_owned())))
    }
}

/// The random generator of the operating system.
///
/// Each thread requests bits for 64 tokens at a time and caches them, because a request costs more than a claim in
/// memory. If a thread forks its process, parent and child have copies of its cached bits, and would use the same
/// tokens. A server that forks workers without executing a new program must fork from a thread that has run no
/// handlers, or use its own [`Entropy`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

/// The number of tokens requested at a time.
const TOKENS_PER_REQUEST: usize = 64;

thread_local! {
    /// The tokens of this thread that are not used yet.
    static TOKEN_CACHE: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}

impl Entropy for OsEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        // A thread that is ending has lost its cache, so it requests bits for this token only.
        let kept = TOKEN_CACHE.try_with(|tokens| {
            let mut tokens = tokens.borrow_mut();
            if tokens.is_empty() {
                *tokens = request_tokens(TOKENS_PER_REQUEST)?;
            }
            Ok(tokens.pop())
        });
        match kept {
            Ok(Ok(Some(bits))) => Ok(bits),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => request_tokens(1).map(|drawn| drawn.into_iter().fold(0, |all, bits| all ^ bits)),
        }
    }
}

fn request_tokens(tokens: usize) -> Result<Vec<u128>, EntropyError> {
    let mut bytes = vec![0; tokens * 16];
    getrandom::fill(&mut bytes).map_err(|e| EntropyError(e.to_string()))?;
    let (tokens, _) = bytes.as_chunks();
    Ok(tokens.iter().copied().map(u128::from_le_bytes).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_token_is_returned_twice_across_requests_and_threads() {
        let drawn = || (0..3 * TOKENS_PER_REQUEST).map(|_| OsEntropy.bits().unwrap()).collect::<Vec<_>>();
        let threads = [std::thread::spawn(drawn), std::thread::spawn(drawn)];
        let mut all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.extend(drawn());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 9 * TOKENS_PER_REQUEST);
    }
}

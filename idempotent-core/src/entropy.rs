//! Randomness as it is handed in: owner tokens and jitter.
use std::cell::RefCell;
use std::fmt;

/// Supplies random bits to an [`Executor`](crate::Executor). [`OsEntropy`] is the one to run with; the test
/// kit has a seeded one, so that a run can be repeated.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// 128 bits nobody can guess and that no other call returns: they become owner tokens.
    ///
    /// # Errors
    /// Says why no randomness is to be had; the run is then refused, never started with a weak token.
    fn bits(&self) -> Result<u128, EntropyError>;
}

/// The operating system gave no randomness.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no randomness to make an owner token of: {0}")]
pub struct EntropyError(pub String);

/// The operating system's generator.
///
/// Drawn for 64 tokens at once and kept in each thread, since asking it costs more than a claim in memory. What a thread
/// has not used yet is copied when that thread forks its process: parent and child would then have the same tokens. A
/// server that forks workers, without starting a program anew, from a thread that has run handlers needs an
/// [`Entropy`] of its own, or a thread of its own to fork from.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

/// Tokens drawn at once.
const DRAWN: usize = 64;

thread_local! {
    /// Tokens not given out yet.
    static DRAW: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}

impl Entropy for OsEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        // A thread that is ending has no store any more: it draws for itself.
        let kept = DRAW.try_with(|tokens| {
            let mut tokens = tokens.borrow_mut();
            if tokens.is_empty() {
                *tokens = draw(DRAWN)?;
            }
            Ok(tokens.pop())
        });
        match kept {
            Ok(Ok(Some(bits))) => Ok(bits),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => draw(1).map(|drawn| drawn.into_iter().fold(0, |all, bits| all ^ bits)),
        }
    }
}

fn draw(tokens: usize) -> Result<Vec<u128>, EntropyError> {
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
    fn no_token_is_given_out_twice_over_draws_and_threads() {
        let drawn = || (0..3 * DRAWN).map(|_| OsEntropy.bits().unwrap()).collect::<Vec<_>>();
        let threads = [std::thread::spawn(drawn), std::thread::spawn(drawn)];
        let mut all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.extend(drawn());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 9 * DRAWN);
    }
}

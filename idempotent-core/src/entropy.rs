//! Randomness as it is handed in: owner tokens and jitter.
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
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|e| EntropyError(e.to_string()))?;
        Ok(u128::from_le_bytes(bytes))
    }
}

//! A result that a full disk had no room for. Its run is consumed without it, since the effect is done. Until the result is stored
//! after all, no run begins: its result would be lost, too.
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_core::{ClaimHandle, Completion, Settled, StoreError, StoreErrorKind};

/// The largest result that was lost, and its run.
#[derive(Debug, Default)]
pub(crate) struct LostResult(Mutex<Option<(ClaimHandle, Completion)>>);

impl LostResult {
    fn lock(&self) -> MutexGuard<'_, Option<(ClaimHandle, Completion)>> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn is_none(&self) -> bool {
        self.lock().is_none()
    }

    /// Returns the result that has to be stored before the next claim.
    pub(crate) fn largest(&self) -> Option<(ClaimHandle, Completion)> {
        self.lock().clone()
    }

    /// Returns the completion without its result, for a run whose result met a full disk. Returns `None` if it had no result.
    pub(crate) fn without_result(completion: &Completion) -> Option<Completion> {
        completion.value.as_ref()?;
        Some(Completion { value: None, ..completion.clone() })
    }

    /// Remembers a result, if its run was completed without it.
    pub(crate) fn note(&self, held: &ClaimHandle, completion: &Completion, settled: &Result<Settled, StoreError>) {
        let mut largest = self.lock();
        if matches!(settled, Ok(Settled::Done))
            && largest.as_ref().is_none_or(|(_, known)| size(known) < size(completion))
        {
            *largest = Some((held.clone(), completion.clone()));
        }
    }

    /// Forgets the result of a run: it is stored, or its record is gone.
    pub(crate) fn forget(&self, held: &ClaimHandle) {
        self.lock().take_if(|(lost, _)| lost.owner == held.owner);
    }

    /// Returns the error of a claim, while the disk still has no room for the result.
    pub(crate) fn refusal(&self, place: &str) -> StoreError {
        StoreError::new(StoreErrorKind::NotApplied).because(self.text(place).unwrap_or_default())
    }

    /// Returns the problem, if there is one.
    pub(crate) fn text(&self, place: &str) -> Option<String> {
        self.lock().as_ref().map(|(_, completion)| {
            format!(
                "the disk or the quota of `{place}` is full: a run is consumed without its result of {} bytes, and no run begins \
                 until there is room for it: free some space",
                size(completion)
            )
        })
    }
}

fn size(completion: &Completion) -> usize {
    completion.value.as_ref().map_or(0, |value| value.len())
}

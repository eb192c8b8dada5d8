//! A result that a full disk had no room for. Its run is consumed without it, since the effect is done. Until the result is stored
//! after all, no run begins: its result would be lost, too.
use std::sync::{Mutex, MutexGuard, PoisonError};

use idempotent_core::{ClaimHandle, Completion, Settled, StoreError, StoreErrorKind};

use super::connection::ConnectionGuard;
use super::error::{self, ErrorContext};
use super::record_access::{RecordAccess, held_query};

/// The largest result that was lost, and its run.
#[derive(Debug, Default)]
pub(super) struct LostResult(Mutex<Option<(ClaimHandle, Completion)>>);

impl LostResult {
    fn largest(&self) -> MutexGuard<'_, Option<(ClaimHandle, Completion)>> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_none(&self) -> bool {
        self.largest().is_none()
    }

    fn note(&self, held: &ClaimHandle, completion: &Completion) {
        let mut largest = self.largest();
        if largest.as_ref().is_none_or(|(_, known)| size(known) < size(completion)) {
            *largest = Some((held.clone(), completion.clone()));
        }
    }

    /// Returns the problem, if there is one.
    pub(super) fn text(&self, place: &ErrorContext) -> Option<String> {
        self.largest().as_ref().map(|(_, completion)| {
            format!(
                "the disk or the quota of `{}` is full: a run is consumed without its result of {} bytes, and no run begins until \
                 there is room for it: free some space",
                place.file,
                size(completion)
            )
        })
    }
}

fn size(completion: &Completion) -> usize {
    completion.value.as_ref().map_or(0, |value| value.len())
}

impl RecordAccess {
    /// Completes a run without its result, after the disk had no room for both. Returns `None` if the error is another one.
    pub(super) async fn complete_without_result(
        &self,
        turn: &mut ConnectionGuard<'_>,
        (held, completion): &(ClaimHandle, Completion),
        error: &StoreError,
    ) -> Option<Result<Settled, StoreError>> {
        if completion.value.is_none() || !error::is_full(error) {
            return None;
        }
        let bare = (held.clone(), Completion { value: None, ..completion.clone() });
        let settled = self.complete(turn, &bare).await;
        if let Ok(Settled::Done) = settled {
            self.lost.note(held, completion);
        }
        Some(settled)
    }

    /// Stores the lost result, if there is one.
    ///
    /// # Errors
    /// There is still no room for it.
    pub(super) async fn store_lost_result(&self, turn: &mut ConnectionGuard<'_>) -> Result<(), StoreError> {
        let Some((held, completion)) = self.lost.largest().clone() else { return Ok(()) };
        let store = held_query(&self.sql.store_value, &held).bind(completion.value);
        match turn.execute(store).await {
            Err(error) if error::is_full(&error) => {
                let text = self.lost.text(&self.place).unwrap_or_default();
                Err(StoreError::new(StoreErrorKind::NotApplied).because(text))
            }
            // Stored, or the record is gone.
            Ok(_) => {
                *self.lost.largest() = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

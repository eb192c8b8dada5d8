//! Script calls of the store, which a read-only store sends only if the script writes nothing.
use std::time::Duration;

use idempotent_core::{Key, StoreError, StoreErrorKind};

use crate::batching::call::ScriptCall;
use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::store::StoreInner;

impl StoreInner {
    /// Sends a call, and retries it within `budget`.
    ///
    /// # Errors
    /// `Denied`: the script writes, and the store is read-only. The call is not sent.
    pub(crate) async fn call(&self, call: &ScriptCall, budget: Duration) -> Result<ScriptReply, StoreError> {
        self.permit(call)?;
        self.topology.call(call, budget).await
    }

    /// Sends calls in order, and retries them within `budget` for all of them. A read-only store refuses each call whose
    /// script writes, and sends none of the calls.
    pub(crate) async fn call_all(
        &self,
        calls: &[ScriptCall],
        budget: Duration,
    ) -> Vec<Result<ScriptReply, StoreError>> {
        if calls.iter().any(|call| self.permit(call).is_err()) {
            return calls.iter().map(|_| Err(read_only())).collect();
        }
        self.topology.call_all(&calls.iter().collect::<Vec<_>>(), budget).await
    }

    /// Removes a record and returns the number of removed records, 0 or 1.
    pub(crate) async fn purge(&self, key: &Key) -> Result<usize, StoreError> {
        let answer = self.call(&ScriptCall::purge(key), Duration::ZERO).await?;
        Ok(usize::from(answer.body == ReplyBody::Flag(true)))
    }

    /// Returns an error if the store is read-only.
    pub(crate) fn permit_writes(&self) -> Result<(), StoreError> {
        if self.checks.read_only { Err(read_only()) } else { Ok(()) }
    }

    fn permit(&self, call: &ScriptCall) -> Result<(), StoreError> {
        if call.params.script.writes() { self.permit_writes() } else { Ok(()) }
    }
}

fn read_only() -> StoreError {
    StoreError::new(StoreErrorKind::Denied)
        .because("the store is open with `read_only(true)`: open it without `read_only` to write")
}

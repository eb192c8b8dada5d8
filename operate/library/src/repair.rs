//! Repairs of single keys, each guarded by the fencing number that the operator saw.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{FencingToken, Key, Settled, StateKind, Store};

use crate::audit::write_result;
use crate::{AuditEntry, AuditSink, OperateError};

/// A repair of one key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Repair {
    /// Makes a consumed, failed or dead key claimable again.
    Forget,
    /// Takes a consuming key from its owner, too. The owner may still be running, and its effect may happen.
    Release,
}

impl Repair {
    /// Returns the name of the action in the audit log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forget => "forget",
            Self::Release => "release",
        }
    }
}

/// The result of a repair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RepairResult {
    /// The key can be claimed.
    Done,
    /// Nothing was changed: the key is in this state, or its fencing number is another one.
    Changed {
        /// The state of the key.
        now: StateKind,
    },
}

/// Repairs keys of a store, and records each repair in an audit log.
#[derive(Clone, Debug)]
pub struct Repairer {
    store: Arc<dyn Store>,
    audit: Arc<dyn AuditSink>,
    /// The fields that all entries have in common.
    entry: AuditEntry,
    retention: Duration,
}

impl Repairer {
    /// Creates a repairer. `author` is a name and a reason for the audit log. `target` describes the store in the audit log: pass its URL without passwords.
    ///
    /// # Errors
    /// [`Author`](OperateError::Author) if the author's name has not 1 to 255 bytes, if the reason has not 1 to 4,096, or
    /// if one of them contains a control character.
    pub fn new(
        store: Arc<dyn Store>,
        audit: Arc<dyn AuditSink>,
        author: (&str, &str),
        via: &str,
        target: &str,
    ) -> Result<Self, OperateError> {
        let entry = AuditEntry::of_author(author, via, target)?;
        Ok(Self { store, audit, entry, retention: Duration::from_secs(3_600) })
    }

    /// Sets how long the store remembers the fencing number of a repaired key.
    ///
    /// # Default
    /// 1 h
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Repairs one key, if its fencing number is still the one that the operator saw.
    ///
    /// # Errors
    /// [`Audit`](OperateError::Audit) if the intent cannot be recorded: nothing was changed.
    /// [`Unsupported`](OperateError::Unsupported) if the store offers no repairs. Otherwise the error of the store; after
    /// an ambiguous one, look at the key again.
    ///
    /// # Cancellation
    /// The repair may or may not be applied. Its audit entry has no result.
    pub async fn apply(&self, repair: Repair, key: &Key, seen: FencingToken) -> Result<RepairResult, OperateError> {
        let admin = self.store.capabilities().admin.ok_or(OperateError::Unsupported { action: "repair records" })?;
        let entry = self.entry.intent(repair.name(), key.as_str(), seen.0)?;
        self.audit.write(&entry).map_err(OperateError::Audit)?;
        let result = admin.forget(key, seen, repair == Repair::Release, self.retention).await;
        let outcome = match &result {
            Ok(Settled::Done) => "done".to_owned(),
            Ok(Settled::Lost { now }) => format!("changed: {now}"),
            Err(error) => format!("failed: {error}"),
        };
        write_result(&*self.audit, &entry.result(outcome));
        Ok(match result? {
            Settled::Done => RepairResult::Done,
            Settled::Lost { now } => RepairResult::Changed { now },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use idempotent_core::{Claim, ClaimRequest, Identity, MemoryStore, OnExpiry, OwnerToken, Scene};

    use super::*;
    use crate::AuditPhase;
    use crate::audit::MemoryAudit;

    fn key() -> Key {
        Identity::new(Scene::Mq, "orders", "o-17").key("shop").unwrap()
    }

    /// Returns a store with a consuming key, its fencing number, and a repairer.
    async fn consuming(most: usize) -> (FencingToken, Repairer, Arc<MemoryAudit>) {
        let store = Arc::new(MemoryStore::new());
        let request = ClaimRequest {
            key: key(),
            owner: OwnerToken(1),
            lease: Duration::from_secs(30),
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: Duration::from_secs(60),
            display: None,
        };
        let Claim::Acquired(grant) = Store::claim(&*store, &request).await.unwrap() else { unreachable!() };
        let log = Arc::new(MemoryAudit { entries: Mutex::default(), most });
        let repairer = Repairer::new(store, log.clone(), ("ann", "worker was removed"), "test", "memory:").unwrap();
        (grant.fencing, repairer, log)
    }

    #[tokio::test]
    async fn a_held_key_is_only_released_and_only_with_its_fencing_number() {
        let (fencing, repairer, log) = consuming(usize::MAX).await;
        let held = RepairResult::Changed { now: StateKind::Consuming };
        assert_eq!(repairer.apply(Repair::Forget, &key(), fencing).await.unwrap(), held);
        assert_eq!(repairer.apply(Repair::Release, &key(), FencingToken(fencing.0 - 1)).await.unwrap(), held);
        assert_eq!(repairer.apply(Repair::Release, &key(), fencing).await.unwrap(), RepairResult::Done);
        let vacant = RepairResult::Changed { now: StateKind::Vacant };
        assert_eq!(repairer.apply(Repair::Release, &key(), fencing).await.unwrap(), vacant);
        let entries = log.entries.lock().unwrap();
        let outcomes: Vec<_> = entries.iter().map(|entry| entry.outcome.as_deref()).collect();
        let expected = ["changed: consuming", "changed: consuming", "done", "changed: vacant"];
        assert_eq!(outcomes, expected.map(|outcome| [None, Some(outcome)]).concat());
        assert!(entries.chunks(2).all(|pair| pair[0].id == pair[1].id && pair[1].phase == AuditPhase::Result));
    }

    #[tokio::test]
    async fn without_an_intent_in_the_audit_log_nothing_is_changed() {
        let (fencing, repairer, _) = consuming(0).await;
        let refused = repairer.apply(Repair::Release, &key(), fencing).await;
        assert!(matches!(refused, Err(OperateError::Audit(_))), "{refused:?}");
        let record = repairer.store.peek(&key()).await.unwrap().unwrap();
        assert_eq!(record.state.kind(), StateKind::Consuming);
    }

    #[tokio::test]
    async fn a_lost_result_does_not_hide_the_repair() {
        let (fencing, repairer, log) = consuming(1).await;
        assert_eq!(repairer.apply(Repair::Release, &key(), fencing).await.unwrap(), RepairResult::Done);
        assert_eq!(log.entries.lock().unwrap().len(), 1);
    }

    #[test]
    fn an_author_without_a_name_and_a_reason_with_a_line_break_are_refused() {
        let long = "x".repeat(4_097);
        for (by, reason) in
            [("", "why"), (" ", "why"), (&long[..256], "why"), ("ann", ""), ("ann", "a\nb"), ("ann", &long)]
        {
            let made = Repairer::new(
                Arc::new(MemoryStore::new()),
                Arc::new(crate::TracingAudit),
                (by, reason),
                "test",
                "memory:",
            );
            assert!(matches!(made, Err(OperateError::Author { .. })));
        }
    }
}

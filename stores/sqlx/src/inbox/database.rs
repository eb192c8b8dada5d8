//! The interface of a database for the inbox.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Record, Settled, State, StepRecord, Store, StoreError,
    StoreErrorKind, StoredSteps, Timestamp,
};
use sqlx::{Database, Transaction};

/// A store whose database supports transactions for runs.
#[async_trait]
pub(crate) trait InboxDatabase: Store + Clone {
    type Db: Database;

    /// A statement that is the whole effect of a run, or [`Infallible`](std::convert::Infallible) if the database cannot
    /// execute one together with its claim.
    type Effect: Send + Sync + 'static;

    /// `true` if no other process can claim or take over while a transaction is open.
    const ONE_WRITER: bool;

    /// Begins a transaction in a separate task: if a `BEGIN` is dropped, sqlx returns its connection to the pool
    /// within the transaction. Marks the transaction, so that its end proves that it is still the same one.
    async fn begin(&self) -> Result<Transaction<'static, Self::Db>, StoreError>;

    /// Claims the key in the transaction. The record is not consumed before its completion, because a statement of the
    /// handler may commit the transaction. Never waits for another transaction, and never fails a statement of this one.
    async fn claim_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError>;

    /// Claims the key, executes the effect and records its result in one statement.
    async fn claim_with(
        &self,
        request: &ClaimRequest,
        retain: Duration,
        effect: &Self::Effect,
    ) -> Result<EffectClaim, StoreError>;

    /// Completes a claim, made with a lease or in this transaction. Called after [`stands`](Self::stands).
    async fn complete_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError>;

    /// Fails with [`TransactionEnded`](StoreErrorKind::TransactionEnded) if the connection is no longer in the transaction
    /// that the run began. Called before the first write at the end of a run: without its transaction, the write would be
    /// committed alone.
    async fn stands(&self, connection: &mut <Self::Db as Database>::Connection) -> Result<(), StoreError>;

    /// Records a step, if it is not recorded yet and the owner holds the key. No other process takes over before the
    /// transaction ends.
    async fn note_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        held: &ClaimHandle,
        step: &StepRecord,
    ) -> Result<Settled, StoreError>;

    /// Returns the steps of a run, or `None` while an open transaction may add to them.
    async fn journaled(&self, held: &ClaimHandle) -> Result<Option<StoredSteps>, StoreError>;

    /// Returns the statement that completes a claim of this transaction and can be sent together with the commit, or
    /// `None` if that saves no round trip.
    fn with_the_commit(&self, held: &ClaimHandle, completion: &Completion) -> Option<String>;

    /// Commits the transaction. The error is `Ambiguous` if the result is unknown, and
    /// [`TransactionEnded`](StoreErrorKind::TransactionEnded) if the transaction is not the one that the run began. Any
    /// other error means that the transaction was rolled back.
    async fn commit(&self, transaction: Transaction<'static, Self::Db>, last: FinalWrite) -> Result<(), StoreError>;

    /// Rolls back. The error is [`TransactionEnded`](StoreErrorKind::TransactionEnded) if the transaction is not the one that
    /// the run began. After another error, that is unknown.
    async fn roll_back(&self, transaction: Transaction<'static, Self::Db>) -> Result<(), StoreError>;

    /// Returns whether an unanswered commit succeeded, or `None` if it may still succeed.
    async fn is_committed(&self, held: &ClaimHandle) -> Result<Option<bool>, StoreError>;

    /// Returns the answer to a duplicate, if it costs less than a transaction.
    async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError>;
}

/// The answer to a claim that was sent together with its effect.
#[derive(Debug)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL executes effects with their claims"))]
pub(crate) enum EffectClaim {
    /// Claim, effect and record are committed.
    Executed { claim: Claim, rows: u64 },
    /// The key was not claimed, and the effect was not executed.
    Answered(Claim),
    /// Nothing was written. The claim may succeed in a transaction.
    NotExecuted,
}

/// The completion that a commit includes.
#[derive(Debug)]
pub(crate) enum FinalWrite {
    /// The completion was written just before.
    Written,
    /// The statement that completes is sent together with the commit. The statement either writes or fails.
    #[cfg_attr(not(any(feature = "mysql", feature = "postgres")), allow(dead_code, reason = "SQLite spares no trip"))]
    With(String),
}

/// Returns the answer to a claim in a transaction, and its write: as with a lease, except that a repeated grant is written
/// again, because the transaction of the first one may have ended.
pub(crate) fn in_place(found: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> (Claim, Write) {
    match protocol::claim(found, request, now) {
        (answer @ Claim::Acquired(_), Write::Keep) => (answer, found.cloned().map_or(Write::Keep, Write::Put)),
        decided => decided,
    }
}

/// Returns whether this owner completed the run of this record.
pub(crate) fn consumed(record: &Record, held: &ClaimHandle) -> bool {
    matches!(record.state, State::Consumed { owner, .. } if held.is(owner, record.fencing))
}

/// Returns the error for a transaction that was rolled back because of `error`.
pub(crate) fn rolled_back(error: &StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::RolledBack => StoreError::new(StoreErrorKind::RolledBack).because(text_of(error)),
        kind => StoreError::new(StoreErrorKind::RolledBack).because(format!("{kind}: {}", text_of(error))),
    }
}

/// Returns the error for a transaction that a statement of the handler has ended.
pub(crate) fn ended() -> StoreError {
    StoreError::new(StoreErrorKind::TransactionEnded).because(ENDED)
}

/// The cause and the remedy of a transaction that the handler has ended.
const ENDED: &str = "a statement of the handler committed or rolled back the transaction of its run (COMMIT, ROLLBACK, \
     BEGIN, a failed one such as a deadlock, or on MariaDB and MySQL one that commits implicitly, such as CREATE, ALTER, TRUNCATE or LOCK TABLES), so what it wrote \
     may be committed without its record; move that statement out of the handler";

/// Returns the text of an error without that of its kind.
pub(crate) fn text_of(error: &StoreError) -> String {
    let text = error.to_string();
    let kind = format!("{}: ", error.kind());
    text.strip_prefix(&kind).map_or(text.clone(), str::to_owned)
}

//! What a database has to do for the inbox.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Record, Settled, State, StepRecord, Store, StoreError,
    StoreErrorKind, StoredSteps, Timestamp,
};
use sqlx::{Database, Transaction};

/// A store whose database has transactions for runs.
#[async_trait]
pub(crate) trait Dialect: Store + Clone {
    type Db: Database;

    /// Whether nobody else can claim, or take over, while one of its transactions is open.
    const ONE_WRITER: bool;

    /// Begins one. In a task of its own: sqlx gives a connection whose `BEGIN` was dropped back to the pool, inside of that
    /// transaction.
    async fn begin(&self) -> Result<Transaction<'static, Self::Db>, StoreError>;

    /// Claims the key, and marks it consumed at once: a commit makes both true, a rollback neither. Never waits for
    /// another's transaction, and fails no statement of this one.
    async fn claim_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        request: &ClaimRequest,
        retain: Duration,
    ) -> Result<Claim, StoreError>;

    /// Completes what was claimed: a lease, or in this transaction.
    async fn complete_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError>;

    /// Fails where a run's transaction is not the one any more that it was begun as: some databases end one when a statement
    /// in it fails, and commit those behind it one by one. Asked where what follows would not find that out by itself.
    async fn stands(&self, connection: &mut <Self::Db as Database>::Connection) -> Result<(), StoreError>;

    /// Notes a step, if it is not there and the owner holds the key. Until the transaction's end nobody takes over.
    async fn note_in(
        &self,
        connection: &mut <Self::Db as Database>::Connection,
        held: &ClaimHandle,
        step: &StepRecord,
    ) -> Result<Settled, StoreError>;

    /// The steps of a run; `None` while an open transaction may yet add to them.
    async fn journaled(&self, held: &ClaimHandle) -> Result<Option<StoredSteps>, StoreError>;

    /// What completes a claim of this transaction's, for the trip of its commit; `None` where that spares nothing.
    fn with_the_commit(&self, held: &ClaimHandle, completion: &Completion) -> Option<String>;

    /// Commits. Of kind `Ambiguous` if nobody knows; else it is surely rolled back. A transaction that is over must not pass for
    /// committed.
    async fn commit(&self, transaction: Transaction<'static, Self::Db>, last: Last) -> Result<(), StoreError>;

    /// Whether a commit that was not answered was one; `None` if it may still become one.
    async fn is_committed(&self, held: &ClaimHandle) -> Result<Option<bool>, StoreError>;

    /// The answer to a duplicate, if that can be had for less than a transaction.
    async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError>;
}

/// What a commit goes with.
#[derive(Debug)]
pub(crate) enum Last {
    /// The completion was written just before, and would not have been otherwise.
    Written,
    /// It is what was claimed.
    AsClaimed,
    /// This statement is to be sent along. It fails, or cannot but write.
    #[cfg_attr(not(any(feature = "mysql", feature = "postgres")), allow(dead_code, reason = "SQLite spares no trip"))]
    With(String),
}

/// What a claim in a transaction comes to: as by a lease, but that the record is consumed at once.
pub(crate) fn in_place(
    found: Option<&Record>,
    request: &ClaimRequest,
    retain: Duration,
    now: Timestamp,
) -> (Claim, Write) {
    let (answer, write) = protocol::claim(found, request, now);
    let granted = match (&answer, write) {
        // Granted to this very token before: it is consumed all the same.
        (Claim::Acquired(_), Write::Keep) => found.cloned(),
        (Claim::Acquired(_), Write::Put(record)) => Some(record),
        (_, write) => return (answer, write),
    };
    let state = State::Consumed { owner: request.owner, value: None };
    let consumed =
        granted.map(|record| Record { state, expires_at: now + retain, updated_at: now, display: None, ..record });
    (answer, consumed.map_or(Write::Keep, Write::Put))
}

/// Whether this is the record of a run that was completed by this owner.
pub(crate) fn consumed(record: &Record, held: &ClaimHandle) -> bool {
    matches!(record.state, State::Consumed { owner, .. } if held.is(owner, record.fencing))
}

/// The error of a transaction of which nothing is there, as `error` tells why.
pub(crate) fn rolled_back(error: &StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::RolledBack => StoreError::new(StoreErrorKind::RolledBack).because(text_of(error)),
        kind => StoreError::new(StoreErrorKind::RolledBack).because(format!("{kind}: {}", text_of(error))),
    }
}

/// An error's words without those of its kind.
pub(crate) fn text_of(error: &StoreError) -> String {
    let text = error.to_string();
    let kind = format!("{}: ", error.kind());
    text.strip_prefix(&kind).map_or(text.clone(), str::to_owned)
}

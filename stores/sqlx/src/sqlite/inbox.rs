//! The inbox on an SQLite file. SQLite has one writer at a time: other writers wait for the transaction, and then find
//! its result.
use std::any::Any;
use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimMode, ClaimRequest, Completion, Inspect, Key, Record, Settled, StepRecord, StepStore,
    StoreError, StoreErrorKind, StoredSteps, Timestamp, Transactional,
};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use super::SqliteStore;
use super::batch::put_record;
use super::connection::query;
use super::error::is_busy;
use super::record_access::{id, now};
use super::transactions::savepoint;
use crate::answer;
use crate::inbox::{
    EffectClaim, FinalWrite, InboxDatabase, consumed, ended, in_place, rolled_back, step_transactions,
    transactional_run,
};
use crate::row;

impl SqliteStore {
    /// Claims the key as the first statement of the caller's transaction on this store's file. Call
    /// [`complete_in`](Self::complete_in) last, just before the commit, which stores the effect and the completed record
    /// together. If a statement commits the transaction before `complete_in`, the key is held by the lease of the
    /// request, and is free for another run afterwards.
    ///
    /// Begin the transaction by `begin_with("BEGIN IMMEDIATE")`: SQLite may refuse the first write of a transaction
    /// that has read before.
    ///
    /// Continue after [`Claim::Acquired`]. After any other answer, the effect must not happen.
    ///
    /// # Errors
    /// [`RolledBack`](StoreErrorKind::RolledBack): roll back, and run the whole transaction again. Other kinds: see
    /// the claim of a [`Store`](idempotent_core::Store).
    ///
    /// # Cancellation
    /// Roll back.
    pub async fn claim_in(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        let claim = InboxDatabase::claim_in(self, transaction, request).await?;
        if let Claim::Acquired(_) = claim {
            let mark = query(&self.0.access.sql.mark_claim).bind(id(&request.key));
            mark.execute(&mut **transaction).await.map_err(|error| self.of_a_transaction(error))?;
            self.execute_in(transaction, format!("SAVEPOINT {}", savepoint(request.owner.0))).await?;
        }
        Ok(claim)
    }

    /// Completes a key in the caller's transaction: a key that was claimed by a lease before, or the value of a key
    /// that was claimed [in the transaction](Self::claim_in), at the same level of savepoints. Commit after
    /// [`Settled::Done`]. After [`Settled::Lost`], the owner does not hold the key any more: roll back.
    ///
    /// # Errors
    /// Same as [`claim_in`](Self::claim_in). [`TransactionEnded`](StoreErrorKind::TransactionEnded): this is not the
    /// transaction of the claim. Roll back, and release the key by [`release`](idempotent_core::Store::release).
    ///
    /// # Cancellation
    /// Roll back.
    pub async fn complete_in(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError> {
        let release = format!("RELEASE {}", savepoint(held.owner.0));
        if self.execute_in(transaction, release).await.is_err() {
            let marked = query(&self.0.access.sql.is_marked).bind(id(&held.key));
            if marked.fetch_optional(&mut **transaction).await.map_err(|error| self.of_a_transaction(error))?.is_some()
            {
                return Err(ended());
            }
        }
        InboxDatabase::complete_in(self, transaction, held, completion).await
    }

    async fn execute_in(&self, connection: &mut SqliteConnection, text: String) -> Result<(), StoreError> {
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await;
        done.map(drop).map_err(|error| self.of_a_transaction(error))
    }

    async fn look_in(
        &self,
        connection: &mut SqliteConnection,
        key: &Key,
    ) -> Result<(Option<Record>, Timestamp), StoreError> {
        // Of one key: the time comes with it, whether it is there or not.
        let look = self.0.access.timed(query(&self.0.access.sql.look_all(1, false))).bind(id(key));
        let row = look.fetch_one(connection).await.map_err(|error| self.of_a_transaction(error))?;
        let found = if row::id(&row)?.is_some() { Some(row::record(&row)?) } else { None };
        Ok((found, now(&row)?))
    }

    async fn put_in(&self, connection: &mut SqliteConnection, key: &Key, record: &Record) -> Result<(), StoreError> {
        let put = put_record(query(&self.0.access.sql.put_all(1, false)), key, record);
        put.execute(connection).await.map(drop).map_err(|error| self.of_a_transaction(error))
    }

    /// Converts the error of a statement within a transaction. A lock that is refused there may never become free,
    /// because the transaction has read an old snapshot.
    fn of_a_transaction(&self, error: sqlx::Error) -> StoreError {
        let busy = is_busy(&error);
        let error = self.0.access.place.error(error);
        match busy || error.kind() == StoreErrorKind::Ambiguous {
            true => rolled_back(&error),
            false => error,
        }
    }
}

#[async_trait]
impl InboxDatabase for SqliteStore {
    type Db = Sqlite;
    type Effect = Infallible;
    const ONE_WRITER: bool = true;

    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let pool = self.0.transactions.pool()?.clone();
        let begin = format!("BEGIN IMMEDIATE; SAVEPOINT {}", self.0.transactions.mark);
        let begun = tokio::spawn(async move { pool.begin_with(AssertSqlSafe(begin)).await }).await;
        match begun.unwrap_or(Err(sqlx::Error::WorkerCrashed)) {
            Ok(mut transaction) => {
                self.0.transactions.note_session(&mut transaction).await;
                Ok(transaction)
            }
            Err(sqlx::Error::PoolTimedOut) => Err(self.0.access.place.no_turn(self.0.transactions.patience)),
            // Nothing was begun.
            Err(error) => {
                let error = self.0.access.place.error(error);
                match error.kind() {
                    StoreErrorKind::Ambiguous => {
                        Err(StoreError::new(StoreErrorKind::NotApplied).because(error.to_string()))
                    }
                    _ => Err(error),
                }
            }
        }
    }

    async fn claim_in(&self, connection: &mut SqliteConnection, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let (found, now) = self.look_in(connection, &request.key).await?;
        let (answer, write) = in_place(found.as_ref(), request, now);
        if let Write::Put(record) = write {
            self.put_in(connection, &request.key, &record).await?;
        }
        Ok(answer)
    }

    async fn claim_with(&self, _: &ClaimRequest, _: Duration, effect: &Infallible) -> Result<EffectClaim, StoreError> {
        match *effect {}
    }

    async fn complete_in(
        &self,
        connection: &mut SqliteConnection,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError> {
        let (found, now) = self.look_in(connection, &held.key).await?;
        let (settled, write) = protocol::complete(found.as_ref(), held, completion, now);
        if let Write::Put(record) = write {
            self.put_in(connection, &held.key, &record).await?;
        }
        Ok(settled)
    }

    async fn stands(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        // Some errors roll back the whole transaction, as `OR ROLLBACK` does.
        let mark = &self.0.transactions.mark;
        match self.execute_in(connection, format!("RELEASE {mark}; SAVEPOINT {mark}")).await {
            Ok(()) => Ok(()),
            Err(_) => {
                // For its guard to end: a ROLLBACK of nothing would leave the connection in no known state.
                let _ = sqlx::query("BEGIN").execute(connection).await;
                self.0.transactions.discard();
                Err(ended())
            }
        }
    }

    async fn note_in(
        &self,
        connection: &mut SqliteConnection,
        held: &ClaimHandle,
        step: &StepRecord,
    ) -> Result<Settled, StoreError> {
        let noted = self.noting(held, step).execute(&mut *connection).await;
        if noted.map_err(|error| self.of_a_transaction(error))?.rows_affected() > 0 {
            return Ok(Settled::Done);
        }
        let (found, now) = self.look_in(connection, &held.key).await?;
        match protocol::begun(found.as_ref(), held, now) {
            Ok(_) => Err(StoreError::new(StoreErrorKind::RolledBack).because("the step is recorded already")),
            Err(now) => Ok(Settled::Lost { now }),
        }
    }

    async fn journaled(&self, held: &ClaimHandle) -> Result<Option<StoredSteps>, StoreError> {
        // In a separate transaction, which begins after the end of the other one.
        let transaction = self.begin().await?;
        let _ = transaction.rollback().await;
        self.steps(held, Duration::ZERO).await.map(Some)
    }

    /// Returns `None`, because SQLite needs no round trips.
    fn with_the_commit(&self, _: &ClaimHandle, _: &Completion) -> Option<String> {
        None
    }

    async fn commit(&self, mut transaction: Transaction<'static, Sqlite>, _: FinalWrite) -> Result<(), StoreError> {
        self.0.transactions.check_session(&mut transaction).await;
        transaction.commit().await.map_err(|error| self.0.access.place.error(error))
    }

    async fn roll_back(&self, mut transaction: Transaction<'static, Sqlite>) -> Result<(), StoreError> {
        let stood = self.stands(&mut transaction).await;
        self.0.transactions.check_session(&mut transaction).await;
        let _ = transaction.rollback().await;
        stood
    }

    /// Returns whether the transaction was committed, after its connection has ended or has rolled back.
    async fn is_committed(&self, held: &ClaimHandle) -> Result<Option<bool>, StoreError> {
        // In a separate transaction, which begins after the end of the other one.
        let mut transaction = self.begin().await?;
        let (found, _) = self.look_in(&mut transaction, &held.key).await?;
        let _ = transaction.rollback().await;
        Ok(Some(found.is_some_and(|record| consumed(&record, held))))
    }

    /// Reads the record first: a duplicate of a consumed key needs no lock.
    async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError> {
        let seen = self.inspect(&request.key).await?;
        Ok(seen.and_then(|seen| answer::kept(protocol::claim(Some(&seen.record), request, seen.now))))
    }
}

impl Transactional for SqliteStore {
    fn transactional_run(&self, mode: ClaimMode) -> Box<dyn Any + Send> {
        transactional_run(self, mode)
    }

    fn step_transactions(&self) -> Box<dyn Any + Send> {
        step_transactions(self)
    }

    fn transaction(&self) -> &'static str {
        "`sqlx::Transaction<'_, sqlx::Sqlite>`"
    }
}

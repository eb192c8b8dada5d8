//! The transactions of runs: each is marked when it begins, and its end proves the mark.
//!
//! A statement of the handler may end the transaction: COMMIT and ROLLBACK, and on MariaDB and MySQL each change of the schema and
//! some errors. What follows is then committed by itself, or belongs to another transaction. The mark ends with its transaction.
use idempotent_core::{ClaimHandle, Completion, Entropy as _, OsEntropy, StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, Transaction};
use tokio::time::timeout;

use super::dialect::{Dialect, FailedProof};
use super::driver::Connection;
use super::error::Phase;
use super::statements::completed;
use super::store::ServerStore;
use super::value::{hex, id, owner};
use crate::inbox::{FinalWrite, RECORD_CHANGED, ended};
use crate::row::micros;

/// The size in bytes of the largest value in a statement as a literal, which takes two letters for each byte.
const SPELT: usize = 8 << 10;

/// Returns a new mark for the transactions of a store, which no handler can guess.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn run_mark() -> Result<String, StoreError> {
    let bits = OsEntropy.bits();
    let bits = bits.map_err(|error| StoreError::new(StoreErrorKind::NotApplied).because(error.to_string()))?;
    Ok(hex(&bits.to_be_bytes()))
}

impl<D: Dialect> ServerStore<D> {
    /// Begins a transaction in a spawned task: sqlx returns a connection to the pool inside the open transaction if the future
    /// of its `BEGIN` is dropped.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, D::Db>, StoreError> {
        self.runner.pool.before_transaction();
        let (pool, patience) = (self.runner.transactions.clone(), self.runner.patience);
        let begin = self.run.begin.clone();
        let beginning = async move { timeout(patience, pool.begin_with(AssertSqlSafe(begin))).await };
        let silent = || self.runner.place.silent(Phase::Connecting, patience);
        let begun = tokio::spawn(beginning).await.map_err(|_| silent())?.map_err(|_| silent())?;
        begun.map_err(|error| self.runner.place.error::<D>(Phase::Connecting, error))
    }

    /// Returns the completion as text, to send it together with the commit. Parsing the text costs more than a prepared
    /// statement, and less than a round trip. Returns `None` if the value is too large.
    pub(crate) fn with_the_commit(&self, held: &ClaimHandle, completion: &Completion) -> Option<String> {
        let value = completion.value.as_deref();
        if value.is_some_and(|value| value.len() > SPELT) {
            return None;
        }
        let value = value.map_or_else(|| "NULL".to_owned(), D::literal);
        let literals = [D::literal(&id(&held.key)), D::literal(&owner(held.owner))];
        let now = self.time().map_or_else(|| D::NOW.to_owned(), |time| time.to_string());
        let set = completed(&now, &value, &micros(completion.retain).to_string());
        Some(D::completing(self, literals, &set))
    }

    pub(crate) async fn stands(&self, connection: &mut Connection<D>) -> Result<(), StoreError> {
        self.end(connection, self.run.stands.clone()).await.map(drop)
    }

    pub(crate) async fn commit(
        &self,
        mut transaction: Transaction<'static, D::Db>,
        last: FinalWrite,
    ) -> Result<(), StoreError> {
        let text = match last {
            FinalWrite::Written => format!("{}; {}", self.run.is_same, self.run.commit),
            FinalWrite::With(statement) => format!("{}; {statement}; {}", self.run.stands, self.run.commit),
        };
        let is_changed = self.end(&mut transaction, text).await?;
        if is_changed {
            self.check_session(&mut transaction).await;
        }
        Ok(())
    }

    pub(crate) async fn roll_back(&self, mut transaction: Transaction<'static, D::Db>) -> Result<(), StoreError> {
        let ended = self.end(&mut transaction, self.run.roll_back.clone()).await;
        if ended.as_ref().is_err_and(|error| error.kind() != StoreErrorKind::TransactionEnded) {
            // If the rollback fails, the connection is lost, and the transaction ends with it.
            let _ = self.end(&mut transaction, self.run.recover.clone()).await;
        }
        if let Ok(true) = ended {
            self.check_session(&mut transaction).await;
        }
        ended.map(drop)
    }

    /// Ends the connection if its settings are still changed after the transaction: it returns to a pool. A setting that ended with
    /// the transaction, such as one by `SET LOCAL`, does no harm.
    async fn check_session(&self, connection: &mut Connection<D>) {
        let is_changed = self.end(connection, self.run.is_same.clone()).await;
        if is_changed.unwrap_or(true) {
            self.end_connection(connection).await;
        }
    }

    async fn end_connection(&self, connection: &mut Connection<D>) {
        // The server answers by an error, or not at all.
        let mut rows = Vec::new();
        let end = D::send_text(self.run.end_connection.clone(), connection, &mut rows);
        let _ = timeout(self.runner.patience, end).await;
    }

    /// Sends statements at the end of a transaction, in one round trip. A connection whose transaction is not that of its run is
    /// ended: it may hold locks, settings, or an open transaction of the handler.
    ///
    /// Returns true if the settings of the session are changed.
    async fn end(&self, connection: &mut Connection<D>, text: String) -> Result<bool, StoreError> {
        let mut rows = Vec::new();
        let ended = self.with_timeout(D::send_text(text, connection, &mut rows)).await;
        if ended.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::TransactionEnded) {
            if D::was_rolled_back(&rows) {
                let because = "the server rolled back the transaction for an error of its last statement";
                return Err(StoreError::new(StoreErrorKind::RolledBack).because(because));
            }
            self.end_connection(connection).await;
        }
        ended.map(|()| D::is_changed(&rows))
    }

    pub(super) async fn with_timeout<T>(
        &self,
        asked: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        let Ok(answer) = timeout(self.runner.patience, asked).await else {
            return Err(self.runner.place.silent(Phase::Executing, self.runner.patience));
        };
        answer.map_err(|error| match error.as_database_error().and_then(D::proof) {
            Some(FailedProof::Ended) => ended(),
            Some(FailedProof::NoRecord) => StoreError::new(StoreErrorKind::RolledBack).because(RECORD_CHANGED),
            None => self.runner.error(error),
        })
    }
}

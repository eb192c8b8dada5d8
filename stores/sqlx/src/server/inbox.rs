//! The inbox on a database server: claims and completions within a transaction.
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Grant, InFlight, Settled, StateKind, StoreError, StoreErrorKind,
};
use sqlx::{AssertSqlSafe, Transaction};
use tokio::time::timeout;

use super::dialect::{Dialect, WriteResult};
use super::driver::Connection;
use super::error::Phase;
use super::requests::{BETWEEN, by_owner};
use super::runner::StatementResult;
use super::statement::BoundStatement;
use super::statements::plus;
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use super::value::{id, owner};
use crate::answer::{self, TRIES};
use crate::inbox::{FinalWrite, consumed, in_place};
use crate::row::micros;

/// The number of attempts of a claim that meets a grant which its statement cannot see.
const ASKED: usize = 2;
/// The size in bytes of the largest value in a statement as a literal, which takes two letters for each byte.
const SPELT: usize = 8 << 10;

impl<D: Dialect> ServerStore<D> {
    /// Begins a transaction in a spawned task: sqlx returns a connection to the pool inside the open transaction if the future
    /// of its `BEGIN` is dropped.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, D::Db>, StoreError> {
        self.runner.pool.before_transaction();
        let (pool, patience) = (self.runner.transactions.clone(), self.runner.patience);
        let beginning = async move {
            let begin = async {
                match D::BEGIN {
                    Some(begin) => pool.begin_with(AssertSqlSafe(begin)).await,
                    None => pool.begin().await,
                }
            };
            timeout(patience, begin).await
        };
        let silent = || self.runner.place.silent(Phase::Connecting, patience);
        let begun = tokio::spawn(beginning).await.map_err(|_| silent())?.map_err(|_| silent())?;
        begun.map_err(|error| self.runner.place.error::<D>(Phase::Connecting, error))
    }

    /// Returns the answer for a key that is expected to have a record.
    pub(crate) async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError> {
        if !self.recent_keys.expects_a_record(&request.key) {
            return Ok(None);
        }
        let found = self.look(&request.key).await?;
        Ok(found.and_then(|seen| answer::kept(protocol::claim(Some(&seen.record), request, seen.now))))
    }

    pub(crate) async fn claim_in(
        &self,
        connection: &mut Connection<D>,
        request: &ClaimRequest,
        retain: Duration,
    ) -> Result<Claim, StoreError> {
        let mut target = StatementTarget::within(self, connection);
        for _ in 0..ASKED {
            // The lock was not available, or this statement cannot see a concurrent grant.
            let StatementResult::Done(Some(seen)) =
                D::claim(&mut target, self.claiming_in(request, retain), &request.key).await?
            else {
                continue;
            };
            let (answer, put) = self.answered_in(&mut target, &seen, request, retain).await?;
            match put {
                WriteResult::Done => {
                    self.recent_keys.saw(&request.key, &answer);
                    return Ok(answer);
                }
                // Another record by now. As this transaction has the lock, the next read is conclusive.
                WriteResult::Raced => {}
                WriteResult::Busy => break,
            }
        }
        Ok(Claim::InFlight(InFlight::Busy))
    }

    async fn answered_in(
        &self,
        target: &mut StatementTarget<'_, D>,
        FoundRecord { record, now, granted }: &FoundRecord,
        request: &ClaimRequest,
        retain: Duration,
    ) -> Result<(Claim, WriteResult), StoreError> {
        if *granted {
            let (fencing, attempt) = (record.fencing, record.attempt);
            let grant = Grant { fencing, attempt, lease: request.lease, taken_over: None };
            return Ok((Claim::Acquired(grant), WriteResult::Done));
        }
        let (answer, write) = in_place(Some(record), request, retain, *now);
        let Write::Put(new) = write else { return Ok((answer, WriteResult::Done)) };
        let put = D::put(target, self.putting(&self.in_transaction.put, &request.key, record, &new)).await?;
        Ok((answer, put))
    }

    fn claiming_in(&self, request: &ClaimRequest, retain: Duration) -> BoundStatement<D> {
        let fingerprint = request.fingerprint.map(|fingerprint| fingerprint.to_bytes().to_vec());
        let ask = BoundStatement::new(&self.in_transaction.claim).bind(id(&request.key)).bind(owner(request.owner));
        let ask = ask.bind(micros(retain)).bind(fingerprint).bind(request.key.name());
        self.timed(ask.bind(self.dialect.lock(&request.key)))
    }

    pub(crate) async fn complete_in(
        &self,
        connection: &mut Connection<D>,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError> {
        self.fits(completion)?;
        let mut target = StatementTarget::within(self, connection);
        for _ in 0..TRIES {
            let ask =
                by_owner(&self.in_transaction.complete, held).bind(completion.value.as_deref().map(<[u8]>::to_vec));
            let ask = self.timed(ask.bind(micros(completion.retain)).bind(self.dialect.lock(&held.key)));
            let put = D::put(&mut target, ask).await?;
            if let WriteResult::Done = put {
                return Ok(Settled::Done);
            }
            if let WriteResult::Raced = put
                && let StatementResult::Done(found) = target.look(&held.key).await?
            {
                return Ok(match found {
                    Some(seen) if consumed(&seen.record, held) => Settled::Done,
                    Some(seen) => Settled::Lost { now: seen.record.state.kind() },
                    None => Settled::Lost { now: StateKind::Absent },
                });
            }
            // A concurrent claim holds the lock for a short time.
            tokio::time::sleep(BETWEEN).await;
        }
        Err(StoreError::new(StoreErrorKind::RolledBack)
            .because("the key was claimed concurrently during every attempt: roll back, and run the transaction again"))
    }

    /// Returns the completion as text, to send it together with the commit. Parsing the text costs more than a prepared
    /// statement, and less than a round trip. Returns `None` if the value is too large.
    pub(crate) fn with_the_commit(&self, held: &ClaimHandle, completion: &Completion) -> Option<String> {
        let value = completion.value.as_deref();
        if value.is_some_and(|value| value.len() > SPELT) {
            return None;
        }
        let value = value.map_or_else(|| "NULL".to_owned(), D::literal);
        let literals = [D::literal(&id(&held.key)), D::literal(&owner(held.owner)), value];
        let now = self.time().map_or_else(|| D::NOW.to_owned(), |time| time.to_string());
        let expires = plus(&now, &micros(completion.retain).to_string());
        Some(D::valued(self, literals, &now, &expires))
    }

    pub(crate) async fn stands(&self, connection: &mut Connection<D>) -> Result<(), StoreError> {
        self.with_timeout(D::stands(connection)).await
    }

    pub(crate) async fn commit(
        &self,
        transaction: Transaction<'static, D::Db>,
        last: FinalWrite,
    ) -> Result<(), StoreError> {
        self.with_timeout(D::commit(transaction, last)).await
    }

    async fn with_timeout(&self, asked: impl Future<Output = Result<(), sqlx::Error>>) -> Result<(), StoreError> {
        match timeout(self.runner.patience, asked).await {
            Ok(done) => done.map_err(|error| self.runner.error(error)),
            Err(_) => Err(self.runner.place.silent(Phase::Executing, self.runner.patience)),
        }
    }

    pub(crate) async fn is_committed(&self, held: &ClaimHandle) -> Result<Option<bool>, StoreError> {
        // This query is first: writes are visible before the key is free.
        let free = D::is_free(self, &held.key).await?;
        let found = self.look(&held.key).await?;
        match found.is_some_and(|seen| consumed(&seen.record, held)) {
            true => Ok(Some(true)),
            false => Ok(free.then_some(false)),
        }
    }
}

/// The inbox of a store that is `Arc<ServerStore<…>>` by another name: its own methods, and what runs need.
macro_rules! server_inbox {
    ($store:ident, $db:ty, $dialect:ty, pool: $pool:literal, $meanwhile:literal) => {
        const _: () = {
            use ::std::any::Any;
            use ::std::time::Duration;

            use ::async_trait::async_trait;
            use ::idempotent_core::{
                Claim, ClaimMode, ClaimRequest, Completion, ClaimHandle, StoredSteps, Settled, StepRecord, StoreError, Transactional,
            };
            use ::sqlx::{Database, Transaction};
            use $crate::inbox::{EffectClaim, InboxDatabase, FinalWrite, transactional_run, step_transactions};

            impl $store {
                /// Claims the key in the caller's transaction on this store's database, and marks the key consumed. Call
                /// this method first in the transaction. The effect and the mark commit or roll back together. The
                /// transaction holds the key until its end.
                #[doc = $meanwhile]
                // prose-allow: continues the documentation above
                /// The claim has no lease and counts no attempts. Usually it takes one round trip.
                ///
                /// Continue on [`Claim::Acquired`], and ignore the lease of the grant. With any other answer the effect must
                /// not happen: end the transaction.
                ///
                /// ```no_run
                /// use std::time::Duration;
                /// use idempotent_core::{Claim, ClaimRequest, Identity, Scene};
                #[doc = concat!("use idempotent_sqlx::", stringify!($store), ";")]
                ///
                #[doc = concat!("# async fn example(pool: sqlx::", $pool, ") -> Result<(), Box<dyn std::error::Error>> {")]
                #[doc = concat!("let store = ", stringify!($store), "::on_pool(pool.clone()).connect().await?;")]
                // prose-allow: continues the example above
                /// let key = Identity::new(Scene::Mq, "orders", "o-17").key("shop")?;
                ///
                /// let mut tx = pool.begin().await?;
                /// match store.claim_in(&mut tx, &ClaimRequest::new(key)?, Duration::from_secs(7 * 24 * 3600)).await? {
                ///     Claim::Acquired(_) => {
                ///         sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 1").execute(&mut *tx).await?;
                ///         tx.commit().await?;
                ///     }
                ///     Claim::Consumed(_) => println!("done before"),
                ///     other => println!("not now: {other:?}"), // the transaction rolls back as it is dropped
                /// }
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// [`RolledBack`](::idempotent_core::StoreErrorKind::RolledBack): roll back, and run the whole transaction again;
                /// with isolation levels above READ COMMITTED a claim that lost a race may end so. Other kinds as with a
                /// [`Store`](::idempotent_core::Store)'s claim.
                ///
                /// # Cancellation
                /// Roll back.
                pub async fn claim_in(
                    &self,
                    transaction: &mut Transaction<'_, $db>,
                    request: &ClaimRequest,
                    retain: Duration,
                ) -> Result<Claim, StoreError> {
                    self.0.claim_in(transaction, request, retain).await
                }

                /// Completes a key in the caller's transaction. The key was claimed with a lease before the transaction, or
                /// [in the transaction](Self::claim_in). Stop renewing the lease first. Commit after [`Settled::Done`].
                /// [`Settled::Lost`] means that another owner took over: roll back.
                ///
                /// # Errors
                /// As [`claim_in`](Self::claim_in).
                ///
                /// # Cancellation
                /// Roll back.
                pub async fn complete_in(
                    &self,
                    transaction: &mut Transaction<'_, $db>,
                    held: &ClaimHandle,
                    completion: &Completion,
                ) -> Result<Settled, StoreError> {
                    self.0.complete_in(transaction, held, completion).await
                }
            }

            #[async_trait]
            impl InboxDatabase for $store {
                type Db = $db;
                type Effect = <$dialect as $crate::server::Dialect>::Effect;
                const ONE_WRITER: bool = false;

                async fn begin(&self) -> Result<Transaction<'static, $db>, StoreError> {
                    self.0.begin().await
                }

                async fn claim_in(
                    &self,
                    connection: &mut <$db as Database>::Connection,
                    request: &ClaimRequest,
                    retain: Duration,
                ) -> Result<Claim, StoreError> {
                    self.0.claim_in(connection, request, retain).await
                }

                async fn claim_with(
                    &self,
                    request: &ClaimRequest,
                    retain: Duration,
                    effect: &Self::Effect,
                ) -> Result<EffectClaim, StoreError> {
                    <$dialect as $crate::server::Dialect>::claim_with(&self.0, request, retain, effect).await
                }

                async fn complete_in(
                    &self,
                    connection: &mut <$db as Database>::Connection,
                    held: &ClaimHandle,
                    completion: &Completion,
                ) -> Result<Settled, StoreError> {
                    self.0.complete_in(connection, held, completion).await
                }

                async fn stands(&self, connection: &mut <$db as Database>::Connection) -> Result<(), StoreError> {
                    self.0.stands(connection).await
                }

                async fn note_in(
                    &self,
                    connection: &mut <$db as Database>::Connection,
                    held: &ClaimHandle,
                    step: &StepRecord,
                ) -> Result<Settled, StoreError> {
                    self.0.note_in(connection, held, step).await
                }

                async fn journaled(&self, held: &ClaimHandle) -> Result<Option<StoredSteps>, StoreError> {
                    self.0.journaled(held).await
                }

                fn with_the_commit(&self, held: &ClaimHandle, completion: &Completion) -> Option<String> {
                    self.0.with_the_commit(held, completion)
                }

                async fn commit(&self, transaction: Transaction<'static, $db>, last: FinalWrite) -> Result<(), StoreError> {
                    self.0.commit(transaction, last).await
                }

                async fn is_committed(&self, held: &ClaimHandle) -> Result<Option<bool>, StoreError> {
                    self.0.is_committed(held).await
                }

                async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError> {
                    self.0.look_first(request).await
                }
            }

            impl Transactional for $store {
                fn transactional_run(&self, mode: ClaimMode) -> Box<dyn Any + Send> {
                    transactional_run(self, mode)
                }

                fn step_transactions(&self) -> Box<dyn Any + Send> {
                    step_transactions(self)
                }

                fn transaction(&self) -> &'static str {
                    concat!("`sqlx::Transaction<'_, sqlx::", stringify!($db), ">`")
                }
            }
        };
    };
}
pub(crate) use server_inbox;

//! The inbox on a database server: claims and completions within a transaction.
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Settled, StateKind, StoreError, StoreErrorKind,
};

use super::dialect::{Dialect, WriteResult};
use super::driver::Connection;
use super::requests::{BETWEEN, by_owner, decide};
use super::runner::StatementResult;
use super::statement::BoundStatement;
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use super::value::{hex, owner};
use crate::answer::TRIES;
use crate::inbox::{consumed, ended, in_place};
use crate::row::micros;

/// The number of attempts of a claim that meets a grant which its statement cannot see.
const ASKED: usize = 2;

impl<D: Dialect> ServerStore<D> {
    /// Returns the answer for a key that is expected to have a record.
    pub(crate) async fn look_first(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError> {
        if !self.recent_keys.expects_a_record(&request.key) {
            return Ok(None);
        }
        self.existing(request).await
    }

    pub(crate) async fn claim_in(
        &self,
        connection: &mut Connection<D>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        let mut target = StatementTarget::within(self, connection);
        for _ in 0..ASKED {
            // The lock was not available, or this statement cannot see a concurrent grant.
            let claim = BoundStatement::new(&self.in_transaction.claim).bind_all(self.claiming(request));
            let StatementResult::Done(Some(seen)) = D::claim(&mut target, self.timed(claim), &request.key).await?
            else {
                continue;
            };
            let (answer, put) = self.answered_in(&mut target, &seen, request).await?;
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
        seen: &FoundRecord,
        request: &ClaimRequest,
    ) -> Result<(Claim, WriteResult), StoreError> {
        let (answer, write) = match seen.granted {
            true => decide(seen, request),
            false => in_place(Some(&seen.record), request, seen.now),
        };
        let Write::Put(new) = write else { return Ok((answer, WriteResult::Done)) };
        let put = self.putting(&self.in_transaction.put, &request.key, &seen.record, &new);
        Ok((answer, D::put(target, put).await?))
    }

    /// Claims the key in a transaction of the caller, and marks the transaction.
    pub(crate) async fn claim_marked(
        &self,
        connection: &mut Connection<D>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        let claim = self.claim_in(connection, request).await?;
        if let Claim::Acquired(_) = claim {
            self.with_timeout(D::mark_claim(connection, &hex(&owner(request.owner)))).await?;
        }
        Ok(claim)
    }

    /// Completes a claim in a transaction of the caller.
    pub(crate) async fn complete_marked(
        &self,
        connection: &mut Connection<D>,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError> {
        let is_marked = self.with_timeout(D::is_marked(connection, &hex(&owner(held.owner)))).await?;
        self.complete_in(connection, held, completion, is_marked).await
    }

    /// Completes a claim. `is_proved`: this is known to be the transaction of the claim, if it was claimed in one.
    pub(crate) async fn complete_in(
        &self,
        connection: &mut Connection<D>,
        held: &ClaimHandle,
        completion: &Completion,
        is_proved: bool,
    ) -> Result<Settled, StoreError> {
        self.fits(completion)?;
        let mut target = StatementTarget::within(self, connection);
        for _ in 0..TRIES {
            let ask =
                by_owner(&self.in_transaction.complete, held).bind(completion.value.as_deref().map(<[u8]>::to_vec));
            let ask = ask.bind(micros(completion.retain)).bind(self.dialect.lock(&held.key));
            let ask = self.timed(ask.bind(i64::from(is_proved)));
            let put = D::put(&mut target, ask).await?;
            if let WriteResult::Done = put {
                return Ok(Settled::Done);
            }
            if let WriteResult::Raced = put
                && let StatementResult::Done(found) = target.look(&held.key).await?
            {
                return match found {
                    Some(seen) if consumed(&seen.record, held) => Ok(Settled::Done),
                    // The owner still holds the key, in another transaction.
                    Some(seen) if protocol::begun(Some(&seen.record), held, seen.now).is_ok() => Err(ended()),
                    Some(seen) => Ok(Settled::Lost { now: seen.record.state.kind() }),
                    None => Ok(Settled::Lost { now: StateKind::Absent }),
                };
            }
            // A concurrent claim holds the lock for a short time.
            tokio::time::sleep(BETWEEN).await;
        }
        Err(StoreError::new(StoreErrorKind::RolledBack)
            .because("the key was claimed concurrently during every attempt: roll back, and run the transaction again"))
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
                /// Claims the key in the caller's transaction on this store's database. Call this method first in the
                /// transaction, and [`complete_in`](Self::complete_in) last, just before the commit: the effect and the
                /// completed record commit or roll back together. The transaction holds the key until its end.
                #[doc = $meanwhile]
                // prose-allow: continues the documentation above
                /// The claim counts no attempts if the transaction rolls back. If a statement commits the transaction before
                /// `complete_in`, the key is held by the lease of the request, and is free for another run afterwards.
                /// Usually the claim takes one round trip, and one more on MariaDB and MySQL.
                ///
                /// Continue on [`Claim::Acquired`]. With any other answer the effect must not happen: end the transaction.
                ///
                /// ```no_run
                /// use std::time::Duration;
                /// use idempotent_core::{Claim, ClaimHandle, ClaimRequest, Completion, Identity, Scene, Settled};
                #[doc = concat!("use idempotent_sqlx::", stringify!($store), ";")]
                ///
                #[doc = concat!("# async fn example(pool: sqlx::", $pool, ") -> Result<(), Box<dyn std::error::Error>> {")]
                #[doc = concat!("let store = ", stringify!($store), "::on_pool(pool.clone()).connect().await?;")]
                // prose-allow: continues the example above
                /// let key = Identity::new(Scene::Mq, "orders", "o-17").key("shop")?;
                ///
                /// let request = ClaimRequest::new(key.clone())?;
                /// let mut tx = pool.begin().await?;
                /// match store.claim_in(&mut tx, &request).await? {
                ///     Claim::Acquired(grant) => {
                ///         sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 1").execute(&mut *tx).await?;
                ///         let held = ClaimHandle { key, owner: request.owner, fencing: Some(grant.fencing), terms: None };
                ///         let done = Completion { value: None, retain: Duration::from_secs(7 * 24 * 3600) };
                ///         if store.complete_in(&mut tx, &held, &done).await? == Settled::Done {
                ///             tx.commit().await?;
                ///         }
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
                ) -> Result<Claim, StoreError> {
                    self.0.claim_marked(transaction, request).await
                }

                /// Completes a key in the caller's transaction. The key was claimed with a lease before the transaction, or
                /// [in the transaction](Self::claim_in). Stop renewing the lease first. Commit after [`Settled::Done`].
                /// [`Settled::Lost`] means that the owner does not hold the key any more: roll back. Complete a claim of the
                /// transaction at the same level of savepoints at which it was claimed.
                ///
                /// # Errors
                /// As [`claim_in`](Self::claim_in).
                /// [`TransactionEnded`](::idempotent_core::StoreErrorKind::TransactionEnded): this is not the transaction of
                /// the claim. Roll back, close the connection, and release the key by
                /// [`release`](::idempotent_core::Store::release).
                ///
                /// # Cancellation
                /// Roll back.
                pub async fn complete_in(
                    &self,
                    transaction: &mut Transaction<'_, $db>,
                    held: &ClaimHandle,
                    completion: &Completion,
                ) -> Result<Settled, StoreError> {
                    self.0.complete_marked(transaction, held, completion).await
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
                ) -> Result<Claim, StoreError> {
                    self.0.claim_in(connection, request).await
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
                    self.0.complete_in(connection, held, completion, true).await
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

                async fn roll_back(&self, transaction: Transaction<'static, $db>) -> Result<(), StoreError> {
                    self.0.roll_back(transaction).await
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

//! The producer's side of a sequence: registering numbers before their messages are sent.
use super::encoding::{decode, encode};
use super::order_table::{OrderTable, TableFull, table_retention};
use super::position::table_key;
use super::sequence::{MAX_CONTENTION, contention_error};
use crate::{Executor, Identity, MAX_WAITING_RANGES, PolicyError, Registered, Rejection, StoreError, StoreErrorKind};

impl Executor {
    /// Registers numbers of a stream, so that larger numbers wait for them. Call this before the messages are sent.
    ///
    /// Registering a number again has no effect. If the message of a registered number is never sent,
    /// [`on_broken_order`](crate::Policy::on_broken_order) applies.
    ///
    /// `stream` identifies the stream of [`Call::sequence`](crate::Call::sequence): the scene and scope of the handler,
    /// its prefix and tenant if it has any, and the name of the stream.
    ///
    /// ```
    /// use idempotent_core::{Executor, Identity, MemoryStore, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let producer = Executor::new(MemoryStore::new());
    /// let points = |user: &str| Identity::new(Scene::Mq, "points", user);
    /// let registered = producer.register(&points("ann"), 1..=3).await.unwrap();
    /// assert_eq!((registered.expected, registered.late), (3, 0));
    ///
    /// let refused = producer.register(&points(""), [1]).await.unwrap_err();
    /// assert!(refused.to_string().contains("is empty"));
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`Rejection::Key`] if the identity is not valid, [`Rejection::Policy`] if the store keeps no order tables, and
    /// [`Rejection::Store`] if the store fails or the stream would have more than [`MAX_WAITING_RANGES`] waiting ranges of
    /// numbers. In each case, none of the numbers is registered.
    ///
    /// # Cancellation
    /// The numbers may or may not be registered. Registering them again is safe.
    pub async fn register(
        &self,
        stream: &Identity,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<Registered, Rejection> {
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let key = table_key(&stream.key(&self.0.namespace)?);
        let policy = self.0.resolve_policy(&stream.scene, None)?;
        let order = self.0.store.capabilities().order.ok_or_else(|| PolicyError::no_order(&self.0.store))?;
        let retention = table_retention(policy.retain, policy.retain_failures, policy.on_broken_order.patience());
        let timeout = policy.lease / 3;
        for _ in 0..MAX_CONTENTION {
            let stored = self.0.with_timeout(timeout, order.load(&key)).await?.table;
            let table = stored.as_deref().map(decode).transpose()?.unwrap_or_default();
            let (next, registered) = expect_all(table.clone(), &numbers).map_err(|TableFull| table_full_error())?;
            // Writes an unchanged table too, since its retention may end soon.
            if self
                .0
                .with_timeout(timeout, order.compare_and_swap(&key, stored.as_deref(), &encode(&next), retention))
                .await?
            {
                return Ok(registered);
            }
        }
        Err(contention_error().into())
    }
}

fn expect_all(mut table: OrderTable, numbers: &[u64]) -> Result<(OrderTable, Registered), TableFull> {
    let mut registered = Registered::default();
    for number in numbers {
        match table.expect_number(*number)? {
            true => registered.expected += 1,
            false => registered.late += 1,
        }
    }
    Ok((table, registered))
}

fn table_full_error() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because(format!(
        "no number was registered: the stream has {MAX_WAITING_RANGES} waiting ranges of numbers, the maximum; wait until some have \
         run, use consecutive numbers, or split the stream"
    ))
}

//! Recording the outcomes of messages. A caller that arrives while another one writes waits for the lock, and then
//! writes the outcomes of all waiting callers together. No caller waits for more outcomes to arrive.
use std::collections::{BTreeMap, HashSet};
use std::mem::take;
use std::sync::{Arc, PoisonError};

use idempotent_mq::{DeliveryResult, LoggedDelivery};
use tokio::sync::oneshot;

use super::confirmation_queue::{PendingConfirmation, WriteResult};
use super::database::{OutboxDb, SqlValue};
use super::message_log::consumer_row;
use super::nonce::{Nonce, nonce_of};
use super::record::OutboxStatus;
use super::statements::{OF_CONSUMER, OF_MESSAGE};
use super::{Outbox, OutboxError};

/// The maximum number of rows in one statement.
const MAX_ROWS: usize = 400;

impl<Db: OutboxDb> Outbox<Db> {
    /// Records the outcome of a delivery, together with those of concurrent callers.
    ///
    /// # Cancellation
    /// The outcome may or may not be recorded. Callers whose outcomes this future was recording then record these
    /// themselves.
    pub(super) async fn end(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> WriteResult {
        // The message has another producer: the consumer does not conclude it, and the outbox has no row for it.
        let Some(nonce) = nonce_of(receipt) else { return Ok(()) };
        let confirmations = &self.0.confirmations;
        loop {
            let (told, mut answer) = oneshot::channel();
            let end = PendingConfirmation { receipt: receipt.clone(), nonce, how, told };
            confirmations.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            let writing = tokio::select! {
                biased;
                told = &mut answer => match told {
                    Ok(told) => return told,
                    // The caller that was recording the outcome was dropped.
                    Err(_) => continue,
                },
                writing = confirmations.writing.lock() => writing,
            };
            let all = take(&mut *confirmations.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            let mut all = all.into_iter().peekable();
            while all.peek().is_some() {
                let part: Vec<_> = all.by_ref().take(MAX_ROWS).collect();
                let told = self.write_confirmations(&part).await.map_err(Arc::new);
                for end in part {
                    // The waiting caller may have been dropped.
                    let _ = end.told.send(told.clone());
                }
            }
            drop(writing);
            if let Ok(told) = answer.try_recv() {
                return told;
            }
        }
    }

    /// Updates the records, then adds the rows of the consumers that are done, and then removes the log rows of the
    /// runs. If the process dies in between, log rows remain and the next deliveries remove them. A message without
    /// its consumer's row runs again, and its duplicate adds the row.
    async fn write_confirmations(&self, confirmations: &[PendingConfirmation]) -> Result<(), OutboxError> {
        let of = |of: &[DeliveryResult]| {
            let of_them = confirmations.iter().filter(|end| of.contains(&end.how));
            // Each row once, and in the same order in every process, which prevents deadlocks.
            of_them.map(|end| (end.receipt.id.as_bytes(), end.nonce)).collect::<BTreeMap<_, _>>()
        };
        let ids = |how: &[DeliveryResult]| of(how).into_keys().collect::<Vec<_>>();
        self.settle(of(&[DeliveryResult::Done, DeliveryResult::Expired]), OutboxStatus::Confirmed).await?;
        self.settle(of(&[DeliveryResult::DeadLettered]), OutboxStatus::Dead).await?;
        self.note_consumers(confirmations).await?;
        let statements = &self.0.statements;
        let over = ids(&[
            DeliveryResult::Done,
            DeliveryResult::Expired,
            DeliveryResult::Void,
            DeliveryResult::DeadLettered,
            DeliveryResult::Failed,
        ]);
        if !over.is_empty() {
            let args =
                [SqlValue::from(OF_MESSAGE)].into_iter().chain(over.iter().map(|id| SqlValue::from(*id))).collect();
            self.execute(statements.forget(over.len()), args).await?;
        }
        for end in confirmations {
            let id = end.receipt.id.as_bytes();
            // A run that continues in another process keeps its log row.
            if over.binary_search(&id).is_err() {
                let run = SqlValue::from(&end.receipt.number.to_be_bytes()[..]);
                self.execute(statements.forget_own(), vec![SqlValue::from(OF_MESSAGE), SqlValue::from(id), run])
                    .await?;
            }
        }
        Ok(())
    }

    /// Records which consumers have consumed a message. An expired or dead-lettered message has not been consumed.
    async fn note_consumers(&self, confirmations: &[PendingConfirmation]) -> Result<(), OutboxError> {
        let done = confirmations.iter().filter(|end| end.how == DeliveryResult::Done);
        let rows = done.filter_map(|end| Some((consumer_row(&end.receipt, &end.nonce)?, end.receipt.number)));
        // Each row once, and in the same order in every process, which prevents deadlocks.
        let rows: BTreeMap<_, _> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let args = rows.iter().flat_map(|(id, run)| {
            let run = SqlValue::from(&run.to_be_bytes()[..]);
            [SqlValue::from(OF_CONSUMER), SqlValue::from(&id[..]), run, SqlValue::Bytes(None), self.now()]
        });
        self.execute(self.0.statements.log(rows.len()), args.collect()).await.map(drop)
    }

    async fn settle(&self, messages: BTreeMap<&[u8], Nonce>, status: OutboxStatus) -> Result<(), OutboxError> {
        let (statements, confirmed) = (&self.0.statements, status == OutboxStatus::Confirmed);
        let messages: Vec<_> = messages.into_iter().collect();
        let args = |messages: &[(&[u8], Nonce)]| {
            let head = [SqlValue::from(status.number()), self.now()].into_iter();
            let ids = messages.iter().map(|(id, _)| SqlValue::from(*id));
            head.chain(ids).chain(messages.iter().map(|(_, nonce)| SqlValue::from(&nonce[..]))).collect()
        };
        let mut settled = HashSet::new();
        if messages.len() > 1 && statements.settles_many() {
            let rows = self.fetch(statements.settle(confirmed, messages.len()), args(&messages), "b").await?;
            settled.extend(rows.into_iter().map(|mut row| row.bytes()));
        }
        // Rows that are locked, already settled, or removed in the meantime.
        for message in messages.iter().filter(|(id, _)| !settled.contains(*id)) {
            self.execute(statements.settle(confirmed, 1), args(&[*message])).await?;
        }
        Ok(())
    }
}

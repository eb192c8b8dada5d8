//! What became of messages, written for many at once: who ends one while others' ends are being written waits, and is written
//! with all who came meanwhile. Nobody waits for more to come.
use std::collections::HashSet;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use idempotent_mq::{Concluded, Receipt};
use tokio::sync::{Mutex as Turn, oneshot};

use super::desk::{Arg, OutboxDb};
use super::sql::OF_MESSAGE;
use super::stub::Status;
use super::{Outbox, OutboxError};

#[derive(Debug, Default)]
pub(super) struct Ends {
    waiting: Mutex<Vec<End>>,
    turn: Turn<()>,
}

#[derive(Debug)]
struct End {
    receipt: Receipt,
    how: Concluded,
    told: oneshot::Sender<Told>,
}

type Told = Result<(), Arc<OutboxError>>;

/// The most of one statement.
const MOST: usize = 400;

impl<Db: OutboxDb> Outbox<Db> {
    /// Writes what became of one, together with others.
    ///
    /// # Cancellation
    /// It may be written or not. Those it was writing for write for themselves.
    pub(super) async fn end(&self, receipt: &Receipt, how: Concluded) -> Told {
        let ends = &self.0.ends;
        loop {
            let (told, mut answer) = oneshot::channel();
            let end = End { receipt: receipt.clone(), how, told };
            ends.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            let turn = tokio::select! {
                biased;
                told = &mut answer => match told {
                    Ok(told) => return told,
                    // Whoever was writing it is gone.
                    Err(_) => continue,
                },
                turn = ends.turn.lock() => turn,
            };
            let all = take(&mut *ends.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            let mut all = all.into_iter().peekable();
            while all.peek().is_some() {
                let part: Vec<_> = all.by_ref().take(MOST).collect();
                let told = self.write_ends(&part).await.map_err(Arc::new);
                for end in part {
                    // One that is gone does not mind.
                    let _ = end.told.send(told.clone());
                }
            }
            drop(turn);
            if let Ok(told) = answer.try_recv() {
                return told;
            }
        }
    }

    /// First the stubs, then the notes: whoever dies in between leaves notes that the next deliveries remove.
    async fn write_ends(&self, ends: &[End]) -> Result<(), OutboxError> {
        let ids = |of: &[Concluded]| {
            let of_them = ends.iter().filter(|end| of.contains(&end.how));
            // In order, as everybody: and once each.
            let mut ids: Vec<_> = of_them.map(|end| end.receipt.id.as_bytes()).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        self.settle(ids(&[Concluded::Done]), Status::Confirmed).await?;
        self.settle(ids(&[Concluded::PutAside]), Status::Dead).await?;
        let texts = &self.0.texts;
        let over = ids(&[Concluded::Done, Concluded::PutAside, Concluded::Failed]);
        if !over.is_empty() {
            let args = [Arg::from(OF_MESSAGE)].into_iter().chain(over.iter().map(|id| Arg::from(*id))).collect();
            self.execute(texts.forget(over.len()), args).await?;
        }
        for end in ends {
            let id = end.receipt.id.as_bytes();
            // A run that goes on elsewhere keeps its note.
            if over.binary_search(&id).is_err() {
                let run = Arg::from(&end.receipt.number.to_be_bytes()[..]);
                self.execute(texts.forget_own(), vec![Arg::from(OF_MESSAGE), Arg::from(id), run]).await?;
            }
        }
        Ok(())
    }

    async fn settle(&self, ids: Vec<&[u8]>, status: Status) -> Result<(), OutboxError> {
        let (texts, confirmed) = (&self.0.texts, status == Status::Confirmed);
        let args = |ids: &[&[u8]]| {
            let head = [Arg::from(status.number()), self.now()];
            head.into_iter().chain(ids.iter().map(|id| Arg::from(*id))).collect()
        };
        let mut settled = HashSet::new();
        if ids.len() > 1 && texts.settles_many() {
            let rows = self.fetch(texts.settle(confirmed, ids.len()), args(&ids), "b").await?;
            settled.extend(rows.into_iter().map(|mut row| row.bytes()));
        }
        // Locked by somebody, settled before, or none of ours.
        for id in ids.iter().filter(|id| !settled.contains(**id)) {
            self.execute(texts.settle(confirmed, 1), args(&[id])).await?;
        }
        Ok(())
    }
}

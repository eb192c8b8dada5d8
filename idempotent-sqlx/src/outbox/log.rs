//! The message log: what consumers have in hand, and how far they have come in each queue.
use std::collections::BTreeMap;

use async_trait::async_trait;
use idempotent_mq::{Concluded, LogError, LogErrorKind, MessageLog, Receipt};

use super::desk::{Arg, OutboxDb};
use super::place::{Place, place_of, queue_of};
use super::sql::{OF_MESSAGE, OF_QUEUE};
use super::stub::Status;
use super::{Outbox, OutboxError};

/// The most rows of one statement.
const MOST: usize = 1_000;
/// The longest id or queue that a row takes; a longer one is none of this outbox's.
const LONGEST: usize = 255;

/// Set as a consumer's log, it sees which messages have arrived and confirms those that are done. Ids it does not know are no
/// error. A message that goes to several groups is confirmed by the first that is done: give the log to the one that counts.
#[async_trait]
impl<Db: OutboxDb> MessageLog for Outbox<Db> {
    async fn received(&self, receipts: &[Receipt]) -> Result<(), LogError> {
        let rows = rows(receipts);
        let rows: Vec<_> = rows.into_iter().collect();
        for part in rows.chunks(MOST) {
            let mut args = Vec::with_capacity(part.len() * 5);
            for ((kind, id), (run, place)) in part {
                args.extend([
                    Arg::from(*kind),
                    Arg::from(id.as_bytes()),
                    Arg::from(&run.to_be_bytes()[..]),
                    Arg::from(place.map(Place::to_bytes).as_ref().map(|bytes| &bytes[..])),
                    self.now(),
                ]);
            }
            self.execute(self.0.texts.log(part.len()), args).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn concluded(&self, receipt: &Receipt, how: Concluded) -> Result<(), LogError> {
        let id = || Arg::from(receipt.id.as_bytes());
        // First the stub, then the note: whoever dies in between leaves a note that the next delivery removes.
        match how {
            Concluded::Done => self.settle(id(), Status::Confirmed).await?,
            Concluded::PutAside => self.settle(id(), Status::Dead).await?,
            _ => {}
        }
        let texts = &self.0.texts;
        let forgotten = match how {
            Concluded::Done | Concluded::PutAside | Concluded::Failed => {
                self.execute(texts.forget(false), vec![Arg::from(OF_MESSAGE), id()]).await
            }
            // That of a run that goes on elsewhere stays.
            _ => {
                let run = Arg::from(&receipt.number.to_be_bytes()[..]);
                self.execute(texts.forget(true), vec![Arg::from(OF_MESSAGE), id(), run]).await
            }
        };
        forgotten.map(drop).map_err(failed)
    }
}

impl<Db: OutboxDb> Outbox<Db> {
    async fn settle(&self, id: Arg, status: Status) -> Result<(), LogError> {
        let args = vec![Arg::from(status.number()), self.now(), id];
        self.execute(self.0.texts.settle(status == Status::Confirmed), args).await.map(drop).map_err(failed)
    }
}

type Rows = BTreeMap<(i64, String), (u128, Option<Place>)>;

/// A row for each message and each queue: once each, since no statement may write a row twice, and in the same order in each
/// process, so that none waits for one that waits for it.
fn rows(receipts: &[Receipt]) -> Rows {
    let mut rows = Rows::new();
    for receipt in receipts.iter().filter(|receipt| receipt.id.len() <= LONGEST) {
        let (queue, place) = (queue_of(&receipt.position), place_of(&receipt.position));
        rows.entry((OF_MESSAGE, receipt.id.clone())).or_insert((receipt.number, place));
        if place.is_some() && queue.len() <= LONGEST {
            let reached = rows.entry((OF_QUEUE, queue)).or_insert((0, place));
            reached.1 = reached.1.max(place);
        }
    }
    rows
}

fn failed(error: OutboxError) -> LogError {
    LogError::new(LogErrorKind::Transient, "the outbox's database did not take a note").with_cause(error)
}

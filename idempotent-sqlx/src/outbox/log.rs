//! The message log: what consumers have in hand, and how far they have come in each queue.
use std::collections::BTreeMap;
use std::error::Error;

use async_trait::async_trait;
use idempotent_mq::{Concluded, LogError, LogErrorKind, MessageLog, Receipt};

use super::Outbox;
use super::desk::{Arg, OutboxDb};
use super::place::{Place, place_of, queue_of};
use super::sql::{OF_MESSAGE, OF_QUEUE};

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
        self.end(receipt, how).await.map_err(failed)
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

fn failed(error: impl Error + Send + Sync + 'static) -> LogError {
    LogError::new(LogErrorKind::Transient, "the outbox's database did not take a note").with_cause(error)
}

//! The delay table as a source of the consumer runtime.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_mq::{
    DelaySupport, Delivery, Position, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::task::JoinHandle;
use tracing::warn;

use super::DelayTable;
use super::database::DelayDb;
use super::error::source_error;
use super::poll_scheduler::PollScheduler;
use super::settler::{DelayTableSettler, DelayTableTag};
use super::taken_task::TakenTask;

/// A source that delivers the due tasks of a [`DelayTable`] to a [`Consumer`](idempotent_mq::Consumer) with annotated
/// handlers.
///
/// Between two deliveries the source sleeps until the next known task is due, or until this process schedules an
/// earlier one. The sleep lasts at most one [poll](super::DelayTableBuilder::poll), because other processes schedule
/// tasks as well.
///
/// The consumer counts attempts on the delivery. Consecutive deliveries that were not settled in time are counted
/// separately. A task whose row cannot be read becomes a dead letter before any handler sees it.
pub struct DelayTableSource<Db: DelayDb> {
    table: DelayTable<Db>,
    settler: Arc<DelayTableSettler<Db>>,
    scheduler: PollScheduler<Db>,
    /// The running take, which continues even if `receive` is dropped, so that no task is lost.
    pending: Option<(usize, PendingTake)>,
}

type PendingTake = JoinHandle<Result<(Vec<TakenTask>, usize), StoreError>>;

const SHORTEST_WINDOW: Duration = Duration::from_millis(10);
const LONGEST_WINDOW: Duration = Duration::from_secs(3_600);

impl<Db: DelayDb> DelayTable<Db> {
    /// Returns a source of deliveries for a [`Consumer`](idempotent_mq::Consumer). Any number of sources, in any
    /// number of processes, share the tasks.
    #[must_use]
    pub fn source(&self) -> DelayTableSource<Db> {
        DelayTableSource::new(self)
    }
}

impl<Db: DelayDb> DelayTableSource<Db> {
    pub(super) fn new(table: &DelayTable<Db>) -> Self {
        let settler = Arc::new(DelayTableSettler(table.clone()));
        Self { table: table.clone(), settler, scheduler: PollScheduler::new(table), pending: None }
    }

    /// Puts the due times within the next `window` on a hierarchical timing wheel in this process: 10 ms to 1 h, and
    /// at most 10,000 times. All tasks stay in the table, with all of its guarantees. Use the wheel if a single
    /// process schedules tasks, as with SQLite.
    ///
    /// Without the wheel, each due time costs a look for the next one in addition to the take. With the wheel, one
    /// look covers a whole window, and tasks of this process need no look. In return, tasks that *another* process
    /// schedules within the window may be late by up to the window. The same applies to deliveries that were not
    /// settled in time. The wheel uses the timers of tokio, even if the table has another clock.
    ///
    /// # Default
    /// No wheel
    #[must_use]
    pub fn on_wheel(mut self, window: Duration) -> Self {
        self.scheduler.on_wheel(window.clamp(SHORTEST_WINDOW, LONGEST_WINDOW));
        self
    }

    async fn next(&mut self, room: usize) -> Result<Vec<TakenTask>, SourceError> {
        loop {
            let Some((room, pending)) = &mut self.pending else {
                self.scheduler.due().await.map_err(|error| source_error("looking", error))?;
                let table = self.table.clone();
                self.pending = Some((room, tokio::spawn(async move { table.take(room).await })));
                continue;
            };
            let (finished, room) = (pending.await, *room);
            self.pending = None;
            let stopped =
                |_| SourceError::new(SourceErrorKind::Transient, "receiving tasks: the runtime is shutting down");
            let taken = match finished.map_err(stopped)? {
                Ok((taken, found)) => {
                    self.scheduler.after_take(found, room);
                    taken
                }
                Err(error) => {
                    self.scheduler.after_take(0, room);
                    return Err(source_error("taking", error));
                }
            };
            let readable = self.settler.dead_letter_unreadable(taken).await;
            if !readable.is_empty() {
                return Ok(readable);
            }
        }
    }
}

#[async_trait]
impl<Db: DelayDb> Source for DelayTableSource<Db> {
    type Tag = DelayTableTag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any).keep_alive(self.table.0.visibility / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<DelayTableTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<DelayTableTag>, SourceError> {
        let taken = match self.next(room).await {
            // A connection that was idle for long is often found broken at its first use.
            Err(error) if error.kind() == SourceErrorKind::Transient => self.next(room).await?,
            taken => taken?,
        };
        let place: Arc<str> = self.table.0.table.as_str().into();
        Ok(Received::Deliveries(taken.into_iter().filter_map(|taken| delivery(&place, taken)).collect()))
    }

    async fn close(&mut self) {
        let Some((_, pending)) = self.pending.take() else { return };
        if let Ok(Ok((taken, _))) = pending.await {
            for taken in taken {
                let Some(tag) = DelayTableTag::of(&taken) else { continue };
                if let Err(error) = self.settler.give_back(&tag).await {
                    warn!(target: "idempotent", table = self.table.0.table,
                        error = &error as &(dyn std::error::Error + 'static),
                        "returning received tasks failed; the source delivers them again after the visibility timeout");
                }
            }
        }
    }
}

/// Returns the delivery of a task, or `None` if the task has no holder.
pub(super) fn delivery(place: &Arc<str>, taken: TakenTask) -> Option<(Delivery, DelayTableTag)> {
    let tag = DelayTableTag::of(&taken)?;
    Some((read(place, taken), tag))
}

pub(super) fn read(place: &Arc<str>, taken: TakenTask) -> Delivery {
    let position = Position::of(place.clone()).offset(taken.seq.to_string());
    let mut delivery = Delivery::new(position, taken.body).id(taken.id);
    delivery.headers = taken.headers.unwrap_or_default();
    (delivery.attempt, delivery.delivered) = (Some(taken.attempt), Some(taken.taken));
    delivery.redelivered = taken.taken > 1;
    (delivery.first_at, delivery.deaths) = (taken.first_at, taken.deaths);
    delivery
}

impl<Db: DelayDb> fmt::Debug for DelayTableSource<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayTableSource").field("table", &self.table).finish_non_exhaustive()
    }
}

//! The source, which takes entries from a stream.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{
    DelaySupport, Delivery, Received, Settle, Source, SourceCapabilities, SourceError, SourceErrorKind,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::warn;

use crate::builder::StreamsSourceBuilder;
use crate::carrier::FieldMapping;
use crate::connection::{Connection, Server};
use crate::held_entries::HeldEntries;
use crate::options::{BLOCK, TrimPolicy};
use crate::reply::{self, IdleEntries, StreamEntry};
use crate::scripts::{TAKE, TRIM};
use crate::settler::{StreamsSettler, StreamsTag};

/// A source that reads a Redis stream as one consumer of a group. See the [crate documentation](crate) for an example.
pub struct StreamsSource {
    settler: Arc<StreamsSettler>,
    layout: FieldMapping,
    held: HeldEntries,
    /// A separate connection, because reads block on the server.
    reader: Arc<Connection>,
    /// The pending read. It outlives a cancelled `receive`, so that its entries are not lost.
    reading: Option<PendingRead>,
    taking: Option<JoinHandle<Result<IdleEntries, SourceError>>>,
    search: IdleSearch,
}

struct PendingRead {
    /// Maximum number of entries of the read.
    most: usize,
    task: JoinHandle<Result<Vec<StreamEntry>, SourceError>>,
}

/// The progress of the search for idle entries.
struct IdleSearch {
    /// Position of the current search, or `None` between two searches.
    cursor: Option<String>,
    next: Instant,
    every: Duration,
}

/// Number of search steps before new entries are read. Each step visits ten pending entries per entry it may take.
const STEPS_PER_SEARCH: usize = 16;

impl StreamsSource {
    /// Connects to the server with the default settings, as one consumer of this existing group. To create the group,
    /// use [`declare`](StreamsSourceBuilder::declare).
    ///
    /// # Errors
    /// The same as [`StreamsSourceBuilder::connect`].
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn connect(
        server: impl Into<Server>,
        stream: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
    ) -> Result<Self, SourceError> {
        Self::builder(server, stream, group).connect().await
    }

    /// Returns a builder for a source that reads this stream as one consumer of this group.
    pub fn builder(
        server: impl Into<Server>,
        stream: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
    ) -> StreamsSourceBuilder {
        StreamsSourceBuilder::new(server.into(), stream.into(), group.into())
    }

    pub(crate) fn new(settler: StreamsSettler, layout: FieldMapping, reader: Connection) -> Self {
        // A tenth of `min_idle` finds the entries of a dead consumer soon, at little cost.
        let every = (settler.settings.min_idle / 10).clamp(Duration::from_millis(50), Duration::from_secs(5));
        Self {
            settler: Arc::new(settler),
            layout,
            held: HeldEntries::default(),
            reader: Arc::new(reader),
            reading: None,
            taking: None,
            search: IdleSearch { cursor: None, next: Instant::now(), every },
        }
    }

    /// Returns the name of this consumer in the group.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.settler.settings.consumer
    }

    /// Takes over idle entries. A due search proceeds by a limited number of steps.
    async fn take_idle(&mut self, room: usize) -> Result<Vec<StreamEntry>, SourceError> {
        for _ in 0..STEPS_PER_SEARCH {
            if !self.search_is_due() {
                break;
            }
            let mut taken = self.take(room).await?;
            // This consumer still holds these: they were kept alive too late, and the takeover has reset their idle
            // time.
            taken.entries.retain(|entry| !self.held.has(&entry.id));
            let ended = taken.cursor == "0-0";
            self.search.cursor = (!ended).then_some(taken.cursor);
            if taken.gone > 0 {
                let (gone, stream) = (taken.gone, &*self.settler.settings.stream);
                warn!(target: "idempotent", stream, gone, "entries were deleted or trimmed before they were settled");
            }
            if ended {
                self.search.next = Instant::now() + self.search.every;
                self.trim().await?;
            }
            if !taken.entries.is_empty() {
                return Ok(taken.entries);
            }
        }
        Ok(Vec::new())
    }

    /// Returns whether a search is in progress, and starts one if it is due.
    fn search_is_due(&mut self) -> bool {
        let now = Instant::now();
        if self.search.cursor.is_some() || self.taking.is_some() {
            return true;
        }
        if self.search_at() > now {
            return false;
        }
        self.settler.due.clear(now);
        self.search.cursor = Some("0-0".to_owned());
        true
    }

    fn search_at(&self) -> Instant {
        self.settler.due.next().map_or(self.search.next, |due| due.min(self.search.next))
    }

    /// Performs one step in a task, which continues if this future is dropped.
    async fn take(&mut self, room: usize) -> Result<IdleEntries, SourceError> {
        let settler = self.settler.clone();
        let cursor = self.search.cursor.clone().unwrap_or_else(|| "0-0".to_owned());
        let taking =
            self.taking.get_or_insert_with(|| tokio::spawn(async move { take(&settler, &cursor, room).await }));
        let taken = taking.await;
        self.taking = None;
        taken.unwrap_or_else(|_| Err(shutting_down()))
    }

    async fn trim(&self) -> Result<(), SourceError> {
        let settings = &self.settler.settings;
        if settings.keep != TrimPolicy::Unfinished || !self.settler.acked.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.settler.connection.run_script("trimming", &TRIM.key(&*settings.stream)).await.map(drop)
    }

    fn read(&mut self, most: usize, block: Option<Duration>) -> &mut PendingRead {
        let (settler, reader) = (self.settler.clone(), self.reader.clone());
        self.reading.get_or_insert_with(|| {
            let task = tokio::spawn(async move { read(&settler, &reader, most, block).await });
            PendingRead { most, task }
        })
    }

    async fn read_new(&mut self, most: usize, block: Option<Duration>) -> Result<Vec<StreamEntry>, SourceError> {
        let read = (&mut self.read(most, block).task).await;
        self.reading = None;
        read.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Returns entries that are available now. Otherwise waits for the next entry, for up to [`BLOCK`] or until a
    /// search is due.
    async fn next(&mut self, room: usize) -> Result<Vec<StreamEntry>, SourceError> {
        // The pending read may return up to this many entries.
        let promised = self.reading.as_ref().map_or(0, |reading| reading.most);
        if let Some(free) = room.checked_sub(promised).filter(|free| *free > 0) {
            let idle = self.take_idle(free).await?;
            if !idle.is_empty() {
                return Ok(idle);
            }
        }
        if self.reading.is_none() {
            let fresh = self.read_new(room, None).await?;
            if !fresh.is_empty() || self.search.cursor.is_some() {
                return Ok(fresh);
            }
        }
        self.wait(room).await
    }

    async fn wait(&mut self, room: usize) -> Result<Vec<StreamEntry>, SourceError> {
        let settler = self.settler.clone();
        // With room for one entry, the search has to wait for the read.
        let searches = room > 1 || self.reading.is_none();
        let search_at = self.search_at();
        tokio::select! {
            biased;
            fresh = self.read_new(1, Some(BLOCK)) => fresh,
            () = tokio::time::sleep_until(search_at), if searches => Ok(Vec::new()),
            () = settler.due.changed(), if searches => Ok(Vec::new()),
        }
    }

    fn deliveries(&self, entries: Vec<StreamEntry>) -> Received<StreamsTag> {
        let handed = entries.into_iter().map(|entry| -> (Delivery, StreamsTag) {
            let delivery = self.layout.delivery(&entry);
            (delivery, StreamsTag::new(entry, &self.held))
        });
        Received::Deliveries(handed.collect())
    }
}

#[async_trait]
impl Source for StreamsSource {
    type Tag = StreamsTag;

    fn capabilities(&self) -> SourceCapabilities {
        let min_idle = self.settler.settings.min_idle;
        SourceCapabilities::new(DelaySupport::UpTo(min_idle)).keep_alive(min_idle / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<StreamsTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<StreamsTag>, SourceError> {
        let entries = match self.next(room).await {
            // The first call after a long idle time often finds its connection broken.
            Err(error) if error.kind() == SourceErrorKind::Transient => self.next(room).await?,
            entries => entries?,
        };
        Ok(self.deliveries(entries))
    }

    async fn close(&mut self) {
        let mut left = Vec::new();
        if let Some(taking) = self.taking.take()
            && let Ok(Ok(taken)) = taking.await
        {
            left.extend(taken.entries.into_iter().filter(|entry| !self.held.has(&entry.id)));
        }
        if let Some(reading) = self.reading.take()
            && let Ok(Ok(fresh)) = reading.task.await
        {
            left.extend(fresh);
        }
        for entry in left {
            // An entry that cannot be returned is taken over after `min_idle`.
            let _ = self.settler.requeue_after(&entry.id, Duration::ZERO, None, "returning an entry").await;
        }
    }
}

async fn take(settler: &StreamsSettler, cursor: &str, room: usize) -> Result<IdleEntries, SourceError> {
    let settings = &settler.settings;
    let mut take = TAKE.key(&*settings.stream);
    take.key(settings.marks());
    let idle = u64::try_from(settings.min_idle.as_millis()).unwrap_or(u64::MAX);
    take.arg(&*settings.group).arg(&*settings.consumer).arg(idle).arg(cursor).arg(room);
    reply::parse_idle(settler.connection.run_script("taking over idle entries", &take).await?)
}

async fn read(
    settler: &StreamsSettler,
    reader: &Connection,
    most: usize,
    block: Option<Duration>,
) -> Result<Vec<StreamEntry>, SourceError> {
    let settings = &settler.settings;
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(&*settings.group).arg(&*settings.consumer).arg("COUNT").arg(most);
    if let Some(block) = block {
        read.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
    }
    read.arg("STREAMS").arg(&*settings.stream).arg(">");
    reply::parse_new(reader.query("reading", &read).await?)
}

fn shutting_down() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "reading: the runtime is shutting down")
}

/// Shows nothing of the URL.
impl fmt::Debug for StreamsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsSource").field("settings", &self.settler.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

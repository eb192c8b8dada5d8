//! Taking entries from the stream.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{Capabilities, Delays, Delivery, Received, Settle, Source, SourceError, SourceErrorKind};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::warn;

use crate::builder::StreamsSourceBuilder;
use crate::connection::Link;
use crate::headers::Layout;
use crate::held_entries::Held;
use crate::options::{BLOCK, Keep};
use crate::reply::{self, Entry, Taken};
use crate::scripts::{TAKE, TRIM};
use crate::settler::{Settler, Tag};

/// Entries of a Redis stream, as one consumer of a group. The [crate's docs](crate) have an example.
pub struct StreamsSource {
    settler: Arc<Settler>,
    layout: Layout,
    held: Held,
    /// A connection of its own: it waits on the server.
    reader: Arc<Link>,
    /// Under way, also while nobody waits for it: what it brings is not lost when `receive` is dropped.
    reading: Option<Reading>,
    taking: Option<JoinHandle<Result<Taken, SourceError>>>,
    search: Search,
}

struct Reading {
    /// How many it brings at most.
    most: usize,
    task: JoinHandle<Result<Vec<Entry>, SourceError>>,
}

/// Where the search for idle entries is.
struct Search {
    /// `None` between two searches.
    cursor: Option<String>,
    next: Instant,
    every: Duration,
}

/// Steps of a search before new entries have their turn. Each looks at ten pending entries for one that it may take.
const STEPS: usize = 16;

impl StreamsSource {
    /// A source of this stream, for one consumer of this group. `url` is `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`.
    pub fn builder(
        url: impl Into<String>,
        stream: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
    ) -> StreamsSourceBuilder {
        StreamsSourceBuilder::new(url.into(), stream.into(), group.into())
    }

    pub(crate) fn new(settler: Settler, layout: Layout, reader: Link) -> Self {
        // A tenth: what a dead consumer held is found soon, and looking costs little.
        let every = (settler.place.min_idle / 10).clamp(Duration::from_millis(50), Duration::from_secs(5));
        Self {
            settler: Arc::new(settler),
            layout,
            held: Held::default(),
            reader: Arc::new(reader),
            reading: None,
            taking: None,
            search: Search { cursor: None, next: Instant::now(), every },
        }
    }

    /// The name of this consumer in the group.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.settler.place.consumer
    }

    /// Takes over what has been idle for long enough; a search that is due is gone on with for some steps.
    async fn idle(&mut self, room: usize) -> Result<Vec<Entry>, SourceError> {
        for _ in 0..STEPS {
            if !self.begins_search() {
                break;
            }
            let mut taken = self.take(room).await?;
            // Kept alive too late, and kept alive by this.
            taken.entries.retain(|entry| !self.held.has(&entry.id));
            let ended = taken.cursor == "0-0";
            self.search.cursor = (!ended).then_some(taken.cursor);
            if taken.gone > 0 {
                let (gone, stream) = (taken.gone, &*self.settler.place.stream);
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

    /// Whether there is a search to go on with.
    fn begins_search(&mut self) -> bool {
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

    /// One step. Its task goes on where this is dropped.
    async fn take(&mut self, room: usize) -> Result<Taken, SourceError> {
        let settler = self.settler.clone();
        let cursor = self.search.cursor.clone().unwrap_or_else(|| "0-0".to_owned());
        let taking =
            self.taking.get_or_insert_with(|| tokio::spawn(async move { take(&settler, &cursor, room).await }));
        let taken = taking.await;
        self.taking = None;
        taken.unwrap_or_else(|_| Err(stopped()))
    }

    async fn trim(&self) -> Result<(), SourceError> {
        let place = &self.settler.place;
        if place.keep != Keep::Unfinished || !self.settler.acked.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.settler.link.run("trimming", &TRIM.key(&*place.stream)).await.map(drop)
    }

    fn read(&mut self, most: usize, block: Option<Duration>) -> &mut Reading {
        let (settler, reader) = (self.settler.clone(), self.reader.clone());
        self.reading.get_or_insert_with(|| {
            let task = tokio::spawn(async move { read(&settler, &reader, most, block).await });
            Reading { most, task }
        })
    }

    async fn fresh(&mut self, most: usize, block: Option<Duration>) -> Result<Vec<Entry>, SourceError> {
        let read = (&mut self.read(most, block).task).await;
        self.reading = None;
        read.unwrap_or_else(|_| Err(stopped()))
    }

    /// What is there at once; or else the next one entry, within [`BLOCK`] or until a search is due.
    async fn next(&mut self, room: usize) -> Result<Vec<Entry>, SourceError> {
        // What a read that is under way may bring has its place.
        let promised = self.reading.as_ref().map_or(0, |reading| reading.most);
        if let Some(free) = room.checked_sub(promised).filter(|free| *free > 0) {
            let idle = self.idle(free).await?;
            if !idle.is_empty() {
                return Ok(idle);
            }
        }
        if self.reading.is_none() {
            let fresh = self.fresh(room, None).await?;
            if !fresh.is_empty() || self.search.cursor.is_some() {
                return Ok(fresh);
            }
        }
        self.wait(room).await
    }

    async fn wait(&mut self, room: usize) -> Result<Vec<Entry>, SourceError> {
        let settler = self.settler.clone();
        // With one place only, a search has to wait for the read.
        let searches = room > 1 || self.reading.is_none();
        let search_at = self.search_at();
        tokio::select! {
            biased;
            fresh = self.fresh(1, Some(BLOCK)) => fresh,
            () = tokio::time::sleep_until(search_at), if searches => Ok(Vec::new()),
            () = settler.due.changed(), if searches => Ok(Vec::new()),
        }
    }

    fn hand_over(&self, entries: Vec<Entry>) -> Received<Tag> {
        let handed = entries.into_iter().map(|entry| -> (Delivery, Tag) {
            let delivery = self.layout.delivery(&entry);
            (delivery, Tag::new(entry, &self.held))
        });
        Received::Deliveries(handed.collect())
    }
}

#[async_trait]
impl Source for StreamsSource {
    type Tag = Tag;

    fn capabilities(&self) -> Capabilities {
        let min_idle = self.settler.place.min_idle;
        Capabilities::new(Delays::UpTo(min_idle)).keep_alive(min_idle / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<Tag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<Tag>, SourceError> {
        let entries = match self.next(room).await {
            // A connection that was idle for long is often found broken by the first to use it.
            Err(error) if error.kind() == SourceErrorKind::Transient => self.next(room).await?,
            entries => entries?,
        };
        Ok(self.hand_over(entries))
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
            // What cannot be given back is taken over once it has been idle for long enough.
            let _ = self.settler.put_off(&entry.id, Duration::ZERO, "giving an entry back").await;
        }
    }
}

async fn take(settler: &Settler, cursor: &str, room: usize) -> Result<Taken, SourceError> {
    let place = &settler.place;
    let mut take = TAKE.key(&*place.stream);
    let idle = u64::try_from(place.min_idle.as_millis()).unwrap_or(u64::MAX);
    take.arg(&*place.group).arg(&*place.consumer).arg(idle).arg(cursor).arg(room);
    reply::taken(settler.link.run("taking over idle entries", &take).await?)
}

async fn read(
    settler: &Settler,
    reader: &Link,
    most: usize,
    block: Option<Duration>,
) -> Result<Vec<Entry>, SourceError> {
    let place = &settler.place;
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(&*place.group).arg(&*place.consumer).arg("COUNT").arg(most);
    if let Some(block) = block {
        read.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
    }
    read.arg("STREAMS").arg(&*place.stream).arg(">");
    reply::fresh(reader.ask("reading", &read).await?)
}

fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "the runtime that was to read is shutting down")
}

/// Nothing of the URL.
impl fmt::Debug for StreamsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsSource").field("place", &self.settler.place).finish_non_exhaustive()
    }
}

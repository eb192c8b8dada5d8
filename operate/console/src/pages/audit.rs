//! The page of the audit log.
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use idempotent_operate::{AuditEntry, AuditFilter, AuditReader, NewestEntries};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::answer;

/// The largest number of entries of the page.
const MOST: usize = 1_000;
/// The part of the file that a page reads, from its end on.
const MOST_BYTES: u64 = 8 << 20;

#[derive(Template, Serialize)]
#[template(path = "audit.html")]
struct AuditView {
    #[serde(skip)]
    layout: Layout,
    #[serde(skip)]
    by: String,
    #[serde(skip)]
    action: String,
    entries: Vec<AuditEntry>,
    #[serde(skip)]
    rows: Vec<AuditRow>,
    /// Older entries were not read.
    is_cut: bool,
    /// The entries are in the log of the service, which the console cannot read.
    is_elsewhere: bool,
    error: Option<String>,
}

struct AuditRow {
    at: String,
    by: String,
    via: String,
    action: String,
    target: String,
    subject: String,
    reason: String,
    outcome: String,
}

impl AuditRow {
    fn new(entry: &AuditEntry) -> Self {
        Self {
            at: shown(&entry.at),
            by: shown(&entry.by),
            via: shown(&entry.via),
            action: shown(&entry.action),
            target: shown(&entry.target),
            subject: shown(&entry.subject),
            reason: shown(&entry.reason),
            outcome: entry.outcome.as_deref().map(shown).unwrap_or_default(),
        }
    }
}

pub(crate) async fn audit(page: Page) -> Result<Response, PageError> {
    let mut filter = AuditFilter::default();
    filter.by = page.text("by").map(str::to_owned);
    filter.action = page.text("action").map(str::to_owned);
    let file = page.shared.audit_file.clone();
    let is_elsewhere = file.is_none();
    let read = async {
        let Some(file) = file else { return Ok(NewestEntries::default()) };
        newest(file, filter, page.shared.audit_reader.clone()).await
    };
    let (found, error) = or_error(answer(read).await);
    let view = AuditView {
        layout: page.layout("Audit log"),
        by: page.query.get("by").to_owned(),
        action: page.query.get("action").to_owned(),
        rows: found.entries.iter().map(AuditRow::new).collect(),
        entries: found.entries,
        is_cut: found.is_cut,
        is_elsewhere,
        error,
    };
    Ok(page.answer(&view))
}

/// Returns the newest entries that the filter selects. One page at a time reads, so that a slow disk does not occupy all threads:
/// a page that has stopped waiting leaves its reader running.
async fn newest(file: PathBuf, filter: AuditFilter, reader: Arc<Semaphore>) -> io::Result<NewestEntries> {
    let permit = reader.acquire_owned().await.map_err(io::Error::other)?;
    let read = move || {
        let found = AuditReader::newest(file, &filter, MOST, MOST_BYTES);
        drop(permit);
        found
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn one_page_at_a_time_reads_the_file() {
        let (file, reader) = (tempfile::NamedTempFile::new().unwrap(), Arc::new(Semaphore::new(1)));
        let path = || file.path().to_owned();
        let other = reader.clone().acquire_owned().await.unwrap();
        let mut page = pin!(newest(path(), AuditFilter::default(), reader.clone()));
        let waiting = std::future::poll_fn(|context| std::task::Poll::Ready(page.as_mut().poll(context).is_pending()));
        assert!(waiting.await && reader.available_permits() == 0);
        drop(other);
        assert!(page.await.unwrap().entries.is_empty());
        assert_eq!(reader.available_permits(), 1, "the reader has ended");
    }
}

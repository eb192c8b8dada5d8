//! The page of the audit log.
use std::collections::VecDeque;
use std::io;
use std::path::Path;

use askama::Template;
use axum::response::Response;
use idempotent_operate::{AuditEntry, AuditFilter, AuditReader};
use serde::Serialize;

use super::{Layout, Page, shown};
use crate::error::PageError;
use crate::targets::answer;

/// The largest number of entries of the page.
const MOST: usize = 1_000;

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
        let Some(file) = file else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || newest(&file, &filter)).await;
        read.map_err(io::Error::other).flatten()
    };
    let (entries, error) = match answer(read).await {
        Ok(entries) => (entries, None),
        Err(error) => (Vec::new(), Some(shown(&error))),
    };
    let view = AuditView {
        layout: page.layout("Audit log"),
        by: page.query.get("by").to_owned(),
        action: page.query.get("action").to_owned(),
        rows: entries.iter().map(AuditRow::new).collect(),
        entries,
        is_elsewhere,
        error,
    };
    Ok(page.answer(&view))
}

/// Returns the newest entries that the filter selects, the newest first.
fn newest(file: &Path, filter: &AuditFilter) -> io::Result<Vec<AuditEntry>> {
    let mut entries = VecDeque::new();
    for entry in AuditReader::open(file)?.entries()? {
        let entry = entry?;
        if filter.matches(&entry) {
            entries.push_front(entry);
            entries.truncate(MOST);
        }
    }
    Ok(entries.into())
}

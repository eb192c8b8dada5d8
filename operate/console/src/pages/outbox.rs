//! The page of an outbox.
use askama::Template;
use axum::response::Response;
use idempotent_operate::{date, short_time};
use idempotent_sqlx::{OutboxBacklog, OutboxEntry, OutboxError, OutboxStatus};
use serde::Serialize;

use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::answer;

/// The largest number of messages of a page.
const MOST: usize = 200;
/// The largest number that is counted.
const CAP: u32 = 10_000;

#[derive(Template, Serialize)]
#[template(path = "outbox.html")]
struct OutboxView {
    #[serde(skip)]
    layout: Layout,
    outbox: String,
    #[serde(skip)]
    outboxes: Vec<String>,
    /// The numbers of waiting messages with their names.
    backlog: Vec<(&'static str, String)>,
    status: &'static str,
    #[serde(skip)]
    statuses: Vec<(&'static str, bool)>,
    /// The messages can be resent and voided.
    #[serde(skip)]
    can_change: bool,
    messages: Vec<MessageRow>,
    /// The sequence number to pass as `after` for the next page.
    next: Option<i64>,
    error: Option<String>,
}

#[derive(Serialize)]
struct MessageRow {
    id: String,
    #[serde(skip)]
    shown_id: String,
    topic: String,
    sends: u32,
    failures: u32,
    created_at: String,
    sent_at: Option<String>,
    due_at: Option<String>,
    last_error: Option<String>,
}

impl MessageRow {
    fn new(entry: OutboxEntry) -> Self {
        let record = entry.record;
        Self {
            shown_id: shown(&entry.id),
            id: entry.id,
            topic: shown(&entry.topic),
            sends: record.sends,
            failures: record.failures,
            created_at: date(record.created_at),
            sent_at: record.sent_at.map(date),
            due_at: record.due_at.map(date),
            last_error: record.last_error.as_deref().map(shown),
        }
    }
}

const STATUSES: [(&str, OutboxStatus); 4] = [
    ("unconfirmed", OutboxStatus::Unconfirmed),
    ("dead", OutboxStatus::Dead),
    ("confirmed", OutboxStatus::Confirmed),
    ("void", OutboxStatus::Void),
];

pub(crate) async fn outbox(page: Page) -> Result<Response, PageError> {
    let most = page.number("limit", 50, MOST)?;
    let asked = page.text("status").unwrap_or("unconfirmed");
    let status = STATUSES.into_iter().find(|(name, _)| *name == asked);
    let unknown = || PageError::Invalid(format!("`{}` is no status of a message", shown(asked)));
    let (name, status) = status.ok_or_else(unknown)?;
    let after = i64::try_from(page.number("after", 1, i64::MAX as usize)?).unwrap_or(i64::MAX);
    let after = if page.text("after").is_some() { after } else { 0 };
    let outbox = page.shared.targets.outboxes.open(page.text("outbox"))?;
    let at_most = u32::try_from(most).unwrap_or(u32::MAX);
    let read = async {
        let backlog = outbox.target.backlog(CAP).await?;
        Ok::<_, OutboxError>((backlog, outbox.target.list(status, after, at_most).await?))
    };
    let found = answer(read).await.map(|(backlog, messages)| (counts(&backlog), messages));
    let ((backlog, messages), error) = or_error(found);
    let next = messages.last().filter(|_| messages.len() == most).map(|last| last.record.seq);
    let view = OutboxView {
        layout: page.layout("Outbox"),
        outbox: outbox.name,
        outboxes: page.shared.targets.outboxes.names().map(str::to_owned).collect(),
        backlog,
        status: name,
        can_change: matches!(status, OutboxStatus::Unconfirmed | OutboxStatus::Dead),
        statuses: STATUSES.map(|(known, _)| (known, known == name)).to_vec(),
        messages: messages.into_iter().map(MessageRow::new).collect(),
        next,
        error,
    };
    Ok(page.answer(&view))
}

/// Returns the numbers of a backlog with their names.
pub(super) fn counts(backlog: &OutboxBacklog) -> Vec<(&'static str, String)> {
    let oldest = backlog.oldest_unsent.map(|age| short_time(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    vec![
        ("unsent", backlog.unsent.to_string()),
        ("due", backlog.due.to_string()),
        ("leased", backlog.leased.to_string()),
        ("held back", backlog.held_back.to_string()),
        ("unconfirmed", backlog.unconfirmed.to_string()),
        ("dead", backlog.dead.to_string()),
        ("oldest unsent", oldest.unwrap_or_else(|| "–".to_owned())),
    ]
}

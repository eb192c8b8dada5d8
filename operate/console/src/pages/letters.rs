//! The page of dead letters. The letters of a queue are read only when the user asks for them.
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use idempotent_mq::DeadLetters;
use idempotent_operate::{LetterFilter, LetterSummary};
use serde::Serialize;

use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::{Queue, answer_within};

/// The largest number of letters of a page.
const MOST: usize = 200;
/// The largest number of letters that a page reads.
const READ: u64 = 1_000;

/// The longest time of a reading, which opens a connection.
const READING: Duration = Duration::from_secs(15);

#[derive(Template, Serialize)]
#[template(path = "letters.html")]
struct LettersView {
    #[serde(skip)]
    layout: Layout,
    queue: String,
    #[serde(skip)]
    queues: Vec<String>,
    /// The number of letters in the queue.
    count: Option<u64>,
    /// The number of letters that were read.
    read: u64,
    letters: Vec<LetterSummary>,
    #[serde(skip)]
    rows: Vec<LetterRow>,
    /// The reasons with their numbers of letters, the most frequent one first.
    reasons: Vec<(String, usize)>,
    #[serde(skip)]
    cause: String,
    #[serde(skip)]
    is_asked: bool,
    error: Option<String>,
}

struct LetterRow {
    /// The value of the checkbox.
    entry: String,
    id: String,
    message: String,
    reason: String,
    died_at: String,
    attempts: String,
    deaths: u32,
    bytes: usize,
}

impl LetterRow {
    fn new(letter: &LetterSummary) -> Self {
        Self {
            entry: format!("{}\t{}", letter.id, letter.message_id.as_deref().unwrap_or_default()),
            id: shown(&letter.id),
            message: letter.message_id.as_deref().map_or_else(|| "(no id)".to_owned(), shown),
            reason: letter.reason.as_deref().map_or_else(|| "(another program's letter)".to_owned(), shown),
            died_at: letter.died_at.clone().unwrap_or_default(),
            attempts: letter.attempts.map(|attempts| attempts.to_string()).unwrap_or_default(),
            deaths: letter.deaths,
            bytes: letter.body_bytes,
        }
    }
}

/// The letters that were read from a queue.
#[derive(Default)]
struct Found {
    count: u64,
    read: u64,
    letters: Vec<LetterSummary>,
}

pub(crate) async fn letters(page: Page) -> Result<Response, PageError> {
    let most = page.number("limit", 50, MOST)?;
    let is_asked = page.text("read").is_some();
    let queue = page.shared.targets.queues.open(page.text("queue"))?;
    let mut filter = LetterFilter::default();
    filter.cause = page.text("cause").map(str::to_owned);
    let found = answer_within(READING, read(&queue.target, filter, if is_asked { most } else { 0 })).await;
    let (found, error) = or_error(found);
    let view = LettersView {
        layout: page.layout("Dead letters"),
        queues: page.shared.targets.queues.names().map(str::to_owned).collect(),
        count: error.is_none().then_some(found.count),
        read: found.read,
        rows: found.letters.iter().map(LetterRow::new).collect(),
        reasons: reasons(&found.letters),
        letters: found.letters,
        cause: page.query.get("cause").to_owned(),
        queue: queue.name,
        is_asked,
        error,
    };
    Ok(page.answer(&view))
}

/// Counts the letters, and reads at most `most` that the filter selects. They return to their place.
async fn read(queue: &Queue, filter: LetterFilter, most: usize) -> Result<Found, String> {
    let mut letters = queue.letters().await?;
    let found = collect(&mut letters, &filter, most).await;
    letters.close().await;
    found
}

/// Counts the letters of a queue.
pub(super) async fn count_letters(queue: &Queue) -> Result<u64, String> {
    Ok(read(queue, LetterFilter::default(), 0).await?.count)
}

async fn collect(letters: &mut dyn DeadLetters, filter: &LetterFilter, most: usize) -> Result<Found, String> {
    let mut found = Found { count: letters.count().await.map_err(|error| error.to_string())?, ..Found::default() };
    while found.letters.len() < most && found.read < found.count.min(READ) {
        let next = letters.next().await.map_err(|error| error.to_string())?;
        let Some(letter) = next else { break };
        found.read += 1;
        if filter.matches(&letter) {
            found.letters.push(LetterSummary::new(found.read, &letter));
        }
    }
    Ok(found)
}

fn reasons(letters: &[LetterSummary]) -> Vec<(String, usize)> {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for letter in letters {
        let reason = letter.reason.as_deref().map(shown).unwrap_or_default();
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons
}

//! The page of delay queues and delay tables.
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use idempotent_operate::{DelayDepth, short_time};
use serde::Serialize;

use super::{Layout, Page, shown};
use crate::error::PageError;
use crate::targets::answer;

#[derive(Template, Serialize)]
#[template(path = "delay.html")]
struct DelayView {
    #[serde(skip)]
    layout: Layout,
    queues: Vec<DelayRow>,
}

/// The depth of one delay queue, or the error of reading the depth.
#[derive(Serialize)]
pub(super) struct DelayRow {
    pub(super) queue: String,
    pub(super) ready: String,
    pub(super) waiting: String,
    pub(super) in_flight: String,
    pub(super) dead: String,
    pub(super) oldest_ready: String,
    pub(super) error: Option<String>,
}

impl DelayRow {
    fn new(queue: String, depth: Result<DelayDepth, String>) -> Self {
        let unknown = || "unknown".to_owned();
        let text = |of: fn(&DelayDepth) -> String| depth.as_ref().map_or_else(|_| unknown(), of);
        let age = |age: Duration| short_time(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let oldest =
            depth.as_ref().map_or_else(|_| unknown(), |depth| depth.oldest_ready.map_or_else(|| "–".to_owned(), age));
        Self {
            queue,
            ready: text(|depth| depth.ready.to_string()),
            waiting: text(|depth| depth.waiting.to_string()),
            in_flight: text(|depth| depth.in_flight.to_string()),
            dead: text(|depth| depth.dead.to_string()),
            oldest_ready: oldest,
            error: depth.err().map(|error| shown(&error)),
        }
    }
}

pub(crate) async fn delay(page: Page) -> Result<Response, PageError> {
    Ok(page.answer(&DelayView { layout: page.layout("Delay queues"), queues: rows(&page).await? }))
}

/// Reads the depth of all delay queues.
pub(super) async fn rows(page: &Page) -> Result<Vec<DelayRow>, PageError> {
    let delays = &page.shared.targets.delays;
    let mut rows = Vec::new();
    for name in delays.names() {
        let delay = delays.open(Some(name))?;
        rows.push(DelayRow::new(delay.name, answer(delay.target.depth()).await));
    }
    Ok(rows)
}

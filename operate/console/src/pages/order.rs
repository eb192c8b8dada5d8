//! The pages of ordered streams: those whose next number waits, and one stream.
use askama::Template;
use axum::response::Response;
use idempotent_core::{Store, StreamView};
use idempotent_operate::{KeyAddress, StreamSummary, short_time};
use serde::Serialize;

use super::keys::key_link;
use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::answer;

/// The number of streams of a page.
const MOST: usize = 200;

#[derive(Template, Serialize)]
#[template(path = "order.html")]
struct OrderView {
    #[serde(skip)]
    layout: Layout,
    store: String,
    #[serde(skip)]
    stores: Vec<String>,
    streams: Vec<StreamSummary>,
    #[serde(skip)]
    rows: Vec<StreamRow>,
    unreadable: usize,
    next: Option<String>,
    error: Option<String>,
}

/// A stream whose next number waits.
struct StreamRow {
    next: u64,
    waiting: String,
    last: String,
    blocked_by: String,
    link: Option<String>,
}

impl StreamRow {
    fn new(store: &str, stream: &StreamSummary) -> Option<Self> {
        let number = stream.blocked_by_number.map(|number| format!("number {number}, not delivered"));
        let key = stream.blocked_by.as_deref();
        let nothing = || "nothing: runs with the next delivery".to_owned();
        Some(Self {
            next: stream.next?,
            waiting: stream.waiting_ms.map(short_time).unwrap_or_default(),
            last: stream.last_delivered.clone().unwrap_or_default(),
            blocked_by: number.or_else(|| key.map(shown)).unwrap_or_else(nothing),
            link: key.map(|key| key_link(store, key)),
        })
    }
}

#[derive(Default)]
struct Found {
    streams: Vec<StreamSummary>,
    unreadable: usize,
    next: Option<u128>,
}

pub(crate) async fn order(page: Page) -> Result<Response, PageError> {
    let after = page.text("after").map(super::keys::cursor).transpose()?;
    let store = page.shared.targets.stores.open(page.text("store"))?;
    let (found, error) = or_error(answer(list(&*store.target, after)).await);
    let view = OrderView {
        layout: page.layout("Ordering"),
        stores: page.shared.targets.stores.names().map(str::to_owned).collect(),
        rows: found.streams.iter().filter_map(|stream| StreamRow::new(&store.name, stream)).collect(),
        streams: found.streams,
        unreadable: found.unreadable,
        next: found.next.map(|next| format!("{next:032x}")),
        store: store.name,
        error,
    };
    Ok(page.answer(&view))
}

/// Returns the streams of one page whose next number waits.
async fn list(store: &dyn Store, after: Option<u128>) -> Result<Found, String> {
    let browse =
        store.capabilities().browse_order.ok_or("this store cannot list its streams: find a stream by its parts")?;
    let page = browse.browse_order(after, MOST).await.map_err(|error| error.to_string())?;
    let mut found = Found { next: page.next, ..Found::default() };
    for table in &page.tables {
        match StreamView::decode(table) {
            Ok(view) if view.first_waiting().is_some() => found.streams.push(StreamSummary::new(&view, page.now)),
            Ok(_) => {}
            Err(_) => found.unreadable += 1,
        }
    }
    Ok(found)
}

#[derive(Template, Serialize)]
#[template(path = "stream.html")]
struct StreamPage {
    #[serde(skip)]
    layout: Layout,
    store: String,
    key: String,
    stream: Option<StreamSummary>,
    #[serde(skip)]
    row: Option<StreamRow>,
    #[serde(skip)]
    last_link: Option<String>,
    error: Option<String>,
}

pub(crate) async fn stream(page: Page) -> Result<Response, PageError> {
    let text = page.text("k").unwrap_or_default();
    let key = KeyAddress::Text(text.to_owned()).key().map_err(|error| PageError::Invalid(error.to_string()))?;
    let store = page.shared.targets.stores.open(page.text("store"))?;
    let load = async {
        let order = store.target.capabilities().order.ok_or_else(|| "this store keeps no order".to_owned())?;
        StreamView::load(order, &key).await.map_err(|error| error.to_string())
    };
    let stream = answer(load).await.map(|(view, now)| view.map(|view| StreamSummary::new(&view, now)));
    let (stream, error) = or_error(stream);
    let last = stream.as_ref().and_then(|stream| stream.last_key.as_deref());
    let view = StreamPage {
        layout: page.layout("Stream"),
        key: shown(key.as_str()),
        row: stream.as_ref().and_then(|stream| StreamRow::new(&store.name, stream)),
        last_link: last.map(|key| key_link(&store.name, key)),
        store: store.name,
        stream,
        error,
    };
    Ok(page.answer(&view))
}

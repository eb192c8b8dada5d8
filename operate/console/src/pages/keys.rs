//! The pages of keys: a listing by filter, and one key.
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use idempotent_core::{Key, StateKind};
use idempotent_operate::{
    KeyAddress, KeyFilter, NamePattern, PageLimits, RecordSummary, StateName, UnreadableSummary, inspect, lease_time,
    list, short_time,
};
use serde::Serialize;

use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::answer;

/// The largest number of keys of a page.
const MOST: usize = 200;
/// The number of records that a page examines.
const EXAMINED: usize = 20_000;

#[derive(Template, Serialize)]
#[template(path = "keys.html")]
struct KeysView {
    #[serde(skip)]
    layout: Layout,
    store: String,
    #[serde(skip)]
    stores: Vec<String>,
    #[serde(skip)]
    form: FilterForm,
    keys: Vec<RecordSummary>,
    #[serde(skip)]
    rows: Vec<KeyRow>,
    unreadable: Vec<UnreadableSummary>,
    examined: usize,
    next: Option<String>,
    #[serde(skip)]
    next_link: Option<String>,
    error: Option<String>,
}

/// The filter as the form of the page shows it.
#[derive(Clone, Debug, Default)]
struct FilterForm {
    scene: String,
    scope: String,
    older_than: String,
    min_attempt: String,
    is_orphaned: bool,
    /// The states with their marks.
    states: Vec<(&'static str, bool)>,
}

/// A key as a row of a table.
#[derive(Clone, Debug)]
pub(super) struct KeyRow {
    /// The value of the checkbox.
    pub(super) entry: String,
    pub(super) key: String,
    pub(super) link: String,
    pub(super) state: &'static str,
    pub(super) age: String,
    pub(super) lease: String,
    pub(super) owner: String,
    pub(super) attempt: u32,
    pub(super) note: String,
}

impl KeyRow {
    fn new(store: &str, record: &RecordSummary) -> Self {
        let note = record.display.as_deref().or(record.error.as_deref()).map(shown).unwrap_or_default();
        Self {
            entry: format!("{} {}", record.fencing, record.key),
            key: shown(&record.key),
            link: key_link(store, &record.key),
            state: record.state.text(),
            age: short_time(record.age_ms),
            lease: record.lease_left_ms.map(lease_time).unwrap_or_default(),
            owner: record.owner.as_deref().map(shown).unwrap_or_default(),
            attempt: record.attempt,
            note,
        }
    }
}

/// Returns the link to the page of a key.
pub(super) fn key_link(store: &str, key: &str) -> String {
    form_urlencoded::Serializer::new("key?".to_owned()).append_pair("store", store).append_pair("k", key).finish()
}

const STATES: [(&str, StateKind); 5] = [
    ("consuming", StateKind::Consuming),
    ("failed", StateKind::Failed),
    ("dead", StateKind::Dead),
    ("vacant", StateKind::Vacant),
    ("consumed", StateKind::Consumed),
];

pub(crate) async fn keys(page: Page) -> Result<Response, PageError> {
    listing(page, "Keys", "keys", &["consuming", "failed", "dead"]).await
}

pub(crate) async fn in_flight(page: Page) -> Result<Response, PageError> {
    listing(page, "In flight", "in-flight", &["consuming"]).await
}

pub(crate) async fn dead(page: Page) -> Result<Response, PageError> {
    listing(page, "Dead and failed", "dead", &["failed", "dead"]).await
}

async fn listing(page: Page, title: &'static str, route: &str, default: &[&str]) -> Result<Response, PageError> {
    let (filter, form) = filter(&page, default)?;
    let keys = page.number("limit", 50, MOST)?;
    let after = page.text("after").map(cursor).transpose()?;
    let store = page.shared.targets.stores.open(page.text("store"))?;
    let found = answer(list(&*store.target, &filter, after, PageLimits { keys, examined: EXAMINED })).await;
    let (found, error) = or_error(found.map(Some));
    let next = found.as_ref().and_then(|found| found.next).map(|next| format!("{next:032x}"));
    let examined = found.as_ref().map_or(0, |found| found.examined);
    let (keys, unreadable) = found.map(|found| (found.keys, found.unreadable)).unwrap_or_default();
    let keys: Vec<_> = keys.into_iter().map(|(_, record)| record).collect();
    let view = KeysView {
        layout: page.layout(title),
        stores: page.shared.targets.stores.names().map(str::to_owned).collect(),
        form,
        rows: keys.iter().map(|record| KeyRow::new(&store.name, record)).collect(),
        next_link: next.as_deref().map(|next| next_link(&page, route, next)),
        store: store.name,
        keys,
        unreadable,
        examined,
        next,
        error,
    };
    Ok(page.answer(&view))
}

/// Returns the link to the next page: the same query after the cursor.
fn next_link(page: &Page, route: &str, next: &str) -> String {
    let mut link = form_urlencoded::Serializer::new(format!("{route}?"));
    link.extend_pairs(page.query.iter().filter(|(name, _)| *name != "after"));
    link.append_pair("after", next).finish()
}

pub(super) fn cursor(text: &str) -> Result<u128, PageError> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let cursor = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    cursor.ok_or_else(|| PageError::Invalid("`after` is no cursor of this console: start again without it".into()))
}

fn filter(page: &Page, default: &[&str]) -> Result<(KeyFilter, FilterForm), PageError> {
    let pattern = |name: &str| {
        let pattern = page.text(name).map(NamePattern::parse).transpose();
        pattern.map_err(|error| PageError::Invalid(shown(&error.to_string())))
    };
    let mut asked: Vec<&str> = page.query.all("state").filter(|state| !state.is_empty()).collect();
    if asked.is_empty() {
        asked = default.to_vec();
    }
    let unknown = asked.iter().find(|state| !STATES.iter().any(|(name, _)| name == *state));
    if let Some(unknown) = unknown {
        return Err(PageError::Invalid(format!("`{}` is no state of a key", shown(unknown))));
    }
    let older_than = page.text("older_than").map(duration).transpose()?;
    let mut filter = KeyFilter::default();
    filter.scene = pattern("scene")?;
    filter.scope = pattern("scope")?;
    filter.states = STATES.iter().filter(|(name, _)| asked.contains(name)).map(|(_, kind)| *kind).collect();
    filter.orphaned = page.text("orphaned").is_some();
    filter.older_than = older_than;
    filter.min_attempt = u32::try_from(page.number("min_attempt", 1, u32::MAX as usize)?).unwrap_or(u32::MAX);
    if page.text("min_attempt").is_none() {
        filter.min_attempt = 0;
    }
    let form = FilterForm {
        scene: page.query.get("scene").to_owned(),
        scope: page.query.get("scope").to_owned(),
        older_than: page.query.get("older_than").to_owned(),
        min_attempt: page.query.get("min_attempt").to_owned(),
        is_orphaned: filter.orphaned,
        states: STATES.iter().map(|(name, _)| (*name, asked.contains(name))).collect(),
    };
    Ok((filter, form))
}

fn duration(text: &str) -> Result<Duration, PageError> {
    let wrong = |_| PageError::Invalid(format!("`{}` is no time: expected a time such as `5m` or `2h`", shown(text)));
    humantime::parse_duration(text).map_err(wrong)
}

#[derive(Template, Serialize)]
#[template(path = "key.html")]
struct KeyView {
    #[serde(skip)]
    layout: Layout,
    store: String,
    key: String,
    record: Option<RecordSummary>,
    #[serde(skip)]
    facts: Vec<(&'static str, String)>,
    #[serde(skip)]
    entry: String,
    #[serde(skip)]
    can_forget: bool,
    #[serde(skip)]
    can_release: bool,
    error: Option<String>,
}

pub(crate) async fn key(page: Page) -> Result<Response, PageError> {
    let text = page.text("k").unwrap_or_default();
    let key = KeyAddress::Text(text.to_owned()).key().map_err(|error| PageError::Invalid(error.to_string()))?;
    let store = page.shared.targets.stores.open(page.text("store"))?;
    let (record, error) = or_error(answer(inspect(&*store.target, &key)).await);
    let state = record.as_ref().map(|record| record.state);
    let is_settled = matches!(state, Some(StateName::Consumed | StateName::Failed | StateName::Dead));
    let layout = page.layout("Key");
    let view = KeyView {
        can_forget: layout.can_operate && is_settled,
        can_release: layout.can_administer && state == Some(StateName::Consuming),
        facts: record.as_ref().map(facts).unwrap_or_default(),
        entry: record.as_ref().map(|record| format!("{} {}", record.fencing, record.key)).unwrap_or_default(),
        layout,
        store: store.name,
        key: shown(Key::as_str(&key)),
        record,
        error,
    };
    Ok(page.answer(&view))
}

fn facts(record: &RecordSummary) -> Vec<(&'static str, String)> {
    let mut facts = vec![("State", record.state.text().to_owned()), ("Attempt", record.attempt.to_string())];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("Fencing number", Some(record.fencing.to_string()));
    add("Owner", record.owner.as_deref().map(|owner| format!("{}…", shown(owner))));
    add("Lease", record.lease_left_ms.map(lease_time));
    add("Taken over from", record.taken_over.map(|fencing| fencing.to_string()));
    add("Claimable in", record.delay_left_ms.map(|left| short_time(left.unsigned_abs())));
    add("Error", record.error.as_deref().map(shown));
    add("Display", record.display.as_deref().map(shown));
    add("Result", record.result_bytes.map(|bytes| format!("{bytes} bytes")));
    add("First seen", Some(record.first_seen.clone()));
    add("Updated", Some(format!("{} ({} ago)", record.updated_at, short_time(record.age_ms))));
    add("Expires in", record.expires_in_ms.map(short_time));
    facts
}

//! The overview: rates of the executors, consumers, outboxes and delay queues.
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use futures_util::future::join_all;
use idempotent_core::ExecutorCounts;
use idempotent_operate::short_time;
use serde::Serialize;

use super::delay::{DelayRow, rows};
use super::health::problems;
use super::letters::count_letters;
use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::overview::{KeyCounts, count_keys};
use crate::targets::Queue;

#[derive(Template, Serialize)]
#[template(path = "overview.html")]
struct OverviewView {
    #[serde(skip)]
    layout: Layout,
    stores: Vec<StoreRow>,
    executors: Vec<ExecutorRow>,
    consumers: Vec<ConsumerRow>,
    outboxes: Vec<OutboxRow>,
    delays: Vec<DelayRow>,
    queues: Vec<QueueRow>,
}

/// The keys and failed checks of a store that may need an operator, or the error of counting them.
#[derive(Serialize)]
struct StoreRow {
    store: String,
    /// The numbers of keys and of failed checks, each with its name and its page.
    counts: Vec<(&'static str, String, &'static str)>,
    examined: usize,
    /// The age of the counts.
    age: String,
    error: Option<String>,
}

impl StoreRow {
    fn new(
        store: String,
        read: Result<(Duration, KeyCounts), String>,
        checks: Result<Option<[usize; 2]>, String>,
    ) -> Self {
        let (counts, examined, age, error) = match read {
            Ok((age, counts)) => {
                let mut named = vec![
                    ("in flight", counts.consuming.to_string(), "in-flight"),
                    ("orphaned", counts.orphaned.to_string(), "in-flight?orphaned=1"),
                    ("failed", counts.failed.to_string(), "dead?state=failed"),
                    ("dead", counts.dead.to_string(), "dead?state=dead"),
                ];
                // The page of the checks shows their error.
                let unknown = || Some(["unknown"; 2].map(str::to_owned));
                let checks =
                    checks.map_or_else(|_| unknown(), |checks| checks.map(|counts| counts.map(|n| n.to_string())));
                let checks = ["failed checks", "warnings"].into_iter().zip(checks.into_iter().flatten());
                named.extend(checks.map(|(name, count)| (name, count, "health")));
                (named, counts.examined, short_time(age.as_secs() * 1_000), None)
            }
            Err(error) => (Vec::new(), 0, String::new(), Some(shown(&error))),
        };
        Self { store, counts, examined, age, error }
    }
}

#[derive(Serialize)]
struct ExecutorRow {
    executor: String,
    deliveries: u64,
    /// Deliveries per second over 1, 5 and 15 minutes, as far as the console has older counts.
    rates: [Option<String>; 3],
    ran: u64,
    duplicates: u64,
    in_flight: u64,
    released: u64,
    failed: u64,
    dead: u64,
    /// The share of duplicates in percent.
    duplicate_share: Option<String>,
}

impl ExecutorRow {
    fn new(page: &Page, name: &str, counts: &ExecutorCounts) -> Self {
        let sum = |names: &[&str]| names.iter().map(|name| counts.of(name)).sum::<u64>();
        let duplicates = sum(&["replayed", "consumed_without_result", "duplicate"]);
        let deliveries = counts.deliveries();
        let share = (deliveries > 0).then(|| format!("{:.1} %", 100.0 * duplicates as f64 / deliveries as f64));
        let rate = |minutes: u64| {
            let window = Duration::from_secs(60 * minutes);
            let (age, before) = page.shared.samples.record(name, counts, window)?;
            Some(format!("{:.1}/s", deliveries.saturating_sub(before.deliveries()) as f64 / age.as_secs_f64()))
        };
        Self {
            executor: name.to_owned(),
            deliveries,
            rates: [1, 5, 15].map(rate),
            ran: sum(&["ran", "unprotected"]),
            duplicates,
            in_flight: sum(&["in_flight", "delayed", "waiting", "held"]),
            released: counts.of("released"),
            failed: counts.of("failed"),
            dead: counts.of("dead"),
            duplicate_share: share,
        }
    }
}

#[derive(Serialize)]
struct ConsumerRow {
    consumer: String,
    received: u64,
    acked: u64,
    retried: u64,
    deferred: u64,
    dead_lettered: u64,
    undecodable: u64,
    source_errors: u64,
}

/// The number of dead letters of a queue, or the error of counting them.
#[derive(Serialize)]
struct QueueRow {
    queue: String,
    dead_letters: Option<u64>,
    /// The age of the number.
    age: Option<String>,
    error: Option<String>,
}

#[derive(Serialize)]
struct OutboxRow {
    outbox: String,
    backlog: Vec<(&'static str, String)>,
    error: Option<String>,
}

pub(crate) async fn overview(page: Page) -> Result<Response, PageError> {
    let targets = &page.shared.targets;
    let consumers = targets.consumers.iter().map(|(name, counters)| {
        let counts = counters.counts();
        ConsumerRow {
            consumer: name.to_owned(),
            received: counts.received,
            acked: counts.acked + counts.skipped,
            retried: counts.retried,
            deferred: counts.deferred,
            dead_lettered: counts.dead_lettered,
            undecodable: counts.undecodable,
            source_errors: counts.source_errors,
        }
    });
    let mut stores = Vec::new();
    for name in targets.stores.names() {
        let store = targets.stores.open(Some(name))?;
        let (keys, checks) = (store.target.clone(), store.target.clone());
        let read = page.shared.keys.of(name, async move { count_keys(&*keys).await }).await;
        let checks =
            page.shared.checks.of(name, async move { problems(&*checks).await }).await.map(|(_, checks)| checks);
        stores.push(StoreRow::new(store.name, read, checks));
    }
    let view = OverviewView {
        layout: page.layout("Overview"),
        stores,
        executors: targets.executors.iter().map(|(name, own)| ExecutorRow::new(&page, name, &own.counts())).collect(),
        consumers: consumers.collect(),
        outboxes: outboxes(&page).await?,
        delays: rows(&page).await?,
        queues: join_all(targets.queues.iter().map(|(name, queue)| queue_row(&page, name, queue))).await,
    };
    Ok(page.answer(&view))
}

async fn queue_row(page: &Page, name: &str, queue: &Queue) -> QueueRow {
    let opened = queue.clone();
    let read = page.shared.letters.of(name, async move { count_letters(&opened).await }).await;
    let (read, error) = or_error(read.map(Some).map_err(|error| format!("{name}: {error}")));
    let age = read.map(|(age, _)| short_time(age.as_secs() * 1_000));
    QueueRow { queue: name.to_owned(), dead_letters: read.map(|(_, count)| count), age, error }
}

#[cfg(feature = "__outbox")]
async fn outboxes(page: &Page) -> Result<Vec<OutboxRow>, PageError> {
    let targets = &page.shared.targets.outboxes;
    let mut rows = Vec::new();
    for name in targets.names() {
        let outbox = targets.open(Some(name))?;
        let backlog = crate::targets::answer(outbox.target.backlog(10_000)).await;
        let (backlog, error) = or_error(backlog.map(|backlog| super::outbox::counts(&backlog)));
        rows.push(OutboxRow { outbox: outbox.name, backlog, error });
    }
    Ok(rows)
}

#[cfg(not(feature = "__outbox"))]
async fn outboxes(_: &Page) -> Result<Vec<OutboxRow>, PageError> {
    Ok(Vec::new())
}

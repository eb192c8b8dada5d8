//! `tracing` spans of runs: one span and one terminal event per run, and no plain keys. A separate binary, because
//! callsites that another thread meets first, without a subscriber, would be disabled.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
#[path = "suite/common.rs"]
mod common;

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::common::{Job, World, id, ms};
use idempotent::store::{HealthFinding, HealthReport, Severity};
use idempotent::{Call, Fingerprint, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Collects spans, events and everything written in them.
#[derive(Debug, Default)]
struct Collector {
    ids: AtomicU64,
    spans: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
    /// The spans that are entered.
    entered: Mutex<Vec<Id>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        use std::fmt::Write;
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for &'static Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "idempotent"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        self.spans.lock().unwrap().push(text);
        Id::from_u64(self.ids.fetch_add(1, SeqCst) + 1)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fields(&mut self.spans.lock().unwrap()[at]));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Fields(&mut text));
        if self.entered.lock().unwrap().is_empty() {
            text += " (outside of spans)";
        }
        self.events.lock().unwrap().push(text);
    }
    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.clone());
    }
    fn exit(&self, span: &Id) {
        assert_eq!(self.entered.lock().unwrap().pop().as_ref(), Some(span));
    }
    fn current_span(&self) -> tracing_core::span::Current {
        // Records go to the last span begun: this test runs one at a time.
        let last = self.ids.load(SeqCst);
        let metadata = SPAN.get_or_init(|| tracing::debug_span!(target: "idempotent", "x").metadata().unwrap());
        tracing_core::span::Current::new(Id::from_u64(last.max(1)), metadata)
    }
}

static SPAN: std::sync::OnceLock<&'static Metadata<'static>> = std::sync::OnceLock::new();

#[test]
fn a_run_is_one_span_and_one_terminal_event_without_its_key() {
    const SECRET: &str = "4111-1111-1111-1111";
    let collector: &'static Collector = Box::leak(Box::default());
    let logs = idempotent_harness::logs_to(collector);
    crate::common::on_memory(async |world: World| {
        let worker = world.worker("a", Policy::new());
        let call = || Call::new(id(SECRET)).fingerprint(Ok(Fingerprint::of_bytes(SECRET)));
        for job in [Job::takes(ms(0)), Job::takes(ms(0))] {
            drop(worker.deliver_call(call(), &job).await);
        }
        let job = Job::takes(ms(0));
        let changed = Call::new(id(SECRET)).fingerprint(Ok(Fingerprint::of_bytes("")));
        drop(worker.deliver_call(changed, &job).await);
        drop(worker.deliver_call(Call::new(id(&SECRET.repeat(100))), &job).await);
    });
    drop(logs);
    let (spans, events) = (collector.spans.lock().unwrap().clone(), collector.events.lock().unwrap().clone());
    let runs: Vec<_> = spans.iter().filter(|span| span.starts_with("idempotent ")).collect();
    assert_eq!(runs.len(), 4, "{spans:#?}");
    let ended: Vec<_> = events.iter().filter(|event| event.contains("message=ended")).collect();
    assert_eq!(ended.len(), 4, "{events:#?}");
    assert!(
        ended[0].starts_with("DEBUG") && ended[0].contains("outcome=\"ran\"") && ended[0].contains("scope=\"work\"")
    );
    assert!(ended[1].contains("outcome=\"replayed\""));
    assert!(ended[2].starts_with("WARN") && ended[2].contains("outcome=\"mismatch\""));
    assert!(ended[3].contains("outcome=\"bad_key\""));
    assert!(!format!("{spans:?}{events:?}").contains("4111-1111"), "{spans:#?} {events:#?}");
}

/// Two functions with one scope, and one with a separate scope.
mod handlers {
    use idempotent::{Executor, Rejection, idempotent};

    #[idempotent(key = id, with = e, scope = "orders")]
    pub(crate) async fn place(e: &Executor, id: u8) -> Result<u8, Rejection> {
        Ok(id)
    }

    #[idempotent(key = id, with = e, scope = "orders")]
    pub(crate) async fn cancel(e: &Executor, id: u8) -> Result<u8, Rejection> {
        Ok(id)
    }

    #[idempotent(key = id, with = e)]
    pub(crate) async fn ship(e: &Executor, id: u8) -> Result<u8, Rejection> {
        Ok(id)
    }
}

#[test]
fn two_handlers_of_one_scope_are_reported_once() {
    let collector: &'static Collector = Box::leak(Box::default());
    let logs = idempotent_harness::logs_to(collector);
    crate::common::on_memory(async |world: World| {
        let worker = world.worker("a", Policy::new());
        for id in 0..3 {
            handlers::place(&worker.executor, id).await.unwrap();
            handlers::cancel(&worker.executor, id).await.unwrap();
            handlers::ship(&worker.executor, id).await.unwrap();
        }
    });
    drop(logs);
    let events = collector.events.lock().unwrap().clone();
    let told: Vec<_> = events.iter().filter(|event| event.contains("two handlers share one scope")).collect();
    let [told] = told[..] else { panic!("{events:#?}") };
    assert!(told.starts_with("WARN") && told.contains("scope=\"orders\""), "{told}");
    assert!(told.matches("spans.rs:").count() == 2 && told.contains("a `scope` of its own"), "{told}");
}

/// The observer is called by a background task.
#[test]
fn a_settlement_in_the_background_is_reported_in_the_span_of_its_run() {
    let collector: &'static Collector = Box::leak(Box::default());
    let logs = idempotent_harness::logs_to(collector);
    crate::common::on_memory(async |world: World| {
        let worker = world.worker("a", Policy::new().settle_timeout(ms(1_000)));
        worker.store.fail_before(StoreOperation::Complete, FOREVER);
        let run = worker.spawn("k", &Job::takes(ms(0))).await;
        world.clock.advance(ms(1_000)).await;
        drop(run.await.unwrap());
        worker.store.heal();
        world.clock.advance(ms(1_000)).await;
    });
    drop(logs);
    let events = collector.events.lock().unwrap().clone();
    let late: Vec<_> = events.iter().filter(|event| event.contains("completed in the background")).collect();
    assert!(late.len() == 1 && !late[0].contains("outside of spans"), "{events:#?}");
}

#[test]
fn only_warnings_of_a_health_check_are_logged_when_it_is_judged() {
    let collector: &'static Collector = Box::leak(Box::default());
    let logs = idempotent_harness::logs_to(collector);
    let finding = |severity, text: &str| HealthFinding::new(severity, "version", "server:1", text);
    let findings = [(Severity::Ok, "new"), (Severity::Warn, "old"), (Severity::Refuse, "too old")];
    let report = HealthReport::new(findings.map(|(severity, text)| finding(severity, text)).into());
    assert!(report.judge().unwrap_err().to_string().contains("server:1: too old"));
    drop(logs);
    let events = collector.events.lock().unwrap().clone();
    assert!(events.len() == 1 && events[0].contains("message=old"), "{events:#?}");
}

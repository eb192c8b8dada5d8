//! Checks of a store whose server was brought into a state that loses records, the same for each server.
use std::time::Duration;

use idempotent_core::Store as _;
use idempotent_core::store::{Health, HealthFinding, HealthReport, Severity};
use sqlx::AssertSqlSafe;

use super::fixture::{Place, Store};
use crate::support::{done, held, key, request};

/// Returns the severity and the text of the only finding about a subject.
pub(crate) fn found<'a>(report: &'a HealthReport, subject: &str) -> (Severity, &'a str) {
    let all: Vec<&HealthFinding> = report.findings().iter().filter(|finding| finding.subject() == subject).collect();
    let [finding] = all[..] else { panic!("{subject}: {report}") };
    (finding.severity(), finding.text())
}

/// Checks that the finding has this severity, and that its text contains the words.
#[track_caller]
pub(crate) fn expect(report: &HealthReport, subject: &str, severity: Severity, words: &[&str]) {
    let (found, text) = found(report, subject);
    assert_eq!(found, severity, "{report}");
    for word in words {
        assert!(text.contains(word), "{subject}: `{word}` is missing in {text}");
    }
}

pub(crate) async fn open_by(place: &Place, user: &str, read_only: bool) -> Store {
    let builder = Store::builder(place.url_by(user)).table(&place.table).timeout(Duration::from_secs(60));
    builder.read_only(read_only).connect().await.unwrap()
}

#[tokio::test]
async fn a_check_has_a_finding_for_each_subject_and_writes_nothing() {
    let place = Place::new();
    let store = place.open().await;
    store.claim(&request(&key("paid"), 1)).await.unwrap();
    store.complete(&held(&key("paid"), 1), &done(b"yes")).await.unwrap();
    let before = store.peek(&key("paid")).await.unwrap();
    let report = store.capabilities().health.unwrap().check().await.unwrap();
    for (subject, severity) in [("isolation", Severity::Ok), ("rights", Severity::Ok), ("purge", Severity::Ok)] {
        expect(&report, subject, severity, &[]);
    }
    expect(&report, "connections", Severity::Ok, &["4 connections", "limit"]);
    assert_eq!(store.peek(&key("paid")).await.unwrap(), before);
}

#[tokio::test]
async fn a_store_with_nearly_all_connections_of_the_server_is_a_warning() {
    let place = Place::new();
    place.open().await;
    let report = place.builder().connections(1_000_000).connect().await.unwrap().check().await.unwrap();
    expect(&report, "connections", Severity::Warn, &["1000000 connections", "lower `connections`"]);
}

#[tokio::test]
async fn records_that_expired_days_ago_are_a_warning_until_they_are_purged() {
    let place = Place::new();
    let store = place.open().await;
    store.claim(&request(&key("old"), 1)).await.unwrap();
    let age = format!("UPDATE {} SET expires_at = expires_at - {}", place.table, 10_i64 * 86_400_000_000);
    sqlx::query(AssertSqlSafe(age)).execute(&place.other()).await.unwrap();
    let report = store.check().await.unwrap();
    expect(&report, "purge", Severity::Warn, &["9 days ago", "purge"]);
    store.capabilities().purge.unwrap().purge(10).await.unwrap();
    expect(&store.check().await.unwrap(), "purge", Severity::Ok, &[]);
}

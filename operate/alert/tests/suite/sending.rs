//! Grouping, limits, senders that fail, and the end of a process.
use std::time::Duration;

use idempotent_core::{Alert, AlertKind, AlertLog, AlertSender, Alerts, Clock, Timestamp};

use crate::world::{Act, GATHER, WINDOW, World, into_channel};

fn alert(world: &World, scope: &'static str) -> Alert {
    Alert::new(AlertKind::DeadLetter, scope, world.alerts.now())
}

#[tokio::test]
async fn ten_alerts_within_the_gathering_time_are_one_with_their_count() {
    let world = World::new();
    for _ in 0..10 {
        world.alerts.raise(alert(&world, "billing"));
    }
    world.clock.advance(GATHER).await;
    assert_eq!(world.inbox.counts(), [("dead_letter", 10)]);
    let counts = world.alerts.counts();
    assert_eq!((counts.raised, counts.suppressed, counts.sent, counts.dropped), (10, 9, 1, 0));
}

#[tokio::test]
async fn alerts_within_the_window_are_sent_at_its_end_with_their_count() {
    let world = World::new();
    world.alerts.raise(alert(&world, "billing"));
    world.clock.advance(GATHER).await;
    for _ in 0..9 {
        world.clock.advance(Duration::from_secs(1)).await;
        world.alerts.raise(alert(&world, "billing"));
    }
    world.clock.advance(WINDOW - Duration::from_secs(10)).await;
    assert_eq!(world.inbox.counts(), [("dead_letter", 1)]);
    world.clock.advance(Duration::from_secs(1)).await;
    assert_eq!(world.inbox.counts(), [("dead_letter", 1), ("dead_letter", 9)]);
}

#[tokio::test]
async fn more_groups_than_the_rate_wait_and_are_not_lost() {
    let world = World::with(|builder| builder.rate(2));
    for scope in ["a", "b", "c"] {
        world.alerts.raise(alert(&world, scope));
    }
    world.clock.advance(GATHER).await;
    assert_eq!(world.inbox.alerts().len(), 2);
    world.clock.advance(WINDOW).await;
    assert_eq!(world.inbox.alerts().len(), 3);
}

#[tokio::test]
async fn a_sender_that_hangs_makes_no_caller_wait_and_drops_are_counted() {
    let world = World::with(|builder| builder.max_groups(2));
    world.inbox.will(&[Act::Hang]);
    world.alerts.raise(alert(&world, "a"));
    world.clock.advance(GATHER).await;
    // The sender has the first alert and does not answer.
    for scope in ["b", "b", "c", "d"] {
        world.alerts.raise(alert(&world, scope));
    }
    assert_eq!((world.alerts.counts().dropped, world.inbox.alerts().len()), (2, 0));
    world.clock.advance(Duration::from_secs(9)).await;
    assert_eq!(world.inbox.alerts().len(), 0, "the sender has 10 s");
    // It is cut off, and tried again.
    world.clock.advance(Duration::from_secs(3)).await;
    let scopes: Vec<_> = world.inbox.alerts().iter().map(|alert| (alert.scope.to_string(), alert.count)).collect();
    assert_eq!(scopes, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

#[tokio::test]
async fn a_sender_that_fails_or_panics_is_tried_three_times_in_all() {
    let world = World::new();
    world.inbox.will(&[Act::Fail, Act::Panic]);
    world.alerts.raise(alert(&world, "a"));
    world.clock.advance(Duration::from_secs(12)).await;
    assert_eq!((world.inbox.alerts().len(), world.alerts.counts().sent), (1, 1));
    world.inbox.will(&[Act::Fail, Act::Fail, Act::Fail]);
    world.alerts.raise(alert(&world, "b"));
    world.clock.advance(Duration::from_secs(60)).await;
    assert_eq!((world.inbox.alerts().len(), world.alerts.counts().failed), (1, 1));
}

#[tokio::test]
async fn a_flush_sends_what_waits_and_tells_whether_it_was_in_time() {
    let world = World::new();
    world.alerts.raise(alert(&world, "a"));
    assert!(world.alerts.flush(Duration::from_secs(1)).await);
    world.alerts.raise(alert(&world, "a"));
    assert!(world.alerts.flush(Duration::from_secs(1)).await);
    assert_eq!(world.inbox.alerts().len(), 2);
    world.inbox.will(&[Act::Hang]);
    world.alerts.raise(alert(&world, "b"));
    let (alerts, clock) = (world.alerts.clone(), world.clock.clone());
    let flushed = tokio::spawn(async move { alerts.flush(Duration::from_secs(1)).await });
    clock.settle().await;
    clock.advance(Duration::from_secs(1)).await;
    assert!(!flushed.await.unwrap());
}

#[tokio::test]
async fn the_last_handle_sends_what_waits() {
    let World { clock, inbox, alerts } = World::new();
    alerts.raise(Alert::new(AlertKind::LeaseLost, "a", alerts.now()));
    drop(alerts);
    clock.settle().await;
    assert_eq!(inbox.counts(), [("lease_lost", 1)]);
}

#[tokio::test]
async fn alerts_as_a_sender_wait_for_the_first_of_a_group_only() {
    let world = World::new();
    let (alerts, first) = (world.alerts.clone(), alert(&world, "a"));
    let sending = tokio::spawn(async move { alerts.send(&first).await });
    world.clock.settle().await;
    assert!(!sending.is_finished() && world.inbox.alerts().is_empty());
    world.clock.advance(GATHER).await;
    assert!(sending.is_finished() && world.inbox.alerts().len() == 1);
    // Suppressed: at once.
    world.alerts.send(&alert(&world, "a")).await.unwrap();
    world.inbox.will(&[Act::Fail, Act::Fail, Act::Fail]);
    let (alerts, other) = (world.alerts.clone(), alert(&world, "b"));
    let failing = tokio::spawn(async move { alerts.send(&other).await });
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(20)).await;
    assert!(failing.await.unwrap().unwrap_err().to_string().contains("failed every time"));
}

#[tokio::test]
async fn a_caller_that_waits_for_an_alert_that_is_dropped_gets_an_error() {
    let world = World::with(|builder| builder.max_groups(1));
    world.alerts.raise(alert(&world, "a"));
    let dropped = world.alerts.send(&alert(&world, "b")).await.unwrap_err();
    assert!(dropped.to_string().contains("too many groups"));
}

/// The only thread of this runtime is blocked until the alert is out: only another thread can send it.
#[tokio::test(flavor = "current_thread")]
async fn an_alert_gets_out_while_its_runtime_is_blocked() {
    let (alerts, kinds) = into_channel();
    alerts.raise(Alert::new(AlertKind::RuntimeBlocked, "a", alerts.now()));
    assert_eq!(kinds.recv_timeout(Duration::from_secs(60)), Ok(AlertKind::RuntimeBlocked));
}

#[test]
fn settings_out_of_range_are_refused_by_name_and_a_virtual_clock_needs_a_runtime() {
    let refused = |builder: idempotent_core::AlertsBuilder| builder.start().unwrap_err().to_string();
    let day = Duration::from_secs(86_401);
    assert!(refused(Alerts::builder().window(day)).contains("window is 86401s"));
    assert!(refused(Alerts::builder().gather(day)).contains("gather is 86401s"));
    assert!(refused(Alerts::builder().rate(0)).contains("rate is 0"));
    assert!(refused(Alerts::builder().max_groups(0)).contains("max_groups is 0"));
    let clock = std::sync::Arc::new(idempotent_testkit::VirtualClock::new());
    assert!(refused(Alerts::builder().clock(clock)).contains("no tokio runtime"));
}

#[test]
fn neither_debug_nor_the_summary_shows_the_detail_and_a_long_one_is_cut() {
    let alert = Alert::new(AlertKind::DeadLetter, "billing", idempotent_core::Timestamp(1))
        .with_detail("card 4111".repeat(200));
    assert!(!format!("{alert:?} {}", alert.summary()).contains("4111"));
    assert_eq!(alert.detail().unwrap().len(), Alert::MAX_DETAIL);
    let accents = Alert::new(AlertKind::DeadLetter, "billing", idempotent_core::Timestamp(1))
        .with_detail(format!("x{}", "é".repeat(600)));
    assert_eq!(accents.detail().unwrap().len(), 999, "not within a character");
}

#[tokio::test]
async fn a_summary_shows_how_often_and_an_alert_has_the_time_of_the_clock() {
    let world = World::new();
    let mut alert = alert(&world, "billing");
    assert_eq!(alert.first_at, world.clock.wall());
    let once = alert.summary();
    assert!(once.ends_with(": billing"), "{once}");
    alert.count = 3;
    assert_eq!(alert.summary(), format!("{once}, 3 times"));
}

/// Returns what is logged while `logging` runs.
async fn logged(logging: impl Future<Output = ()>) -> String {
    let log = idempotent_harness::LogLines::default();
    let _logging = idempotent_harness::logs_to(log.clone());
    logging.await;
    log.text()
}

#[tokio::test]
async fn the_log_shows_details_only_on_request() {
    let alert = Alert::new(AlertKind::DeadLetter, "billing", Timestamp(1)).with_detail("card 4111");
    let plain = logged(async { AlertLog::new().send(&alert).await.unwrap() }).await;
    assert!(plain.contains("ERROR") && plain.contains("scope=\"billing\"") && !plain.contains("4111"), "{plain}");
    let full = logged(async { AlertLog::new().with_details().send(&alert).await.unwrap() }).await;
    assert!(full.contains("detail=\"card 4111\""), "{full}");
}

#[tokio::test]
async fn dropped_alerts_are_logged_once() {
    let world = World::with(|builder| builder.max_groups(1));
    let log = logged(async {
        ["a", "b", "c", "d"].iter().for_each(|scope| world.alerts.raise(alert(&world, scope)));
    })
    .await;
    assert_eq!((log.matches("alerts are dropped").count(), world.alerts.counts().dropped), (1, 3), "{log}");
}

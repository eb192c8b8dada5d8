//! Policies: precedence, invalid values, and the form in configuration files.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{PlainHandler, secs};
use idempotent::key::DisplayKey;
use idempotent::ordering::OnBrokenOrder;
use idempotent::store::OnExpiry;
use idempotent::{Executor, MemoryStore, OnInFlight, OnLeaseLost, OnStoreError, Policy, Redelivery, Scene};
use idempotent_testkit::VirtualClock;

fn refused(policy: Policy) -> String {
    let error = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).build().unwrap_err();
    error.to_string()
}

/// The last policy is invalid, because an acknowledged duplicate of a run that dies would be lost.
#[test]
fn nonsense_is_refused_with_both_numbers() {
    let policy = Policy::new;
    for (nonsense, texts) in [
        (policy().lease(Duration::ZERO), &["lease is 0s", "1 ms … 30 days"][..]),
        (policy().lease(Duration::from_millis(u64::MAX)), &["lease is", "30 days"]),
        (policy().lease(secs(31 * 86_400)), &["lease is", "30 days"]),
        (policy().lease(secs(60)).retain(secs(60)), &["retain is 1m", "lease of 1m"]),
        (policy().retain(Duration::ZERO), &["retain is 0s", "lease of 30s"]),
        (policy().lease(secs(10)).heartbeat(secs(5)), &["heartbeat is 5s", "half the lease of 10s"]),
        (policy().max_run(secs(29)), &["max_run is 29s", "lease of 30s"]),
        (policy().retain_failures(secs(29)), &["retain_failures is 29s", "lease of 30s"]),
        (policy().jitter(101), &["jitter is 101 %", "0 … 100 %"]),
        (policy().in_flight_delay(secs(11)), &["in_flight_delay is 11s", "in_flight_delay_max, 10s"]),
        (policy().retry_delay(Duration::ZERO), &["retry_delay is 0s"]),
        (policy().on_in_flight(OnInFlight::Wait(Duration::ZERO)), &["waits 0s"]),
        (policy().on_in_flight(OnInFlight::Wait(secs(31 * 86_400))), &["on_in_flight waits", "30 days"]),
        (policy().on_broken_order(OnBrokenOrder::Hold(Duration::ZERO)), &["on_broken_order waits 0s", "1 ms"]),
        (policy().on_broken_order(OnBrokenOrder::Skip(secs(31 * 86_400))), &["on_broken_order waits", "30 days"]),
        (policy().on_in_flight(OnInFlight::Ack), &["loses the message", "outbox"]),
    ] {
        let text = refused(nonsense);
        assert!(texts.iter().all(|wanted| text.contains(wanted)), "{text}");
    }
    // No retries mean one run.
    Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy().max_retries(0)).build().unwrap();
}

/// The retention and the lease must fit the redelivery of the broker.
#[test]
fn retention_and_lease_must_fit_the_brokers_redelivery() {
    let rocketmq = || {
        Redelivery::after([10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200].map(secs))
    };
    assert_eq!(rocketmq().budget(), secs(17_140));
    let build = |policy: Policy, redelivery: Redelivery| {
        let builder = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).redelivery(Scene::Mq, redelivery);
        builder.build().map(drop).map_err(|error| error.to_string())
    };
    build(Policy::new(), rocketmq()).unwrap();
    let text = build(Policy::new().retain(secs(3600)), rocketmq()).unwrap_err();
    assert!(text.contains("1h") && text.contains("4h 45m 40s") && text.contains("allow_short_retention"), "{text}");
    build(Policy::new().retain(secs(3600)), rocketmq().allow_short_retention()).unwrap();
    let short = || Redelivery::after([secs(1), secs(5)]);
    let text = build(Policy::new(), short()).unwrap_err();
    assert!(text.contains("30s") && text.contains("6s") && text.contains("deferrals_are_free"), "{text}");
    build(Policy::new(), short().deferrals_are_free()).unwrap();
}

fn read(json: &str) -> Result<Policy, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn a_policy_is_read_from_configuration() {
    let policy = read(
        r#"{"lease": "45s", "heartbeat": "5s", "max_run": "1h 30m", "retain": "forever", "max_retries": 3,
            "retain_failures": "7d", "max_result": "64KiB", "jitter": 0, "on_expiry": "park", "on_lease_lost": "finish",
            "on_in_flight": {"wait": "2s"}, "on_store_error": "run_unprotected", "release_on_cancel": true,
            "display_key": "full"}"#,
    );
    let expected = Policy::new()
        .lease(secs(45))
        .heartbeat(secs(5))
        .max_run(secs(5400))
        .retain(Policy::FOREVER)
        .max_retries(3)
        .retain_failures(secs(7 * 86_400))
        .max_result(65_536)
        .jitter(0)
        .on_expiry(OnExpiry::Park)
        .on_lease_lost(OnLeaseLost::Finish)
        .on_in_flight(OnInFlight::Wait(secs(2)))
        .on_store_error(OnStoreError::RunUnprotected)
        .release_on_cancel(true)
        .display_key(DisplayKey::Full);
    assert_eq!(policy.unwrap(), expected);
    assert_eq!(read("{}").unwrap(), Policy::new());
    assert_eq!(read(r#"{"max_result": 100}"#).unwrap(), Policy::new().max_result(100));
}

#[test]
fn an_invalid_name_is_reported_with_its_place_and_remedy() {
    for (json, texts) in [
        (r#"{"lease": "abc"}"#, &["`lease`", "\"abc\"", "at 0"][..]),
        (r#"{"lease": "1e9"}"#, &["`lease`", "1e9"]),
        (r#"{"lease": "18446744073709551615s 1000ms"}"#, &["`lease`", "too long for a duration", "30s"]),
        (r#"{"lease": "18446744073709551615s 1000ms é"}"#, &["`lease`", "too long for a duration", "30s"]),
        (r#"{"lease": "5"}"#, &["`lease`", "no unit", "ms, s, m, h, d"]),
        (r#"{"lease": 5}"#, &["`lease`", "`5` has no unit", "\"5s\""]),
        (r#"{"lease": "5 minuts"}"#, &["`lease`", "minuts", "at 2", "ms, s, m, h, d"]),
        (r#"{"lease": "-1s"}"#, &["`lease`", "at 0"]),
        (r#"{"lease": ""}"#, &["`lease`", "empty"]),
        (r#"{"retain": -1}"#, &["`retain`", "is negative"]),
        (r#"{"max_result": "1 elephant"}"#, &["`max_result`", "1MiB"]),
        (r#"{"leese": "5s"}"#, &["unknown setting `leese`", "did you mean `lease`?"]),
        (r#"{"zzzzzzzzz": 1}"#, &["unknown setting `zzzzzzzzz`", "lease, heartbeat"]),
        (r#"{"lease": "5s", "lease": "6s"}"#, &["`lease`", "twice"]),
        (r#"{"max_retries": -1}"#, &["`max_retries`"]),
        (r#"{"on_expiry": "steal"}"#, &["`on_expiry`", "takeover"]),
    ] {
        let text = read(json).unwrap_err();
        assert!(texts.iter().all(|wanted| text.contains(wanted)), "{json}: {text}");
    }
}

/// Half a second remains half a second, and a shorter duration than a millisecond counts as one.
#[tokio::test]
async fn durations_below_a_millisecond_count_as_one() {
    use idempotent::{Call, Lease, Rejection};
    // The clock does not move, so the rest depends on the lease only.
    let rest = async |lease: Duration| {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let executor = Executor::builder(store).clock(Arc::new(clock)).build().unwrap();
        let policy = Policy::new().lease(lease).max_run(secs(1));
        let handler =
            PlainHandler::new(|| async { Ok::<_, Rejection>(Lease::current().map(|lease| lease.remaining())) });
        executor.run(Call::new(crate::common::id("k")).policy(policy), handler).await.unwrap()
    };
    let [shortest, half] = [rest(Duration::from_millis(1)).await, rest(Duration::from_millis(500)).await];
    assert!(shortest > Some(Duration::ZERO) && half > shortest, "{shortest:?} {half:?}");
    for lease in [Duration::from_nanos(1), Duration::from_micros(999)] {
        assert_eq!(rest(lease).await, shortest, "{lease:?}");
    }
}

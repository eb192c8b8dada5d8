//! Laws about records: a written record is read until its time, and the backend's time is valid.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{FencingToken, Fingerprint, OwnerToken, Record, State, Timestamp};

use crate::conformance::CasSubject;
use crate::conformance::cas::Hand;
use crate::conformance::laws::keys::large;
use crate::conformance::subject::HOUR;

const LAST: FencingToken = FencingToken((1 << 53) - 1);

pub async fn records_of_every_state_are_read_back_unchanged(s: &CasSubject) {
    let k = s.hand("k");
    let now = k.now().await;
    for (taken_over, fingerprint) in
        [(None, None), (Some(FencingToken(now.0 - 1)), Some(Fingerprint::of_bytes("payload")))]
    {
        let record = |state, display: Option<&str>| Record {
            fencing: FencingToken(now.0 + 1),
            attempt: 2,
            fingerprint,
            state,
            // Different times, so that none can be mistaken for another one.
            expires_at: now + HOUR + Duration::from_micros(5),
            first_seen: Timestamp(now.0 - 7),
            updated_at: Timestamp(now.0 - 3),
            display: display.map(Arc::from),
        };
        for owner in [OwnerToken(0), OwnerToken(1 << 64), OwnerToken(u128::MAX)] {
            let until = Timestamp((now + HOUR).0 - 11);
            comes_back(&k, record(State::Consuming { owner, until, taken_over }, Some("order 17"))).await;
            comes_back(&k, record(State::Consumed { owner, value: Some(Arc::from(*b"value")) }, None)).await;
            comes_back(&k, record(State::Consumed { owner, value: None }, None)).await;
        }
        let error: Arc<str> = "no stock".into();
        let not_before = now + Duration::from_micros(60_000_001);
        comes_back(&k, record(State::Vacant { not_before, error: error.clone(), taken_over }, None)).await;
        comes_back(&k, record(State::Failed { error: error.clone() }, Some("order 17"))).await;
        comes_back(&k, record(State::Dead { error }, Some("order 17"))).await;
    }
}

pub async fn a_record_without_expiry_is_read_back_unchanged(s: &CasSubject) {
    let k = s.hand("k");
    let now = k.now().await;
    let record = |state| Record {
        fencing: LAST,
        attempt: u32::MAX,
        fingerprint: None,
        state,
        expires_at: Timestamp::FOREVER,
        first_seen: Timestamp(0),
        updated_at: now,
        display: None,
    };
    let (owner, error): (_, Arc<str>) = (OwnerToken(1), "never".into());
    comes_back(&k, record(State::Consumed { owner, value: None })).await;
    comes_back(&k, record(State::Failed { error: error.clone() })).await;
    comes_back(&k, record(State::Dead { error: error.clone() })).await;
    let not_before = Timestamp::FOREVER;
    comes_back(&k, record(State::Vacant { not_before, error, taken_over: Some(LAST) })).await;
    let until = now + Record::LONGEST_LEASE;
    comes_back(&k, record(State::Consuming { owner, until, taken_over: Some(LAST) })).await;
}

pub async fn empty_hostile_and_large_values_are_read_back_unchanged(s: &CasSubject) {
    let k = s.hand("k");
    let sample = k.sample(1).await;
    for text in ["", " ", "\0", "'; --", "l\u{e4}w \u{1f600}\n\t\"\\", "\u{10ffff}"] {
        let state = State::Failed { error: text.into() };
        comes_back(&k, Record { state, display: Some(text.into()), ..sample.clone() }).await;
    }
    let every_byte: Vec<u8> = (0..=255).collect();
    for value in [&b""[..], b"\0", &every_byte, &large(s.largest_value)] {
        let state = State::Consumed { owner: OwnerToken(1), value: Some(value.into()) };
        comes_back(&k, Record { state, ..sample.clone() }).await;
    }
}

pub async fn a_record_stays_until_its_time(s: &CasSubject) {
    let k = s.hand("k");
    let span = Duration::from_secs(5);
    let sample = k.sample(1).await;
    let record = Record { expires_at: sample.updated_at + span, ..sample };
    let version = k.put(&record).await;
    s.pass(span / 5).await;
    let seen = k.read().await;
    assert_eq!((seen.record, seen.version), (Some(record), version), "it has time left");
}

pub async fn time_never_decreases(s: &CasSubject) {
    let hands = [s.hand("a"), s.hand("b"), s.hand("never written")];
    let mut last = Timestamp(0);
    for n in 0..20 {
        for k in &hands {
            let now = k.now().await;
            assert!(now >= last, "the backend's time went back by {:?}", last - now);
            last = now;
        }
        hands[0].put(&hands[0].sample(n).await).await;
        if n % 2 == 0 {
            hands[1].put(&hands[1].sample(n).await).await;
        } else {
            hands[1].delete().await;
        }
    }
}

pub async fn time_passes_in_microseconds(s: &CasSubject) {
    let k = s.hand("k");
    let before = k.now().await;
    s.pass(Duration::from_millis(1_100)).await;
    let passed = k.now().await - before;
    // A coarse clock and a slow machine are allowed. Times in milliseconds or seconds, and a stopped clock, are not.
    let plausible = Duration::from_millis(100)..Duration::from_secs(120);
    assert!(
        plausible.contains(&passed),
        "1.1 s passed, but {passed:?} by the backend: does it read the clock given to `on_clock`, or is it not in µs?"
    );
}

/// Writes without a record, and over another record.
async fn comes_back(k: &Hand, record: Record) {
    for _ in 0..2 {
        k.put(&record).await;
        let found = k.record().await;
        // No assert_eq, because the message would contain a megabyte.
        assert!(found.as_ref() == Some(&record), "written: {record:?}\nread:    {found:?}");
    }
    k.delete().await;
}

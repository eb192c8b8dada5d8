//! Laws about order tables.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, Key, KeyFilter, PageLimits, Settled, Store, StoreErrorKind};
use tokio::task::yield_now;

use super::races::of_round;
use crate::conformance::subject::{HOUR, MS, acquired, must};
use crate::conformance::{Subject, together};

/// The number of racers: few enough for a server, and enough to collide.
const RACERS: u8 = 16;

async fn line(s: &Subject, stream: &str) -> Option<Vec<u8>> {
    must("line", s.order().load(&s.key(stream)).await).table.map(|line| line.to_vec())
}

async fn compare_and_swap(s: &Subject, stream: &str, seen: Option<&[u8]>, next: &[u8]) -> bool {
    must("compare_and_swap", s.order().compare_and_swap(&s.key(stream), seen, next, HOUR).await)
}

pub async fn an_unknown_stream_has_no_order_state(s: &Subject) {
    assert_eq!(line(s, "k").await, None);
    assert!(!compare_and_swap(s, "k", Some(b"seen"), b"next").await, "no caller can have seen that");
    assert_eq!(line(s, "k").await, None);
    if let Some(clock) = &s.clock {
        assert_eq!(must("line", s.order().load(&s.key("k")).await).now, clock.wall(), "the time is the store's");
    }
}

pub async fn order_state_is_written_only_with_its_current_version(s: &Subject) {
    assert!(compare_and_swap(s, "k", None, b"one").await);
    for wrong in [None, Some(&b"two"[..]), Some(b"One"), Some(b"one "), Some(b"one\0"), Some(b"on")] {
        assert!(!compare_and_swap(s, "k", wrong, b"two").await, "{wrong:?} is not the stored value");
    }
    assert_eq!(line(s, "k").await.as_deref(), Some(&b"one"[..]));
    assert!(compare_and_swap(s, "k", Some(b"one"), b"two").await);
    assert!(!compare_and_swap(s, "k", Some(b"one"), b"three").await, "that was before");
    assert_eq!(line(s, "k").await.as_deref(), Some(&b"two"[..]));
    assert!(compare_and_swap(s, "k", Some(b"two"), b"two").await, "an unchanged value may be written, too");
    assert_eq!(line(s, "k").await.as_deref(), Some(&b"two"[..]));
}

pub async fn order_state_of_any_bytes_is_read_back_unchanged(s: &Subject) {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    // As long as a table with the maximum number of ranges.
    let long = all.repeat(512);
    let mut seen: Option<Vec<u8>> = None;
    for next in [b"\0".to_vec(), all, long, b"'; DROP TABLE x; --".to_vec()] {
        assert!(compare_and_swap(s, "k", seen.as_deref(), &next).await);
        assert_eq!(line(s, "k").await.as_ref(), Some(&next), "{} bytes", next.len());
        seen = Some(next);
    }
}

pub async fn order_states_of_two_streams_are_separate(s: &Subject) {
    let streams = ["k", "K", "k ", "other"];
    for stream in streams {
        assert!(compare_and_swap(s, stream, None, stream.as_bytes()).await);
    }
    for stream in streams {
        assert_eq!(line(s, stream).await.as_deref(), Some(stream.as_bytes()));
    }
}

pub async fn order_state_is_not_a_record(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert!(compare_and_swap(s, "k", None, b"line").await);
    assert!(compare_and_swap(s, "alone", None, b"line").await);
    assert_eq!(must("peek", s.store.peek(&s.key("alone")).await), None);
    if let Some(search) = s.store.capabilities().search {
        let listed = must("search", search.search(&KeyFilter::all(), None, PageLimits::default()).await).entries;
        assert!(listed.iter().all(|entry| entry.key == s.key("k")), "a listing shows records alone");
    }
    assert_eq!(s.complete(1, b"v").await, Settled::Done, "a line beside it does not touch a record");
    assert_eq!(line(s, "k").await.as_deref(), Some(&b"line"[..]), "nor does a record touch a line");
}

pub async fn order_state_survives_a_purge_until_it_expires(s: &Subject) {
    let compare_and_swap = async |stream: &str, seen: Option<&[u8]>, next: &[u8], keep: Duration| {
        assert!(must("compare_and_swap", s.order().compare_and_swap(&s.key(stream), seen, next, keep).await));
    };
    compare_and_swap("k", None, b"one", HOUR).await;
    compare_and_swap("ever", None, b"for ever", Duration::MAX).await;
    // The second writer extends the retention.
    compare_and_swap("prolonged", None, b"brief", s.lease()).await;
    compare_and_swap("prolonged", Some(b"brief"), b"longer", HOUR).await;
    s.pass(s.lease()).await;
    s.pass_almost(HOUR - s.lease()).await;
    must("purge", s.purge().purge(100).await);
    assert_eq!(line(s, "k").await.as_deref(), Some(&b"one"[..]));
    assert_eq!(line(s, "prolonged").await.as_deref(), Some(&b"longer"[..]));
    assert_eq!(line(s, "ever").await.as_deref(), Some(&b"for ever"[..]));
}

/// Adds a mark to the table, in competition with others.
async fn add(store: Arc<dyn Store>, stream: Key, mark: u8) {
    loop {
        let Some(order) = store.capabilities().order else { panic!("a capability does not come and go") };
        let seen = must("line", order.load(&stream).await).table;
        yield_now().await;
        let mut next = seen.as_deref().unwrap_or_default().to_vec();
        next.push(mark);
        match order.compare_and_swap(&stream, seen.as_deref(), &next, HOUR).await {
            Ok(true) => return,
            Ok(false) => {}
            // Under contention, a store may refuse.
            Err(error) if error.kind() == StoreErrorKind::NotApplied => tokio::time::sleep(MS).await,
            Err(error) => panic!("compare_and_swap failed: {error}"),
        }
    }
}

pub async fn racing_changes_of_one_order_state_are_not_lost(s: &Subject) {
    s.order();
    for round in 0..(s.race_rounds() / 10).max(2) {
        let stream = s.key(&of_round(round));
        let adding = (0..RACERS).map(|mark| add(s.store.clone(), stream.clone(), mark)).collect();
        together::race(round, adding).await;
        let mut marks = line(s, &of_round(round)).await.unwrap_or_default();
        marks.sort_unstable();
        assert_eq!(marks, (0..RACERS).collect::<Vec<_>>(), "each of them was answered as written");
    }
}

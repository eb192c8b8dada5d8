//! The effect of each settlement on the server.
use std::time::Instant;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DelaySupport, Settlement, Source};
use idempotent_redis_streams::TrimPolicy;

use crate::world::{World, ms, nothing_until, one, receive, retry, settle};

#[tokio::test]
async fn a_retry_is_redelivered_after_its_delay_and_not_before() {
    let world = World::new();
    let mut source = world.source("a").await;
    assert_eq!(source.capabilities().delays, DelaySupport::UpTo(ms(600)));
    world.send("1");
    let mut held = one(&mut source).await;
    assert_eq!((held.0.delivered, held.0.attempt, held.0.redelivered), (Some(1), Some(1), false));
    for (times, after) in [(2, 300), (3, 1), (4, 600), (5, 0)] {
        settle(&source.settler(), &held, retry(ms(after))).await;
        let since = Instant::now();
        held = receive(&mut source, 2).await.pop().unwrap();
        // The server's clock has a resolution of one ms.
        assert!(since.elapsed() + ms(2) >= ms(after), "{after} ms: {:?}", since.elapsed());
        assert_eq!((held.0.delivered, held.0.attempt, held.0.redelivered), (Some(times), Some(2), true));
        assert_eq!(held.0.body, b"1");
    }
}

#[tokio::test]
async fn a_retry_mark_of_another_program_holds_up_nothing() {
    let world = World::new();
    let mut source = world.source("a").await;
    let id = world.send("1");
    let held = one(&mut source).await;
    settle(&source.settler(), &held, retry(ms(1))).await;
    let mark: [&[u8]; 4] = [b"HSET", b"orders:attempts:billing", id.as_bytes(), b"\xff 99999999999 x"];
    assert!(!world.server.command(&mark).is_error());
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered), (Some(1), Some(2)));
}

#[tokio::test]
async fn each_end_of_an_entry_removes_its_retry_mark() {
    for keep in [TrimPolicy::Everything, TrimPolicy::Unacknowledged] {
        let world = World::new();
        let mut source = world.builder("a").keep(keep).connect().await.unwrap();
        let marks = || world.server.command(&["HLEN", "orders:attempts:billing"]).text();
        let letter = Settlement::DeadLetter(DeadLetter::because("no", Timestamp(1)));
        for end in [Settlement::Ack, letter] {
            world.send("1");
            let held = one(&mut source).await;
            settle(&source.settler(), &held, retry(ms(1))).await;
            assert_eq!(marks(), "1");
            let ttl: u64 = world.server.command(&["PTTL", "orders:attempts:billing"]).text().parse().unwrap();
            assert!(ttl > 6 * 86_400_000, "{ttl}");
            let held = one(&mut source).await;
            assert_eq!(held.0.attempt, Some(2));
            settle(&source.settler(), &held, end).await;
            assert_eq!(marks(), "0");
        }
        // A producer's XADD with MAXLEN may delete an entry that is retried.
        let id = world.send("1");
        let held = one(&mut source).await;
        settle(&source.settler(), &held, retry(ms(1))).await;
        world.server.command(&["XDEL", "orders", &id]);
        nothing_until(&mut source, || marks() == "0").await;
    }
}

#[tokio::test]
async fn a_delayed_entry_is_also_found_by_another_consumer() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    world.send("1");
    let held = one(&mut first).await;
    settle(&first.settler(), &held, retry(ms(100))).await;
    assert_eq!(one(&mut second).await.0.delivered, Some(2));
    assert_eq!(world.pending(), [("b".to_owned(), 2)]);
}

#[tokio::test]
async fn entries_deleted_while_pending_are_no_longer_pending() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    let ids: Vec<_> = (0..3).map(|number| world.send(number.to_string())).collect();
    assert_eq!(receive(&mut first, 3).await.len(), 3);
    world.server.command(&["XDEL", "orders", &ids[0], &ids[2]]);
    let taken = one(&mut second).await;
    assert_eq!(taken.0.body, b"1");
    settle(&second.settler(), &taken, Settlement::Ack).await;
    nothing_until(&mut second, || world.pending().is_empty()).await;
}

#[tokio::test]
async fn room_is_never_exceeded_and_the_whole_pending_list_is_searched() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    for number in 0..100 {
        world.send(number.to_string());
    }
    let all = receive(&mut first, 100).await;
    assert_eq!(all.len(), 100);
    // The entries that are kept alive come first.
    let (kept, left) = all.split_at(90);
    let kept: Vec<_> = kept.iter().map(|(_, tag)| tag).collect();
    for held in left {
        settle(&first.settler(), held, Settlement::GiveBack).await;
    }
    let mut found = 0;
    while found < 10 {
        first.settler().keep_alive(&kept).await.unwrap();
        let some = receive(&mut second, 3).await;
        assert!(some.len() <= 3);
        found += some.len();
    }
    assert_eq!(world.pending().iter().filter(|(owner, _)| owner == "b").count(), 10);
}

#[tokio::test]
async fn unfinished_keeps_entries_that_another_group_has_not_settled_and_trims_the_rest() {
    let world = World::new();
    let mut source = world.builder("a").keep(TrimPolicy::Unfinished).connect().await.unwrap();
    world.server.command(&["XGROUP", "CREATE", "orders", "slow", "0"]);
    world.server.command(&["CONFIG", "SET", "stream-node-max-entries", "1"]);
    for number in 0..50 {
        world.send(number.to_string());
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::Ack).await;
    }
    let searches = world.calls("xautoclaim") + 2;
    nothing_until(&mut source, || world.calls("xautoclaim") > searches).await;
    assert_eq!(world.entries("orders").len(), 50);
    // The slow group has read 40 entries and holds the first of the last ten.
    world.server.command(&["XREADGROUP", "GROUP", "slow", "s", "COUNT", "40", "NOACK", "STREAMS", "orders", ">"]);
    world.server.command(&["XREADGROUP", "GROUP", "slow", "s", "COUNT", "5", "STREAMS", "orders", ">"]);
    world.send("more");
    let held = one(&mut source).await;
    settle(&source.settler(), &held, Settlement::Ack).await;
    nothing_until(&mut source, || world.entries("orders").len() < 50).await;
    let left = world.entries("orders");
    assert!((11..=13).contains(&left.len()), "{}", left.len());
    assert!(left.iter().any(|fields| fields[1] == b"40"));
}

#[tokio::test]
async fn an_acknowledged_entry_is_not_pending_and_stays_in_the_stream_as_configured() {
    for (keep, left) in [(TrimPolicy::Everything, 2), (TrimPolicy::Unacknowledged, 1)] {
        let world = World::new();
        let mut source = world.builder("a").keep(keep).connect().await.unwrap();
        world.send("1");
        world.send("2");
        let held = receive(&mut source, 2).await;
        for _ in 0..2 {
            settle(&source.settler(), &held[0], Settlement::Ack).await;
        }
        assert_eq!((world.pending().len(), world.entries("orders").len()), (1, left), "{keep:?}");
    }
}

#[tokio::test]
async fn debug_output_contains_no_payload() {
    let world = World::new();
    let mut source = world.source("a").await;
    world.send("hush");
    let shown = format!("{:?}", one(&mut source).await);
    // The bytes of the payload in decimal. A single byte could be part of an id.
    assert!(!shown.contains("hush") && !shown.contains("104, 117"), "{shown}");
}

//! Redriving of dead letters.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DeadLetters, Redrive, Settlement, Source, SourceErrorKind, StoredLetter};
use idempotent_redis_streams::StreamsDeadLetters;

use crate::world::{World, one, settle};

fn letters_of(world: &World) -> StreamsDeadLetters {
    StreamsDeadLetters::new(world.server.url(), "orders").unwrap()
}

fn letter(reason: &'static str) -> DeadLetter {
    let mut letter = DeadLetter::because(reason, Timestamp(9));
    (letter.id, letter.attempts, letter.first_at) = (Some("key:3".to_owned()), 17, Timestamp(5));
    letter
}

#[tokio::test]
async fn an_entry_that_dies_after_the_count_is_not_listed() {
    let world = World::new();
    let mut letters = letters_of(&world);
    assert_eq!(letters.count().await.unwrap(), 0);
    world.add("orders:dead", &["body", "a"]);
    assert!(letters.next().await.unwrap().is_none());
    assert_eq!(letters.count().await.unwrap(), 1);
    world.add("orders:dead", &["body", "b"]);
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"a");
    assert!(letters.next().await.unwrap().is_none());
    assert_eq!(letters.count().await.unwrap(), 2);
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"b");
}

#[tokio::test]
async fn a_redriven_entry_has_the_original_bytes_and_its_deaths() {
    let world = World::new();
    let mut source = world.source("a").await;
    let long: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let entries: [&[&[u8]]; 3] = [
        &[b"trace", b"\x00\xfe", b"body", b"\xff{not json\0", b"trace", b"two", b"\xff\xfe", b"odd", b"", b""],
        &[b"body", b"", b"idempotent-reason", b"not ours"],
        &[b"body", &long],
    ];
    for fields in entries {
        world.add("orders", fields);
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::DeadLetter(letter("why"))).await;
    }
    // Listing changes nothing.
    let mut letters = letters_of(&world);
    assert_eq!(letters.count().await.unwrap(), 3);
    let mut bodies = Vec::new();
    while let Some(StoredLetter { delivery, letter: left, .. }) = letters.next().await.unwrap() {
        assert_eq!((left.unwrap(), delivery.deaths, delivery.attempt), (letter("why"), 1, Some(1)));
        bodies.push(delivery.body.len());
    }
    assert_eq!((bodies, world.entries("orders:dead").len()), (vec![11, 0, 1 << 20], 3));

    let before = world.entries("orders:dead");
    assert_eq!(Redrive::new().limit(2).run(&mut letters_of(&world)).await.put_back, 2);
    assert_eq!(world.entries("orders:dead"), before[2..]);
    assert_eq!(Redrive::new().run(&mut letters_of(&world)).await.put_back, 1);
    assert_eq!((&world.entries("orders")[3..], world.entries("orders:dead").len()), (&before[..], 0));
    for fields in entries {
        let held = one(&mut source).await;
        assert_eq!((held.0.deaths, held.0.first_at, held.0.attempt), (1, Some(Timestamp(5)), Some(1)));
        // A field with one of our names is a dead-letter field, whoever has written it.
        let headers: Vec<_> = held.0.headers.iter().map(|(_, value)| value.to_vec()).collect();
        let sent = fields.chunks(2).filter(|field| field[0] != b"body" && field[0] != b"idempotent-reason");
        assert_eq!(headers, sent.map(|field| field[1].to_vec()).collect::<Vec<_>>());
        settle(&source.settler(), &held, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn fields_that_a_producer_wrote_choose_no_stream_and_no_attempt() {
    let world = World::new();
    let mut source = world.source("a").await;
    let forged: [(&[u8], &[u8]); 9] = [
        (b"body", b"1"),
        (b"idempotent-attempts", b"70"),
        (b"idempotent-reason", b"forged"),
        (b"idempotent-id", b"key:9"),
        (b"idempotent-entry", b"1-1"),
        (b"idempotent-last-at", b"7"),
        (b"idempotent-stream", b"payments"),
        (b"idempotent-deaths", b"4294967296"),
        (b"idempotent-first-at", b"\xff"),
    ];
    let forged: Vec<&[u8]> = forged.into_iter().flat_map(|(name, value)| [name, value]).collect();
    world.add("orders", &forged);
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.deaths, held.0.first_at), (Some(1), 0, None));
    settle(&source.settler(), &held, Settlement::DeadLetter(letter("why"))).await;
    // The same fields on an entry that its producer sent to the dead letters.
    world.add("orders:dead", &forged);
    let redriven = Redrive::new().run(&mut letters_of(&world)).await;
    assert!(redriven.failed.is_none() && redriven.put_back == 2, "{redriven:?}");
    assert_eq!((world.entries("orders").len(), world.server.command(&["EXISTS", "payments"]).text()), (3, "0".into()));
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_put_back_stays_in_place() {
    let world = World::new();
    for number in 0..3 {
        world.add("orders:dead", &["body", &number.to_string()]);
    }
    let before = world.entries("orders:dead");
    let refused = async |kind, words| {
        let redriven = Redrive::new().run(&mut letters_of(&world)).await;
        let error = redriven.failed.unwrap();
        assert_eq!((redriven.put_back, error.kind()), (0, kind));
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(world.entries("orders:dead"), before);
    };
    // A missing stream, a value of another type, and a full server.
    refused(SourceErrorKind::Fatal, "does not exist; create it").await;
    world.server.command(&["SET", "orders", "in the way"]);
    refused(SourceErrorKind::Fatal, "").await;
    world.server.command(&["DEL", "orders"]);
    world.server.command(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    refused(SourceErrorKind::Transient, "").await;
    world.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(Redrive::new().run(&mut letters_of(&world)).await.put_back, 3);
    assert_eq!((world.entries("orders"), world.entries("orders:dead").len()), (before, 0));
}

#[tokio::test]
async fn a_discarded_entry_is_removed_once_and_the_others_stay() {
    let world = World::new();
    for number in 0..3 {
        world.add("orders:dead", &["body", &number.to_string()]);
    }
    let before = world.entries("orders:dead");
    let [mut first, mut second] = [letters_of(&world), letters_of(&world)];
    assert_eq!(first.discard().await.unwrap_err().kind(), SourceErrorKind::Fatal, "nothing was read");
    first.next().await.unwrap().unwrap();
    second.next().await.unwrap().unwrap();
    assert!(first.discard().await.unwrap());
    assert!(!second.discard().await.unwrap(), "another operator has removed the entry");
    assert_eq!(first.discard().await.unwrap_err().kind(), SourceErrorKind::Fatal, "twice");
    assert_eq!(world.entries("orders:dead"), before[1..]);
    assert_eq!(Redrive::new().limit(1).discarding().run(&mut letters_of(&world)).await.discarded, 1);
    assert_eq!(world.entries("orders:dead"), before[2..]);
}

#[tokio::test]
async fn two_concurrent_redrives_put_each_letter_back_once() {
    let world = World::new();
    world.server.command(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    for number in 0..50 {
        world.add("orders:dead", &["body", &number.to_string()]);
    }
    let (mut first, mut second) = (letters_of(&world), letters_of(&world));
    let redrive = Redrive::new();
    let (a, b) = tokio::join!(redrive.run(&mut first), redrive.run(&mut second));
    assert!(a.failed.is_none() && b.failed.is_none(), "{a:?} {b:?}");
    assert_eq!((a.put_back + b.put_back, world.entries("orders").len()), (50, 50));
    assert_eq!(first.put_back().await.unwrap_err().kind(), SourceErrorKind::Fatal, "twice");
}

//! Dead letters.
use idempotent_core::Timestamp;
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{DeadLetter, HandlerResult, Message, Messages, Redrive, Settlement, Source, SourceErrorKind};
use idempotent_redis_streams::StreamsDeadLetters;

use crate::world::{World, one, settle, until};

fn letter() -> Settlement {
    let mut letter = DeadLetter::because("no such article", Timestamp(7_000));
    letter.id = Some("key:3".to_owned());
    (letter.attempts, letter.first_at) = (17, Timestamp(5_000));
    Settlement::DeadLetter(letter)
}

#[tokio::test]
async fn a_dead_letter_has_all_original_fields_in_order_followed_by_its_own() {
    let world = World::new();
    let mut source = world.source("a").await;
    let fields: [(&[u8], &[u8]); 6] = [
        (b"trace", b"\x00\xfe"),
        (b"body", b"\xff{not json\0"),
        (b"trace", b"two"),
        (b"\xff\xfe", b"odd"),
        (b"body", b"second"),
        (b"", b""),
    ];
    let fields: Vec<&[u8]> = fields.into_iter().flat_map(|(name, value)| [name, value]).collect();
    let id = world.add("orders", &fields);
    let held = one(&mut source).await;
    assert_eq!(held.0.body, b"\xff{not json\0");
    let headers: Vec<_> = held.0.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    let wanted =
        [("trace", &b"\x00\xfe"[..]), ("trace", b"two"), ("\u{fffd}\u{fffd}", b"odd"), ("body", b"second"), ("", b"")];
    assert_eq!(headers, wanted.map(|(name, value)| (name.to_owned(), value.to_vec())));
    assert_eq!((held.0.position.offset.as_deref(), held.0.id.clone()), (Some(&*id), Some(format!("orders/{id}"))));

    settle(&source.settler(), &held, letter()).await;
    assert!(world.pending().is_empty());
    let dead = world.entries("orders:dead").pop().unwrap();
    let (as_it_came, marks) = dead.split_at(fields.len());
    assert_eq!(as_it_came, fields);
    let marks: Vec<_> = marks
        .chunks(2)
        .map(|mark| mark.iter().map(|text| str::from_utf8(text).unwrap()).collect::<Vec<_>>().join("="))
        .collect();
    let wanted = "idempotent-first-at=5000 idempotent-deaths=1 idempotent-reason=no such article idempotent-id=key:3 \
                  idempotent-attempts=17 idempotent-last-at=7000";
    assert_eq!(marks.join(" "), format!("{wanted} idempotent-entry={id}"));

    // Sent again unchanged, including the added fields.
    world.add("orders", &dead);
    let again = one(&mut source).await;
    assert_eq!((again.0.deaths, again.0.first_at, again.0.attempt), (1, Some(Timestamp(5_000)), Some(1)));
    assert_eq!((&again.0.body, &again.0.headers), (&held.0.body, &held.0.headers));
    settle(&source.settler(), &again, letter()).await;
    assert_eq!(world.entries("orders:dead")[1].len(), dead.len());
}

#[tokio::test]
async fn a_dead_letter_is_written_once_even_if_the_reply_is_lost() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.address()).await;
    let mut source = World::builder_at(&proxy.url(), "a").connect().await.unwrap();
    world.send("1");
    let held = one(&mut source).await;
    // The script is cached, so that a single request is sent.
    world.server.command(&["SCRIPT", "LOAD", include_str!("../../src/scripts/bury.lua")]);
    proxy.fail_next_with("orders:dead", Fault::CutAfterApply);
    let lost = source.settler().settle(&held.0, &held.1, &letter()).await.unwrap_err();
    assert_eq!((lost.kind(), proxy.met()), (SourceErrorKind::Transient, 1));
    assert_eq!((world.pending().len(), world.entries("orders:dead").len()), (0, 1));
    settle(&source.settler(), &held, letter()).await;
    assert_eq!((world.pending().len(), world.entries("orders:dead").len()), (0, 1));
}

/// Lua passes at most 8,000 values to a function, so a script cannot handle every entry that the server accepts.
#[tokio::test]
async fn an_entry_with_any_number_of_fields_is_dead_lettered_and_redriven_unchanged() {
    let world = World::new();
    let mut source = world.source("a").await;
    for count in [3_893, 3_894, 4_000, 12_000] {
        let fields: Vec<_> = (0..count).flat_map(|n| [format!("name {n}"), format!("value {n}")]).collect();
        world.add("orders", &fields);
        let held = one(&mut source).await;
        settle(&source.settler(), &held, letter()).await;
        assert!(world.pending().is_empty(), "{count}");
        // Already settled, as after a lost reply.
        settle(&source.settler(), &held, letter()).await;
        let dead = world.entries("orders:dead");
        let fields: Vec<_> = fields.into_iter().map(String::into_bytes).collect();
        assert!(dead.len() == 1 && dead[0].starts_with(&fields) && dead[0].len() == fields.len() + 14, "{count}");
        let mut letters = StreamsDeadLetters::new(world.server.url(), "orders").unwrap();
        let redriven = Redrive::new().run(&mut letters).await;
        assert!(redriven.failed.is_none() && redriven.put_back == 1, "{count}: {redriven:?}");
        assert!(world.entries("orders:dead").is_empty());
        let again = one(&mut source).await;
        assert!(again.0.deaths == 1 && again.0.headers == held.0.headers, "{count}");
        settle(&source.settler(), &again, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn an_entry_with_many_fields_that_was_taken_over_is_not_dead_lettered() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    let fields: Vec<_> = (0..8_000).map(|n| n.to_string()).collect();
    world.add("orders", &fields);
    let held = one(&mut first).await;
    let taken_over = one(&mut second).await;
    let gone = first.settler().settle(&held.0, &held.1, &letter()).await.unwrap_err();
    assert_eq!((gone.kind(), world.pending()), (SourceErrorKind::Gone, vec![("b".to_owned(), 2)]));
    assert_eq!(world.server.command(&["EXISTS", "orders:dead"]).text(), "0");
    settle(&second.settler(), &taken_over, letter()).await;
    assert_eq!((world.pending().len(), world.entries("orders:dead").len()), (0, 1));
}

#[tokio::test]
async fn an_entry_trimmed_while_held_is_dead_lettered_completely() {
    let world = World::new();
    let mut source = world.source("a").await;
    world.send("precious");
    let held = one(&mut source).await;
    world.server.command(&["XTRIM", "orders", "MAXLEN", "0"]);
    settle(&source.settler(), &held, letter()).await;
    assert_eq!(world.entries("orders:dead")[0][..2], [b"body".to_vec(), b"precious".to_vec()]);
    assert!(world.pending().is_empty());
}

#[tokio::test]
async fn an_entry_that_cannot_be_dead_lettered_stays_pending_and_is_delayed() {
    let world = World::new();
    world.server.command(&["SET", "orders:dead", "in the way"]);
    let mut source = world.source("a").await;
    let settler = source.settler();
    world.send("1");
    let held = one(&mut source).await;
    let refused = settler.settle(&held.0, &held.1, &letter()).await.unwrap_err();
    assert_eq!((refused.kind(), world.pending()), (SourceErrorKind::Fatal, vec![("a".to_owned(), 1)]));
    settle(&settler, &held, Settlement::GiveBack).await;
    drop((held, source, settler));
    let handling = Messages::json().unprotected(|_: Message<Vec<u8>>| async { HandlerResult::Done });
    let running = world.run(world.source("b").await, handling, 8, 6);
    until("it is put off", async || running.counters.counts().deferred == 1).await;
    // Delayed for 300 s, as the runtime does with an entry that cannot be dead-lettered.
    assert_eq!((world.pending().len(), running.counters.counts().dead_lettered), (1, 0));
}

/// With `noeviction`, a consumer must be able to skip an entry that it cannot process.
#[tokio::test]
async fn entries_are_dead_lettered_and_acknowledged_when_memory_is_full() {
    let world = World::new();
    let mut source = world.source("a").await;
    for body in ["poison", "good"] {
        world.send(body);
    }
    world.server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = world.server.command(&["XADD", "orders", "*", "body", "late"]);
    assert!(refused.is_error(), "{refused:?}");
    let poison = one(&mut source).await;
    settle(&source.settler(), &poison, letter()).await;
    let good = one(&mut source).await;
    settle(&source.settler(), &good, Settlement::Ack).await;
    assert!(world.pending().is_empty());
    let dead = world.entries("orders:dead");
    assert_eq!((dead.len(), &dead[0][1][..]), (1, &b"poison"[..]));
}

//! Order tables: their expiry, and other values in their place.
use idempotent_core::{Key, OrderStore, Policy, StoreErrorKind};
use idempotent_harness::servers::Value;
use idempotent_redis::RedisStore;

use super::planted_records::{HOUR, World, key};

/// Returns the key of a stream's order table.
fn beside(stream: &Key) -> String {
    format!("{}:line", stream.as_str())
}

fn rest(w: &World, stream: &Key) -> i64 {
    match w.server.command(&["PTTL", &beside(stream)]) {
        Value::Integer(rest) => rest,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn an_order_table_expires_unless_it_is_kept_forever(w: &World) {
    let stream = key(1);
    assert!(w.store.compare_and_swap(&stream, None, b"one", HOUR).await.unwrap());
    assert!((3_590_000..=3_600_000).contains(&rest(w, &stream)), "{}", rest(w, &stream));
    assert!(w.store.compare_and_swap(&stream, Some(b"one"), b"two", Policy::FOREVER).await.unwrap());
    assert_eq!(rest(w, &stream), -1, "for ever");
    assert!(w.store.compare_and_swap(&stream, Some(b"two"), b"three", HOUR).await.unwrap());
    assert!(rest(w, &stream) > 0);
}

/// A value of another type, and a server that rejects writes.
pub(crate) async fn values_in_the_place_of_an_order_table_are_reported_and_left_unchanged(w: &World) {
    let kinds = async |store: &RedisStore, name, seen: Option<&[u8]>| {
        let compare_and_swap =
            store.compare_and_swap(&key(name), seen, b"next", HOUR).await.err().map(|error| error.kind());
        (compare_and_swap, store.load(&key(name)).await.err().map(|error| error.kind()))
    };
    w.server.command(&["LPUSH", &beside(&key(1)), "somebody else's"]);
    let foreign = (Some(StoreErrorKind::Foreign), Some(StoreErrorKind::Foreign));
    assert_eq!(kinds(&w.store, 1, None).await, foreign);
    assert_eq!(kinds(&w.store, 1, Some(b"seen")).await, foreign);

    assert!(w.store.compare_and_swap(&key(2), None, b"one", HOUR).await.unwrap());
    let reader = w.reader(&["-set"]).await;
    assert_eq!(kinds(&reader, 2, Some(b"one")).await, (Some(StoreErrorKind::Denied), None));
    assert_eq!(w.store.load(&key(2)).await.unwrap().table.as_deref(), Some(&b"one"[..]));
}

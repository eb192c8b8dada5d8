//! Distinction, refusal and display of keys.

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::{Job, PlainHandler, World, id, ms};
use idempotent::key::{DisplayKey, Parts, key_hash};
use idempotent::store::State;
use idempotent::{
    Call, Disposition, Executor, Fingerprint, Identity, Key, KeyError, KeyExtractor, KeyPart, MemoryStore, Outcome,
    Policy, Rejection, Scene,
};

on_both_stores! {
    each_of_the_five_tells_keys_apart
    strange_keys_are_data_and_stay_apart
    the_same_key_of_another_tenant_is_another_key
    the_display_form_of_a_key
    two_groups_see_the_same_message_once_each
}

fn key(parts: impl KeyPart) -> Result<Key, KeyError> {
    Identity::new(Scene::Mq, "pay", &parts).described("order.id").key("ns")
}

async fn ran(world: &World, identity: Identity) -> bool {
    let worker = world.worker("a", Policy::new());
    let (outcome, _) = worker.deliver_call(Call::new(identity), &Job::takes(ms(0))).await;
    match outcome {
        Outcome::Ran => true,
        Outcome::Replayed => false,
        other => panic!("{other:?}"),
    }
}

/// Parts of a key have clear boundaries, and scopes are separate.
async fn each_of_the_five_tells_keys_apart(world: World) {
    let base = || Identity::new(Scene::Mq, "g1", &("t", "b:c"));
    let different = [
        base(),
        base().tenant("a"),
        base().tenant("b"),
        base().prefix("other"),
        Identity::new(Scene::Rest, "g1", &("t", "b:c")),
        Identity::new(Scene::Named("jobs".into()), "g1", &("t", "b:c")),
        Identity::new(Scene::Mq, "g2", &("t", "b:c")),
        Identity::new(Scene::Mq, "g1", &("t", "b", "c")),
        Identity::new(Scene::Mq, "g1", &("t:b", "c")),
        Identity::new(Scene::Mq, "g1", "t:b:c"),
    ];
    for identity in &different {
        assert!(ran(&world, identity.clone()).await, "{identity:?}");
    }
    for identity in different {
        assert!(!ran(&world, identity.clone()).await, "{identity:?}");
    }
}

async fn strange_keys_are_data_and_stay_apart(world: World) {
    let mut parts: Vec<Vec<u8>> = [
        "a\0b",
        "a",
        "b",
        "a\r\nb",
        "\u{1b}[31mred",
        "{",
        "}",
        "{a}",
        "a{b}c",
        "*",
        "?",
        "[a]",
        "a ",
        " a",
        "A",
        "é",
        "e\u{301}",
        "redis.call('flushall')",
        "'; drop table idempotent_records; --",
        "$1",
        "?1",
        ":",
        "a:b",
        "\u{202e}rtl",
        "\u{200b}",
        "NaN",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    parts.extend([vec![0xff], vec![0xff, 0xfe], vec![0], b"\xc3\x28".to_vec()]);
    for part in &parts {
        assert!(ran(&world, Identity::new(Scene::Mq, "strange", part)).await, "{part:?}");
    }
    for part in &parts {
        assert!(!ran(&world, Identity::new(Scene::Mq, "strange", part)).await, "{part:?}");
    }
    let keys: HashSet<_> =
        parts.iter().map(|part| Identity::new(Scene::Mq, "strange", part).key("ns").unwrap().hash()).collect();
    assert_eq!(keys.len(), parts.len());
}

async fn the_same_key_of_another_tenant_is_another_key(world: World) {
    for tenant in ["alice", "bob"] {
        assert!(ran(&world, id("k").tenant(tenant)).await, "{tenant}");
        assert!(!ran(&world, id("k").tenant(tenant)).await);
    }
}

async fn two_groups_see_the_same_message_once_each(world: World) {
    for group in ["billing", "shipping"] {
        assert!(ran(&world, Identity::new(Scene::Mq, group, "m-1")).await);
        assert!(!ran(&world, Identity::new(Scene::Mq, group, "m-1")).await);
    }
}

async fn the_display_form_of_a_key(world: World) {
    fn last_four(key: &str) -> String {
        format!("…{}", &key[key.len() - 4..])
    }
    for (policy, shown) in [
        (DisplayKey::Hash, None),
        (DisplayKey::Full, Some("4111111111111111 / a\\u{1b}b")),
        (DisplayKey::Mask(last_four), Some("…1b}b")),
    ] {
        let worker = world.worker("a", Policy::new().display_key(policy));
        let identity = Identity::new(Scene::Mq, "cards", &("4111111111111111", "a\u{1b}b"));
        let key = identity.key("idempotent").unwrap();
        let job = Job::takes(ms(100));
        let run = tokio::spawn({
            let (worker, job) = (worker.clone(), job.clone());
            async move { worker.deliver_call(Call::new(identity), &job).await.0 }
        });
        world.clock.settle().await;
        let record = idempotent::Store::peek(&world.store, &key).await.unwrap().unwrap();
        assert_eq!(record.display.as_deref(), shown);
        assert!(matches!(record.state, State::Consuming { .. }));
        world.clock.advance(ms(100)).await;
        run.await.unwrap();
        let record = idempotent::Store::peek(&world.store, &key).await.unwrap().unwrap();
        assert_eq!(record.display, None, "nothing to look after any more");
        world.clock.advance(crate::common::secs(8 * 24 * 3600)).await;
        assert!(!format!("{key} {key:?} {:?}", Parts::default()).contains("4111"));
    }
}

/// A missing key is an error of its message, and never a constant or a new key.
#[tokio::test]
async fn an_empty_or_missing_key_is_an_error_that_names_it() {
    let mut inner = Parts::default();
    ["a", ""].iter().for_each(|part| inner.push(part));
    for (error, what) in [
        (key(("shop", "eu", inner)), "order.id, part 4"),
        (key(""), "key `order.id`"),
        (key(None::<&str>), "key `order.id`"),
        (key(("shop", None::<u64>)), "order.id, part 2"),
        (key(Parts::default()), "key `order.id`"),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, KeyError::Empty { .. }));
        let text = error.to_string();
        assert!(text.contains("empty") && text.contains("scene \"mq\"") && text.contains(what), "{text}");
    }
    for missing in [id("k").tenant(""), id("k").tenant(&None::<&str>)] {
        let error = missing.key("ns").unwrap_err().to_string();
        assert!(error.contains("empty") && error.contains("`tenant`"), "{error}");
    }
    let executor = Executor::new(MemoryStore::new());
    let handler = PlainHandler::new(|| async { Ok::<_, Rejection>(1) });
    let (answer, outcome) = Outcome::capture(executor.run(Call::new(id("")), handler)).await;
    assert!(matches!(answer, Err(Rejection::Key(KeyError::Empty { .. }))), "never run");
    let Disposition::DeadLetter { reason } = outcome.unwrap().disposition() else { panic!("not dropped, not acked") };
    assert_eq!(reason, "no usable key");
    assert!(matches!(Identity::new(Scene::Mq, "", "k").key("ns"), Err(KeyError::NoName { part: "scope" })));
    assert!(matches!(id("k").key(""), Err(KeyError::NoName { part: "namespace" })));
}

#[test]
fn a_key_that_is_too_long_names_both_numbers_and_the_remedy() {
    assert!(key("x".repeat(1024)).is_ok());
    let text = key("x".repeat(1025)).unwrap_err().to_string();
    assert!(text.contains("1025 bytes, limit 1024") && text.contains("key_hash"), "{text}");
    let text = key("x".repeat(1 << 20)).unwrap_err().to_string();
    assert!(text.contains("1048576 bytes"), "{text}");
    assert!(matches!(key(("x".repeat(1000), "y".repeat(25))), Err(KeyError::TooLong { bytes: 1025, .. })));
    assert!(key(key_hash("x".repeat(1 << 20))).is_ok());
    assert_ne!(key_hash("a"), key_hash("b"));
}

#[test]
fn the_hash_tag_of_a_storage_key_is_its_own() {
    let hostile = Identity::new(Scene::Named("{s}".into()), "a{b}c d\n", "k}{").key("n{s}").unwrap();
    let text = hostile.as_str();
    assert_eq!((text.matches('{').count(), text.matches('}').count()), (1, 1), "{text}");
    assert!(text.ends_with('}') && text.is_ascii() && !text.contains(char::is_whitespace), "{text}");
    let long = Identity::new(Scene::Mq, "s".repeat(500), "k").key("ns").unwrap();
    assert!(long.as_str().len() < 160);
    assert_ne!(long, Identity::new(Scene::Mq, "s".repeat(501), "k").key("ns").unwrap());
    assert_eq!(Key::from_parts(long.name(), long.hash()), long);
}

#[test]
fn parts_of_every_kind() {
    assert_ne!(key(("a:b", "c")).unwrap(), key(("a", "b:c")).unwrap());
    assert_eq!(key(7u8).unwrap(), key("7").unwrap(), "producers disagree on numbers and text");
    assert_eq!(key(Some(7i64)).unwrap(), key(String::from("7")).unwrap());
    assert_eq!(key(b"7".to_vec()).unwrap(), key([b'7']).unwrap());
    assert_eq!(key((Arc::<str>::from("a"), true, 'c')).unwrap(), key(("a", "true", "c")).unwrap());
    // `f64` does not implement `KeyPart`; see tests/ui/fail.

    struct Order {
        id: u64,
    }
    let by_id: &dyn KeyExtractor<Order> = &|order: &Order| order.id;
    let mut parts = Parts::default();
    by_id.extract(&Order { id: 7 }, &mut parts);
    assert_eq!(key(parts).unwrap(), key(7).unwrap());
}

/// Keys are equal in every build and on every host, and contain no `Debug` text or address.
#[test]
fn keys_and_fingerprints_never_change() {
    let key = Identity::new(Scene::Mq, "orders", &("o-17", 3)).tenant("acme").key("shop").unwrap();
    assert_eq!(key.as_str(), KNOWN);
    let fingerprint = Fingerprint::of(&serde_json::json!({"b": [1, 2.5], "a": "é"})).unwrap();
    assert_eq!(fingerprint, Fingerprint::of_bytes(r#"{"a":"é","b":[1,2.5]}"#));
}

/// Written down once: another value here means that every key in every store has changed.
const KNOWN: &str = "shop:mq:orders:{6kATeFrMF5bYRsHMKBjbZw}";

#[test]
fn masks_are_equal_if_their_functions_are() {
    let (first, last) = (DisplayKey::Mask(|key| key[..1].into()), DisplayKey::Mask(|key| key[1..].into()));
    let same = first;
    assert!(first == same && first != last && first != DisplayKey::Full);
}

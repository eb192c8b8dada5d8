//! Keys as they come: none is changed, none meets another.

use idempotent_core::{Claim, Identity, Key, KeyFilter, KeyPart, PageLimits, Scene, Search, Store};
use idempotent_sqlx::SqliteStore;

use crate::support::{Place, done, held, key, request};

/// Claims and completes each key with its own value; each is then found with that value and no other.
async fn are_kept_apart(store: &SqliteStore, keys: &[Key]) {
    for (index, key) in keys.iter().enumerate() {
        let owner = index as u128 + 1;
        let claim = store.claim(&request(key, owner)).await.unwrap();
        assert!(matches!(&claim, Claim::Acquired(grant) if grant.attempt == 1), "key {index}: {claim:?}");
        store.complete(&held(key, owner), &done(&[u8::try_from(index).unwrap()])).await.unwrap();
    }
    for (index, key) in keys.iter().enumerate() {
        let Claim::Consumed(consumed) = store.claim(&request(key, 99)).await.unwrap() else {
            panic!("key {index} is not consumed")
        };
        assert_eq!(consumed.value.unwrap()[..], [u8::try_from(index).unwrap()], "key {index}");
    }
    let limits = PageLimits { keys: 1_000, ..PageLimits::default() };
    let page = store.search(&KeyFilter::all(), None, limits).await.unwrap();
    let mut listed: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    let mut wanted = keys.to_vec();
    listed.sort_by_key(Key::hash);
    wanted.sort_by_key(Key::hash);
    assert_eq!(listed, wanted, "a listed key is the key that was claimed");
}

async fn texts(texts: &[&str]) {
    let place = Place::new();
    let keys: Vec<_> = texts.iter().map(|text| key(text)).collect();
    are_kept_apart(&place.open().await, &keys).await;
}

fn of(parts: &(impl KeyPart + ?Sized)) -> Key {
    Identity::new(Scene::Mq, "tests", parts).key("test").unwrap()
}

#[tokio::test]
async fn a_nul_byte_in_a_key_is_part_of_it() {
    texts(&["a", "a\0", "a\0b", "\0", "a\0c"]).await;
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_taken_as_they_are() {
    let place = Place::new();
    let keys = [of(&b"\xff"[..]), of(&b"\xfe"[..]), of(&b"\xff\xfe"[..]), of("\u{fffd}")];
    are_kept_apart(&place.open().await, &keys).await;
}

#[tokio::test]
async fn line_ends_and_escapes_are_data() {
    texts(&["a\r\n", "a\n", "a", "\u{1b}[31ma", "[31ma"]).await;
}

#[tokio::test]
async fn braces_patterns_and_statements_are_data() {
    texts(&["{x}", "x", "*", "?", "?1", "[a]", "%", "_", "'; DROP TABLE idempotent_record; --", "return 1"]).await;
}

#[tokio::test]
async fn case_blanks_and_normal_forms_make_different_keys() {
    texts(&["order1", "Order1", "order1 ", " order1", "caf\u{e9}", "cafe\u{301}", "ORDER1"]).await;
}

#[tokio::test]
async fn a_separator_does_not_move_between_parts() {
    let place = Place::new();
    let keys = [of(&("a:b", "c")), of(&("a", "b:c")), of(&("a", "b", "c")), of("a:b:c")];
    are_kept_apart(&place.open().await, &keys).await;
}

#[tokio::test]
async fn the_same_key_of_another_tenant_scene_or_scope_is_another_key() {
    let place = Place::new();
    let keys = [
        Identity::new(Scene::Mq, "tests", "a").key("test").unwrap(),
        Identity::new(Scene::Mq, "tests", "a").tenant("t1").key("test").unwrap(),
        Identity::new(Scene::Mq, "tests", "a").tenant("t2").key("test").unwrap(),
        Identity::new(Scene::Rest, "tests", "a").key("test").unwrap(),
        Identity::new(Scene::Mq, "other", "a").key("test").unwrap(),
        Identity::new(Scene::Mq, "tests", "a").key("prod").unwrap(),
    ];
    are_kept_apart(&place.open().await, &keys).await;
}

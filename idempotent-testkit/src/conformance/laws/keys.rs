//! Laws about keys: keys are bytes, and are never normalised, matched, truncated or executed.
use idempotent_core::{
    Claim, ClaimRequest, Completion, Consumed, Identity, Key, KeyPart, OwnerToken, Release, ReleaseKind, Scene,
    Settled, State,
};

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, HeldBy, acquired, done, must, put_down};

/// Texts that break a store which compares, matches, quotes or truncates text.
const HOSTILE: [&str; 32] = [
    "a",
    "A",
    "a ",
    " a",
    "a\0",
    "a\0b",
    "\0",
    "ab",
    "a\nb",
    "a\r\nb",
    "\u{1b}[31ma\u{1b}[0m",
    "{a}",
    "}{a",
    "{}",
    "a*",
    "a?",
    "[a]",
    "a%",
    "a_",
    "'; DROP TABLE idempotent; --",
    "\"a\"",
    "a\\",
    "]] redis.call('FLUSHALL') --[[",
    "return 1",
    "${jndi:x}",
    "caf\u{e9}",
    "cafe\u{301}",
    "\u{202e}a",
    "a\u{200b}",
    "\u{fb01}",
    "ss",
    "\u{df}",
];

/// Checks that each key is acquired, consumed with its own value, and answers with that value.
async fn kept_apart(s: &Subject, keys: &[Key]) {
    let asks: Vec<_> = (1..)
        .zip(keys)
        .map(|(owner, key)| ClaimRequest { key: key.clone(), owner: OwnerToken(owner), lease: HOUR, ..s.ask(0) })
        .collect();
    for ask in &asks {
        acquired(s.claim(ask).await);
    }
    for (index, ask) in asks.iter().enumerate() {
        let value = index.to_string();
        let settled = must("complete", s.store.complete(&ask.held(), &done(value.as_bytes(), HOUR)).await);
        assert_eq!(settled, Settled::Done, "{:?}", ask.key);
    }
    for (index, ask) in asks.iter().enumerate() {
        let Claim::Consumed(Consumed { value, .. }) = s.claim(ask).await else { panic!("{:?}", ask.key) };
        assert_eq!(value.as_deref(), Some(index.to_string().as_bytes()), "{:?}", ask.key);
    }
}

fn of(s: &Subject, part: &(impl KeyPart + ?Sized)) -> Key {
    s.key_of(&Identity::new(Scene::Mq, "law", part))
}

pub async fn keys_that_look_alike_are_separate(s: &Subject) {
    let mut keys: Vec<_> = HOSTILE.iter().map(|text| of(s, *text)).collect();
    keys.extend([&b"\xff"[..], b"\xfe", b"\xc3", b"\xc3\x28", b"a\xff", b"\xed\xa0\x80"].map(|bytes| of(s, bytes)));
    keys.push(of(s, &"a".repeat(1_024)));
    keys.push(of(s, &"a".repeat(1_023)));
    kept_apart(s, &keys).await;
}

pub async fn keys_that_differ_in_one_byte_are_separate(s: &Subject) {
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a|b", "c"), ("a", "b|c"), ("ab", "c"), ("a", "bc")];
    let mut keys: Vec<_> = pairs.iter().map(|pair| of(s, pair)).collect();
    keys.extend(["a:b:c", "a|b|c", "abc"].map(|text| of(s, text)));
    kept_apart(s, &keys).await;
    // Hashes that differ in one bit, are at the ends of the range, or share one half.
    let hashes = [0, 1, 1 << 63, 1 << 64, 1 << 127, u128::MAX, u128::MAX - 1, u128::from(u64::MAX)];
    let name = s.key("name").name().to_owned();
    kept_apart(s, &hashes.map(|hash| Key::from_parts(&name, hash))).await;
}

/// Checks that a store that looks up keys by text does not join name and hash without a separator.
pub async fn keys_with_an_ambiguous_boundary_of_name_and_hash_are_separate(s: &Subject) {
    let (name, rest) = (s.key("name").name().to_owned(), u128::MAX >> 8);
    let longer = |digit: u32| format!("{name}{digit:x}");
    let keys = [
        // In hex: the first digit of the hash, or the last character of the name.
        Key::from_parts(&name, 1 << 120 | rest),
        Key::from_parts(&longer(1), rest),
        // In decimal.
        Key::from_parts(&name, 17),
        Key::from_parts(&longer(1), 7),
        // With and without a separator.
        Key::from_parts("laws:mq:law", 2),
        Key::from_parts("laws:mqlaw", 3),
        Key::from_parts("lawsmq:law", 4),
    ];
    kept_apart(s, &keys).await;
}

pub async fn stored_keys_that_differ_only_by_case_are_separate(s: &Subject) {
    let name = s.key("name").name().to_owned();
    // Six bits are one character of the hash: 0 is "A", 26 is "a".
    let keys = [0, 26, 1, 27].map(|digit| Key::from_parts(&name, digit << 122 | digit << 62));
    assert_eq!(keys[0].as_str().to_lowercase(), keys[1].as_str().to_lowercase(), "the law's own premise");
    kept_apart(s, &keys).await;
}

pub async fn tenants_scenes_and_scopes_are_separate(s: &Subject) {
    let identity = |scene, scope: &'static str| Identity::new(scene, scope, "k");
    let identities = [
        identity(Scene::Mq, "law"),
        identity(Scene::Rest, "law"),
        identity(Scene::Named("own".into()), "law"),
        identity(Scene::Mq, "LAW"),
        identity(Scene::Mq, "l\u{e4}w"),
        identity(Scene::Mq, "l{a}w'"),
        identity(Scene::Mq, "law").tenant(" "),
        identity(Scene::Mq, "law").tenant("t"),
        identity(Scene::Mq, "law").tenant("T"),
        identity(Scene::Mq, "law").prefix("other-laws"),
    ];
    let keys: Vec<_> = identities.iter().map(|identity| s.key_of(identity)).collect();
    kept_apart(s, &keys).await;
}

pub async fn hostile_texts_and_values_are_read_back_unchanged(s: &Subject) {
    for (index, text) in HOSTILE.into_iter().chain(["", "\u{10ffff}"]).enumerate() {
        let on = |what| s.key(&format!("{what} {index}"));
        let ask = ClaimRequest { key: on("error"), display: Some(text.into()), ..s.ask(1) };
        acquired(s.claim(&ask).await);
        let peeked = must("peek", s.store.peek(&ask.key).await).expect("consuming");
        assert_eq!(peeked.display.as_deref(), Some(text), "display");
        let fail = Release { error: text.into(), ..put_down(ReleaseKind::MarkFailed) };
        must("release", s.store.release(&ask.held(), &fail).await);
        assert_eq!(s.claim(&ask).await, Claim::Failed { error: text.into() });

        let ask = ClaimRequest { key: on("vacant"), ..s.ask(1) };
        acquired(s.claim(&ask).await);
        let vacate = Release { error: text.into(), ..put_down(ReleaseKind::Vacate) };
        must("release", s.store.release(&ask.held(), &vacate).await);
        let peeked = must("peek", s.store.peek(&ask.key).await).expect("vacant");
        assert!(matches!(&peeked.state, State::Vacant { error, .. } if &**error == text), "{peeked:?}");
    }
    let every_byte: Vec<u8> = (0..=255).collect();
    comes_back(s, "bytes", &every_byte).await;
    comes_back(s, "nul", b"\0").await;
}

pub async fn a_large_value_is_read_back_whole(s: &Subject) {
    comes_back(s, "large", &large(s.largest_value)).await;
}

async fn comes_back(s: &Subject, key: &str, value: &[u8]) {
    let ask = ClaimRequest { key: s.key(key), ..s.ask(1) };
    acquired(s.claim(&ask).await);
    let completion = Completion { value: Some(value.into()), retain: HOUR };
    must("complete", s.store.complete(&ask.held(), &completion).await);
    let Claim::Consumed(consumed) = s.claim(&ask).await else { panic!("not consumed") };
    // No assert_eq, because the message would contain a megabyte.
    assert!(consumed.value.as_deref() == Some(value), "the value of {} bytes came back changed", value.len());
}

/// Returns a value of this size, in which neighbouring bytes differ.
pub(crate) fn large(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect()
}

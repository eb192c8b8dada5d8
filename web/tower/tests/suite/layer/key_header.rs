//! The header of the key: its name, its syntax, and the format of the key.
use http::Method;
use idempotent_tower::{KeyFormat, KeyRules, KeySyntax};

use crate::layer::support::{Ask, Shop, World, ask, order_by};

/// Returns whether the key is accepted.
async fn takes(rules: &KeyRules, ask: &Ask) -> bool {
    let world = World::new();
    let shop = world.shop_behind(world.layer().key(rules.clone()));
    let sent = ask.send(&shop).await;
    if sent.status == 201 {
        return true;
    }
    sent.problem(400, "invalid-key");
    assert!(shop.runs() == 0 && world.is_untouched());
    false
}

fn in_body(world: &World, required: bool) -> Shop {
    let layer = world.layer().required(required).key_from(|_, body| {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        Some(body.get("idempotency_key")?.as_str()?.to_owned())
    });
    world.shop_behind(layer)
}

#[tokio::test]
async fn the_key_may_be_a_field_of_the_body() {
    let world = World::new();
    let shop = in_body(&world, true);
    let by = |body: &'static str| ask(Method::POST, "/orders").body(body);
    by(r#"{"idempotency_key":"a","qty":1}"#).send(&shop).await.ran(1);
    by(r#"{"idempotency_key":"a","qty":1}"#).send(&shop).await.replays(1);
    by(r#"{"idempotency_key":"a","qty":2}"#).send(&shop).await.problem(422, "key-reused");
    by(r#"{"qty":1}"#).send(&shop).await.problem(400, "missing-key");
    by(r#"{"idempotency_key":""}"#).send(&shop).await.problem(400, "invalid-key");
    by(r#"{"idempotency_key":"  "}"#).send(&shop).await.problem(400, "invalid-key");
    let long = format!(r#"{{"idempotency_key":"{}"}}"#, "k".repeat(256));
    ask(Method::POST, "/orders").body(long).send(&shop).await.problem(400, "invalid-key");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_key_in_the_body_may_be_optional() {
    let world = World::new();
    let shop = in_body(&world, false);
    let by = |body: &'static str| ask(Method::POST, "/orders").body(body);
    by(r#"{"qty":1}"#).send(&shop).await.ran(1);
    by(r#"{"qty":1}"#).send(&shop).await.ran(2);
    by(r#"{"idempotency_key":""}"#).send(&shop).await.problem(400, "invalid-key");
    assert!(world.is_untouched());
    by(r#"{"idempotency_key":"a"}"#).send(&shop).await.ran(3);
    by(r#"{"idempotency_key":"a"}"#).send(&shop).await.replays(3);
}

#[tokio::test]
async fn a_quoted_and_a_bare_value_are_one_key() {
    let world = World::new();
    let shop = world.shop();
    order_by("8e03978e").send(&shop).await.ran(1);
    for same in ["\"8e03978e\"", " \"8e03978e\" ", "\"8e03978e\";ttl=3;x", "8e03978e ", "\t8e03978e"] {
        order_by(same).send(&shop).await.replays(1);
    }
    order_by(r#""a\"b\\c""#).send(&shop).await.ran(2);
    order_by(r#""a\"b\\c";q"#).send(&shop).await.replays(2);
    order_by("\"a b, c; d\"").send(&shop).await.ran(3);
}

#[tokio::test]
async fn a_value_that_is_neither_a_string_nor_bare_is_rejected() {
    let lenient = KeyRules::default();
    let refused: [&[u8]; 27] = [
        b"\"",
        b"\"a",
        b"\"a\"b",
        b"\"a\" b",
        b"\"a\\x\"",
        b"\"a\\",
        b"\"\xc3\xa9\"",
        b"\"a\tb\"",
        b"\"a\";",
        b"\"a\";A",
        b"a\"b",
        b"a;b",
        b"a\\b",
        b"a b",
        b"a\tb",
        b"\xc3\xa9",
        b"\xff",
        b"\xff\xfe",
        // A header may contain no control byte except the tab, but bytes from 0x80 on.
        b"a\x80",
        b"\"\x80\"",
        b"a\xc2\xa0b",
        b" ",
        b"'a', 'b'",
        b"\"a\", \"b\"",
        b"a,b",
        b",",
        b"\"a\",",
    ];
    for value in refused {
        assert!(!takes(&lenient, &order_by("x").replaced(value)).await, "{:?}", value.escape_ascii().to_string());
    }
    for value in ["a", ":a:", "?1", "a=b", "(a)", "*", "a%20b", "42", "~", "a'b"] {
        assert!(takes(&lenient, &order_by(value)).await, "{value}");
    }
}

#[tokio::test]
async fn structured_syntax_rejects_bare_keys_and_bare_syntax_rejects_quoted_ones() {
    let structured = KeyRules::default().syntax(KeySyntax::Structured);
    assert!(takes(&structured, &order_by("\"a\"")).await);
    for value in ["a", "1", ":YQ==:", "?1", "(\"a\")"] {
        assert!(!takes(&structured, &order_by(value)).await, "{value}");
    }
    let bare = KeyRules::default().syntax(KeySyntax::Bare);
    assert!(takes(&bare, &order_by("a")).await);
    assert!(!takes(&bare, &order_by("\"a\"")).await);
}

#[tokio::test]
async fn a_key_has_1_to_255_characters_without_its_quotes() {
    let rules = KeyRules::default();
    for (length, taken) in [(0, false), (1, true), (255, true), (256, false), (5_000, false)] {
        let key = "k".repeat(length);
        assert_eq!(takes(&rules, &order_by(&key)).await, taken, "{length}");
        assert_eq!(takes(&rules, &order_by(&format!("\"{key}\""))).await, taken, "{length}, quoted");
    }
    let escaped = "\\\"".repeat(255);
    assert!(takes(&rules, &order_by(&format!("\"{escaped}\""))).await, "counted after unquoting");
    let told = order_by(&"k".repeat(256)).send(&World::new().shop()).await.told();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("256") && detail.contains("255"), "{detail}");
}

#[tokio::test]
async fn length_and_format_are_configurable() {
    let rules = KeyRules::default().min_len(20).max_len(24);
    for (length, taken) in [(19, false), (20, true), (24, true), (25, false)] {
        assert_eq!(takes(&rules, &order_by(&"k".repeat(length))).await, taken, "{length}");
    }
    let uuid = KeyRules::default().format(KeyFormat::Uuid);
    assert!(takes(&uuid, &order_by("8e03978e-40d5-43dd-bc93-6894a57f9324")).await);
    assert!(takes(&uuid, &order_by("\"8E03978E-40D5-43DD-BC93-6894A57F9324\"")).await);
    for other in [
        "8e03978e",
        "8e03978e-40d5-43dd-bc93-6894a57f932",
        "8e03978e-40d5-43dd-bc93-6894a57f932g",
        "8e03978e40d543ddbc936894a57f9324----",
    ] {
        assert!(!takes(&uuid, &order_by(other)).await, "{other}");
    }
    let own = KeyRules::default().format(KeyFormat::Accepted(|key| key.starts_with("ord_")));
    assert!(takes(&own, &order_by("ord_1")).await);
    assert!(!takes(&own, &order_by("1")).await);
}

#[tokio::test]
async fn a_missing_key_is_rejected_with_a_link_to_the_docs() {
    let world = World::new();
    let sent = ask(Method::POST, "/orders").send(&world.shop()).await;
    sent.problem(400, "missing-key");
    let link = sent.header("link").unwrap();
    assert!(link.starts_with("<https://") && link.ends_with(">; rel=\"describedby\""), "{link}");

    let shop = world.shop_behind(world.layer().docs_link("/docs/idempotency"));
    let sent = ask(Method::POST, "/orders").send(&shop).await;
    assert_eq!(sent.problem(400, "missing-key").header("link"), Some("</docs/idempotency>; rel=\"describedby\""));
    assert!(shop.runs() == 0 && world.is_untouched());

    let shop = world.shop_behind(world.layer().docs_link("/docs>; rel=\"x\", <b\r\nset-cookie: a=b"));
    assert_eq!(
        ask(Method::POST, "/orders").send(&shop).await.header("link"),
        Some(link),
        "what is no address is not sent"
    );
}

#[tokio::test]
async fn a_malformed_or_repeated_key_is_rejected_even_if_it_is_optional() {
    for required in [true, false] {
        let world = World::new();
        let shop = world.shop_behind(world.layer().required(required));
        let repeated = ["b", "a", ""].map(|second| order_by("a").with("idempotency-key", second));
        let long = "k".repeat(256);
        let malformed = ["", "   ", "\"", "a b", "a,b", "a, a", "\"a\", \"a\"", &long].map(order_by);
        for ask in repeated.iter().chain(&malformed) {
            let sent = ask.send(&shop).await;
            assert_eq!(sent.problem(400, "invalid-key").told()["retryable"], false);
        }
        assert!(shop.runs() == 0 && world.is_untouched());
    }
}

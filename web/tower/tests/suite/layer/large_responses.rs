//! Large responses in external storage.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use idempotent_core::{Codec, Fingerprint, Json};
use idempotent_tower::{BodyStore, BodyStoreFuture, ResponseRules, StoredResponse};

use crate::layer::support::{Shop, World, ms, order_by, secs};

/// A body store that fails on demand.
#[derive(Clone, Default)]
struct Bucket {
    bodies: Arc<Mutex<HashMap<String, Bytes>>>,
    broken: Arc<Mutex<bool>>,
}

impl Bucket {
    fn open(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if *self.broken.lock().unwrap() { Err("the bucket is closed".into()) } else { Ok(()) }
    }
}

impl BodyStore for Bucket {
    fn put<'a>(&'a self, name: &'a str, body: Bytes) -> BodyStoreFuture<'a, ()> {
        Box::pin(async move {
            self.open()?;
            assert!(self.bodies.lock().unwrap().insert(name.to_owned(), body).is_none(), "a new name each time");
            Ok(())
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> BodyStoreFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            self.open()?;
            Ok(self.bodies.lock().unwrap().get(name).cloned())
        })
    }
}

fn shop(world: &World, bucket: &Bucket) -> Shop {
    let rules = ResponseRules::default().max_response(10).spill(bucket.clone(), 100);
    world.shop_behind(world.layer().response(rules))
}

#[tokio::test]
async fn a_large_response_can_be_spilled_and_is_replayed_from_there() {
    let (world, bucket) = (World::new(), Bucket::default());
    let shop = shop(&world, &bucket);
    for (size, elsewhere) in [(10, 0), (11, 1), (100, 2)] {
        let ask = order_by(&format!("k{size}")).with("x-size", (size - 2).to_string());
        let (first, second) = (ask.send(&shop).await, ask.send(&shop).await);
        assert_eq!((&first.body, first.body.len(), second.is_replay()), (&second.body, size, true));
        assert_eq!(second.header("location"), first.header("location"));
        assert_eq!(bucket.bodies.lock().unwrap().len(), elsewhere);
    }
    let ask = order_by("larger").with("x-size", "99");
    ask.send(&shop).await.ran(4);
    ask.send(&shop).await.problem(409, "response-not-retained");
    for name in bucket.bodies.lock().unwrap().keys() {
        assert!(name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{name}");
    }
}

#[tokio::test]
async fn a_request_completes_without_a_stored_response_if_the_spill_fails_or_loses_it() {
    let (world, bucket) = (World::new(), Bucket::default());
    let shop = shop(&world, &bucket);
    let ask = order_by("a").with("x-size", "20");
    *bucket.broken.lock().unwrap() = true;
    ask.send(&shop).await.ran(1);
    *bucket.broken.lock().unwrap() = false;
    ask.send(&shop).await.problem(409, "response-not-retained");

    let ask = order_by("b").with("x-size", "20");
    ask.send(&shop).await.ran(2);
    *bucket.broken.lock().unwrap() = true;
    ask.send(&shop).await.problem(409, "response-not-retained");
    *bucket.broken.lock().unwrap() = false;
    ask.send(&shop).await.replays(2);
    bucket.bodies.lock().unwrap().clear();
    let told = ask.send(&shop).await;
    assert_eq!(told.problem(409, "response-not-retained").header("location"), Some("/orders/2"));
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn the_spill_receives_the_sanitized_response() {
    let (world, bucket) = (World::new(), Bucket::default());
    let rules = ResponseRules::default().max_response(10).spill(bucket.clone(), 100);
    let rules = rules.sanitize(|response| *response.body_mut() = response.body().slice(..15));
    let shop = world.shop_behind(world.layer().response(rules));
    let ask = order_by("a").with("x-size", "20");
    assert_eq!(ask.send(&shop).await.body.len(), 22);
    assert_eq!(ask.send(&shop).await.replays(1).body.len(), 15);
}

#[tokio::test]
async fn a_failed_request_spills_nothing() {
    let (world, bucket) = (World::new(), Bucket::default());
    let shop = shop(&world, &bucket);
    order_by("a").with("x-size", "20").with("x-status", "500").send(&shop).await;
    assert!(bucket.bodies.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_spilled_body_that_changed_is_not_replayed() {
    type Change = fn(&Bytes) -> Bytes;
    let changes: [Change; 5] = [
        |body| body.slice(1..),
        |body| body.iter().copied().chain([0]).collect(),
        |body| body.iter().map(|byte| byte ^ 1).collect(),
        |_| Bytes::new(),
        |body| body.slice(..12),
    ];
    for change in changes {
        let (world, bucket) = (World::new(), Bucket::default());
        let shop = shop(&world, &bucket);
        let ask = order_by("a").with("x-size", "20");
        ask.send(&shop).await.ran(1);
        let original = bucket.bodies.lock().unwrap().values().next().unwrap().clone();
        bucket.bodies.lock().unwrap().values_mut().for_each(|body| *body = change(body));
        let told = ask.send(&shop).await;
        assert_eq!(told.problem(409, "response-not-retained").header("location"), Some("/orders/1"));
        bucket.bodies.lock().unwrap().values_mut().for_each(|body| *body = original.clone());
        ask.send(&shop).await.replays(1);
    }
}

/// A body store that never responds.
struct Hanging;

impl BodyStore for Hanging {
    fn put<'a>(&'a self, _: &'a str, _: Bytes) -> BodyStoreFuture<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn get<'a>(&'a self, _: &'a str) -> BodyStoreFuture<'a, Option<Bytes>> {
        Box::pin(std::future::pending())
    }
}

/// A body store that accepts bodies and never returns them.
struct Stuck;

impl BodyStore for Stuck {
    fn put<'a>(&'a self, _: &'a str, _: Bytes) -> BodyStoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn get<'a>(&'a self, _: &'a str) -> BodyStoreFuture<'a, Option<Bytes>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_request_completes_without_a_stored_response_if_the_spill_takes_ten_seconds() {
    let world = World::new();
    let rules = ResponseRules::default().max_response(10);
    let ask = order_by("a").with("x-size", "20");
    let hanging = world.shop_behind(world.layer().response(rules.clone().spill(Hanging, 100)));
    let first = ask.begin(&hanging, &world.clock).await;
    world.clock.advance(ms(9_999)).await;
    assert!(!first.is_finished());
    world.clock.advance(ms(1)).await;
    assert!(first.is_finished());
    first.await.unwrap().ran(1);
    ask.send(&hanging).await.problem(409, "response-not-retained");

    let stuck = world.shop_behind(world.layer().response(rules.spill(Stuck, 100)));
    let ask = order_by("b").with("x-size", "20");
    ask.send(&stuck).await.ran(1);
    let second = ask.begin(&stuck, &world.clock).await;
    world.clock.advance(ms(9_999)).await;
    assert!(!second.is_finished());
    world.clock.advance(ms(1)).await;
    assert!(second.is_finished());
    second.await.unwrap().problem(409, "response-not-retained");
    assert_eq!((hanging.runs(), stuck.runs()), (1, 1));
}

#[tokio::test]
async fn the_time_limit_of_the_spill_is_configurable() {
    let rules = ResponseRules::default().max_response(10);
    let before = rules.clone().spill_within(ms(500)).spill(Hanging, 100);
    let behind = rules.spill(Hanging, 100).spill_within(ms(500));
    for rules in [before, behind] {
        let world = World::new();
        let shop = world.shop_behind(world.layer().response(rules));
        let first = order_by("a").with("x-size", "20").begin(&shop, &world.clock).await;
        world.clock.advance(ms(499)).await;
        assert!(!first.is_finished());
        world.clock.advance(ms(1)).await;
        assert!(first.is_finished());
    }
}

#[test]
fn the_spill_is_not_asked_for_a_name_of_another_form() {
    let kept = |name: &str| [&[1, 4, 0, 200, 0, 0][..], &[0; 8 + Fingerprint::LEN], name.as_bytes()].concat();
    let read = |name: &str| <Json as Codec<StoredResponse<Full<Bytes>>>>::decode(Some(&kept(name)));
    assert!(read("0123456789abcdef0123456789abcdef-17").is_ok());
    for name in ["", "../../orders", "/orders", "0123\0", &"a".repeat(200)] {
        assert!(read(name).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_request_holds_its_key_while_its_response_is_spilled() {
    let world = World::new();
    let rules = ResponseRules::default().max_response(10).spill(Hanging, 100);
    let shop = world.shop_behind(world.layer().response(rules).lease(secs(3)));
    let ask = order_by("a").with("x-size", "20");
    let first = ask.begin(&shop, &world.clock).await;
    world.clock.advance(secs(9)).await;
    ask.send(&shop).await.problem(409, "in-flight");
    world.clock.advance(secs(1)).await;
    first.await.unwrap().ran(1);
    ask.send(&shop).await.problem(409, "response-not-retained");
    assert_eq!(shop.runs(), 1);
}

//! Decision 17: large answers may be kept beside the records.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use idempotent_tower::{ResponseRules, Spill, Spilling};

use crate::support::{Shop, World, order_by};

/// A bucket, which fails on demand.
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

impl Spill for Bucket {
    fn put<'a>(&'a self, name: &'a str, body: Bytes) -> Spilling<'a, ()> {
        Box::pin(async move {
            self.open()?;
            assert!(self.bodies.lock().unwrap().insert(name.to_owned(), body).is_none(), "a new name each time");
            Ok(())
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Spilling<'a, Option<Bytes>> {
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
async fn d17_a_large_answer_may_be_kept_elsewhere_and_is_replayed_from_there() {
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
async fn d17_what_elsewhere_fails_or_forgets_is_done_and_not_kept() {
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
async fn d17_what_is_kept_elsewhere_is_what_the_sanitizer_left() {
    let (world, bucket) = (World::new(), Bucket::default());
    let rules = ResponseRules::default().max_response(10).spill(bucket.clone(), 100);
    let rules = rules.sanitize(|response| *response.body_mut() = response.body().slice(..15));
    let shop = world.shop_behind(world.layer().response(rules));
    let ask = order_by("a").with("x-size", "20");
    assert_eq!(ask.send(&shop).await.body.len(), 22);
    assert_eq!(ask.send(&shop).await.replays(1).body.len(), 15);
}

#[tokio::test]
async fn d17_a_failure_leaves_nothing_elsewhere() {
    let (world, bucket) = (World::new(), Bucket::default());
    let shop = shop(&world, &bucket);
    order_by("a").with("x-size", "20").with("x-status", "500").send(&shop).await;
    assert!(bucket.bodies.lock().unwrap().is_empty());
}

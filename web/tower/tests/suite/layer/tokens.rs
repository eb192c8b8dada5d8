//! Tokens that are issued before the request.
use http::Method;
use idempotent_core::Tokens;
use idempotent_tower::IdempotencyLayer;

use crate::layer::support::{Ask, Shop, World, ask, by_user, order_by, secs};

fn by_token(world: &World, more: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> (Shop, Tokens) {
    let tokens = Tokens::new(&world.executor);
    (world.shop_behind(more(IdempotencyLayer::by_token(tokens.clone(), by_user()))), tokens)
}

/// Issues a token to this user.
async fn issue(tokens: &Tokens, user: &str) -> String {
    tokens.issue(idempotent_tower::Caller::named(user)).await.unwrap().as_str().to_owned()
}

fn submit(token: &str, user: &str) -> Ask {
    ask(Method::POST, "/orders").with("x-idempotent-token", token).user(user)
}

#[tokio::test]
async fn a_missing_token_is_400_and_unknown_and_foreign_ones_are_one_problem() {
    let world = World::new();
    let (shop, tokens) = by_token(&world, |layer| layer);
    let token = issue(&tokens, "ann").await;
    let before = world.store.log().len();
    ask(Method::POST, "/orders").user("ann").send(&shop).await.problem(400, "missing-token");
    submit("", "ann").send(&shop).await.problem(400, "missing-token");
    submit(&token, "ann").with("x-idempotent-token", &token).send(&shop).await.problem(400, "missing-token");
    assert_eq!(world.store.log().len(), before);
    let foreign = submit(&token, "bob").send(&shop).await;
    let unknown = submit(&"A".repeat(32), "ann").send(&shop).await;
    let long = submit(&"A".repeat(5_000), "ann").send(&shop).await;
    foreign.problem(409, "unknown-token");
    assert_eq!((&foreign.body, &foreign.body), (&unknown.body, &long.body));
    assert_eq!(shop.runs(), 0);
    submit(&token, "ann").send(&shop).await.ran(1);
}

#[tokio::test]
async fn a_token_expires_after_ten_minutes_by_default() {
    let world = World::new();
    let (shop, tokens) = by_token(&world, |layer| layer);
    let (early, late) = (issue(&tokens, "ann").await, issue(&tokens, "ann").await);
    let short = issue(&tokens.clone().ttl(secs(60)), "ann").await;
    world.clock.advance(secs(60)).await;
    submit(&short, "ann").send(&shop).await.problem(409, "unknown-token");
    world.clock.advance(secs(539)).await;
    submit(&early, "ann").send(&shop).await.ran(1);
    world.clock.advance(secs(1)).await;
    submit(&late, "ann").send(&shop).await.problem(409, "unknown-token");
}

#[tokio::test]
async fn two_concurrent_submits_are_one_run() {
    let world = World::new();
    let (shop, tokens) = by_token(&world, |layer| layer);
    let token = issue(&tokens, "ann").await;
    let first = submit(&token, "ann").with("x-sleep", "2000").begin(&shop, &world.clock).await;
    submit(&token, "ann").send(&shop).await.problem(409, "in-flight");
    world.clock.advance(secs(2)).await;
    first.await.unwrap().ran(1);
    submit(&token, "ann").send(&shop).await.problem(409, "duplicate-request");
}

#[tokio::test]
async fn a_token_used_on_one_route_has_no_response_for_another() {
    let world = World::new();
    let (shop, tokens) = by_token(&world, |layer| layer.replay(true));
    let token = issue(&tokens, "ann").await;
    submit(&token, "ann").send(&shop).await.ran(1);
    let elsewhere = ask(Method::PATCH, "/orders/7").with("x-idempotent-token", &token).user("ann");
    elsewhere.send(&shop).await.problem(422, "key-reused");
    submit(&token, "ann").send(&shop).await.replays(1);
}

#[tokio::test]
async fn header_and_message_of_tokens_are_configurable() {
    let world = World::new();
    let (shop, tokens) = by_token(&world, |layer| {
        layer.token_header(http::HeaderName::from_static("x-form")).message("Schon abgeschickt.")
    });
    let token = issue(&tokens, "ann").await;
    let form = ask(Method::POST, "/orders").with("x-form", &token).user("ann");
    form.send(&shop).await.ran(1);
    let told = form.send(&shop).await;
    assert_eq!(told.problem(409, "duplicate-request").told()["detail"], "Schon abgeschickt.");
}

#[tokio::test]
async fn no_token_can_name_other_records_of_the_store() {
    let world = World::new();
    let (shop, _) = by_token(&world, |layer| layer);
    let keyed = world.shop();
    order_by("a").user("ann").send(&keyed).await.ran(1);
    let record = world.keys().remove(0);
    for token in ["a", record.as_str()] {
        submit(token, "ann").send(&shop).await.problem(409, "unknown-token");
    }
    assert!(idempotent_core::Store::peek(&world.store, &record).await.unwrap().is_some());
    order_by("a").user("ann").send(&keyed).await.replays(1);
}

//! The text of a rejected duplicate in the language of its request.
use http::Method;
use idempotent_core::{DuplicateMessages, Executor, MemoryStore};
use idempotent_tower::IdempotencyLayer;

use crate::layer::support::{Ask, World, ask, by_user, secs};

fn order() -> Ask {
    ask(Method::POST, "/orders")
}

#[tokio::test]
async fn the_layer_selects_the_language_of_the_request() {
    let world = World::new();
    let messages = DuplicateMessages::english_and_chinese();
    let executor = Executor::builder(MemoryStore::builder().clock(std::sync::Arc::new(world.clock.clone())).build())
        .clock(std::sync::Arc::new(world.clock.clone()))
        .duplicate_messages(messages)
        .build()
        .unwrap();
    let layer = IdempotencyLayer::by_param(executor, by_user());
    for (layer, accepted, detail, language) in [
        (layer.clone(), "en;q=0.5, zh-TW", "您操作太快，请稍后再试", "zh"),
        (layer.clone().message("too fast"), "zh", "too fast", ""),
        (layer.message(DuplicateMessages::new("en", "wait").language("fr", "attendez")), "fr-CH", "attendez", "fr"),
    ] {
        let shop = world.shop_behind(layer.namespace(detail));
        let first = order().with("x-sleep", "1000").begin(&shop, &world.clock).await;
        let in_flight = order().with("accept-language", accepted).send(&shop).await;
        world.clock.advance(secs(1)).await;
        first.await.unwrap().ran(1);
        let refused = order().with("accept-language", accepted).send(&shop).await;
        for (answer, code) in [(in_flight, "in-flight"), (refused, "duplicate-request")] {
            let answer = answer.problem(409, code);
            assert_eq!(
                (&answer.told()["detail"], answer.header("content-language").unwrap_or_default()),
                (&detail.into(), language)
            );
        }
    }
}

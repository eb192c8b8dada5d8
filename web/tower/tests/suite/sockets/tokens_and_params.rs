//! Concurrent requests with tokens, and without keys.
use idempotent_core::Tokens;
use idempotent_tower::{Caller, IdempotencyLayer};

use crate::sockets::support::shop::principal;
use crate::sockets::support::{Ask, Backing, Server, Volley, on_each_store};

const CONNECTIONS: usize = 100;
const ROUNDS: u64 = 20;

on_each_store! {
    of_100_requests_with_one_token_one_runs;
    of_100_equal_requests_without_a_key_one_runs;
}

async fn shop(backing: &Backing) -> (Server, Tokens) {
    let executor = backing.executor().await;
    let tokens = Tokens::new(&executor);
    let layer = IdempotencyLayer::by_token(tokens.clone(), principal());
    (Server::of(executor, layer).await, tokens)
}

fn spend(token: &str, sku: &str) -> Ask {
    Ask::post("/orders").header("x-idempotent-token", token).sku(sku).user("alice")
}

async fn of_100_requests_with_one_token_one_runs(backing: &Backing) {
    let (server, tokens) = shop(backing).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=ROUNDS {
        let token = tokens.issue(Caller::named("alice")).await.unwrap();
        let sku = format!("sku-{round}");
        volley.fire(|_| spend(token.as_str(), &sku).hold(round)).await;
        let answers = volley.answers(CONNECTIONS - 1, async || server.shop.open(round)).await;
        let refused = answers.iter().filter(|answer| answer.status == 409 && answer.code() == "in-flight").count();
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!((server.shop.count(&sku), made, refused), (1, 1, CONNECTIONS - 1));
        // The same applies after the token was used.
        volley.fire(|_| spend(token.as_str(), &sku)).await;
        for answer in volley.answers(0, async || {}).await {
            answer.is(409, "duplicate-request");
        }
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
    }
}

/// Applies during the run and after it.
async fn of_100_equal_requests_without_a_key_one_runs(backing: &Backing) {
    let executor = backing.executor().await;
    // The window exceeds the duration of one round on a loaded machine.
    let window = std::time::Duration::from_secs(60);
    let layer = IdempotencyLayer::by_param(executor.clone(), principal()).window(window);
    let server = Server::of(executor, layer).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=ROUNDS {
        let sku = format!("sku-{round}");
        let ask = || Ask::post("/orders").sku(&sku).user("alice").body(sku.clone());
        volley.fire(|_| ask().hold(round)).await;
        let answers = volley.answers(CONNECTIONS - 1, async || server.shop.open(round)).await;
        let refused = answers.iter().filter(|answer| answer.status == 409).count();
        assert_eq!((server.shop.count(&sku), refused), (1, CONNECTIONS - 1));
        volley.fire(|_| ask()).await;
        for answer in volley.answers(0, async || {}).await {
            answer.is(409, "duplicate-request");
            assert!(answer.retry_after() <= 60);
        }
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
    }
}

//! The same on every store there is, by its own clock: what does not hang on exact times.
use std::time::Duration;

use idempotent::{OnConsumed, RedisStore};
use idempotent_harness::servers::RedisServer;

use super::*;

/// An hour: no machine is so slow.
const WINDOW: Duration = secs(3600);

#[tokio::test]
async fn tokens_and_windows_on_redis() {
    let server = RedisServer::start();
    tokens_and_windows(Executor::new(RedisStore::connect(server.url()).await.unwrap())).await;
    let keys = server.command(&["KEYS", "*:rest:*"]);
    assert_eq!(keys.items().len(), 3, "two tokens and what is kept for its window: no guess left a key: {keys:?}");
}

async fn run(executor: &Executor, call: Call, answer: Result<u32, AppError>) -> (Result<u32, AppError>, Outcome) {
    let (answer, outcome) = Outcome::capture(executor.run(call, PlainHandler::new(|| async { answer }))).await;
    (answer, outcome.unwrap())
}

async fn tokens_and_windows(executor: Executor) {
    let tokens = Tokens::new(&executor);
    let (token, other): (Token, Token) = (tokens.issue("u").await.unwrap(), tokens.issue("v").await.unwrap());
    for (text, tenant) in [("made up", "u"), (token.as_str(), "v"), (other.as_str(), "u")] {
        let (answer, outcome) = run(&executor, tokens.call(text, tenant), Ok(1)).await;
        assert!(matches!(rejection(answer), Rejection::UnknownToken));
        assert_eq!(outcome, Outcome::BadKey);
    }
    for _ in 0..2 {
        let (_, outcome) = run(&executor, tokens.call(&token, "u"), Err(AppError::NoStock)).await;
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    }
    assert_eq!(run(&executor, tokens.call(&token, "u"), Ok(1)).await.1, Outcome::Ran);
    let (answer, outcome) = run(&executor, tokens.call(&token, "u"), Ok(2)).await;
    assert!(matches!(rejection(answer), Rejection::Duplicate { retry_after: None, .. }));
    assert_eq!(outcome, Outcome::Duplicate);

    let order = || {
        let policy = Policy::new().on_consumed(OnConsumed::Refuse).window(WINDOW);
        Call::new(Identity::new(Scene::Rest, "orders", "two cups of tea").tenant("u")).policy(policy)
    };
    let (_, outcome) = run(&executor, order(), Err(AppError::NoStock)).await;
    assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    assert_eq!(run(&executor, order(), Ok(1)).await.1, Outcome::Ran);
    let (answer, _) = run(&executor, order(), Ok(2)).await;
    let told = rejection(answer);
    let Rejection::Duplicate { retry_after: Some(rest), .. } = told else { panic!("{told:?}") };
    assert!(rest <= WINDOW && rest > WINDOW / 2, "{rest:?}");
}

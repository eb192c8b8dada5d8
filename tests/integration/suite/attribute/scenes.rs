//! `by = token` and `by = param`.
use idempotent::Tokens;

use super::*;

#[idempotent(by = token, key = token, tenant = user, with = e, message = "sent already")]
async fn submit(e: &Executor, user: u64, token: Option<&str>, fails: bool) -> Result<u32, AppError> {
    if fails { Err(AppError::NoStock) } else { Ok(ran()) }
}

#[tokio::test]
async fn a_token_is_spent_once_by_its_caller_and_given_back_by_a_failure() {
    let e = executor();
    let token = Tokens::new(&e).issue(7).await.unwrap();
    let token = Some(token.as_str());
    for (user, token, wanted) in [(8, token, Outcome::BadKey), (7, Some("made up"), Outcome::BadKey)] {
        let (answer, outcome) = Outcome::capture(submit(&e, user, token, false)).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::UnknownToken))), "{answer:?}");
        assert_eq!(outcome, Some(wanted));
    }
    let missing = submit(&e, 7, None, false).await;
    assert!(matches!(missing, Err(AppError::Idempotent(Rejection::Key(KeyError::Empty { .. })))), "{missing:?}");
    assert_runs(0);

    assert!(matches!(submit(&e, 7, token, true).await, Err(AppError::NoStock)));
    assert_eq!(submit(&e, 7, token, false).await.unwrap(), 1);
    let (answer, outcome) = Outcome::capture(submit(&e, 7, token, false)).await;
    let Err(AppError::Idempotent(told @ Rejection::Duplicate { retry_after: None, .. })) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((told.to_string(), outcome), ("sent already".to_owned(), Some(Outcome::Duplicate)));
    assert_runs(1);
}

const SUBMIT: &str = "submit";

struct Forms(Executor);

impl Forms {
    #[idempotent(by = token, key = token, tenant = user, with = self.0, scope = SUBMIT, ttl = "1h", replay)]
    async fn submit(&self, user: &str, token: String, fails: bool) -> Result<u32, AppError> {
        if fails { Err(AppError::NoStock) } else { Ok(ran()) }
    }
}

#[test]
fn a_token_for_one_handler_lives_as_long_as_it_says_and_may_be_replayed() {
    crate::common::on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let forms = Forms(worker.executor.clone());
        let tokens = Tokens::new(&worker.executor).scope(SUBMIT);
        let token = tokens.issue("u").await.unwrap();
        let text = || token.as_str().to_owned();
        assert!(forms.submit("u", text(), true).await.is_err());
        world.clock.advance(secs(3599)).await;
        once(1, || async { forms.submit("u", text(), false).await.unwrap() }).await;
        let elsewhere = submit(&worker.executor, 7, Some(token.as_str()), false).await;
        assert!(matches!(elsewhere, Err(AppError::Idempotent(Rejection::UnknownToken))), "{elsewhere:?}");

        // Where nothing is said: as long as an unused one.
        let (e, usual) = (&worker.executor, Tokens::new(&worker.executor));
        for (later, good) in [(Tokens::TTL - ms(1), true), (Tokens::TTL, false)] {
            let token = usual.issue(7).await.unwrap();
            assert!(submit(e, 7, Some(token.as_str()), true).await.is_err());
            world.clock.advance(later).await;
            assert_eq!(submit(e, 7, Some(token.as_str()), false).await.is_ok(), good, "{later:?}");
        }
        assert_runs(1);

        let second = tokens.issue("u").await.unwrap();
        assert!(forms.submit("u", second.as_str().to_owned(), true).await.is_err());
        world.clock.advance(secs(3600)).await;
        let late = forms.submit("u", second.as_str().to_owned(), false).await;
        assert!(matches!(late, Err(AppError::Idempotent(Rejection::UnknownToken))), "{late:?}");
        assert_runs(0);
    });
}

#[idempotent(by = param, with = app.idem, message = "just ordered")]
async fn buy(app: &App, user: u32, Order { id, amount }: Order) -> Result<u32, AppError> {
    if amount == 0 { Err(AppError::NoStock) } else { Ok(ran()) }
}

#[idempotent(by = param, key = order.id, tenant = user, with = app, window = "1m", replay, scope = "reserve")]
async fn reserve(app: App, user: u32, order: &Order) -> Result<u32, Rejection> {
    Ok(ran())
}

fn app(executor: Executor) -> App {
    App { idem: executor }
}

#[tokio::test]
async fn calls_are_distinguished_by_all_their_arguments() {
    let app = app(executor());
    let one = || Order { id: "tea".into(), amount: 1 };
    assert_eq!(buy(&app, 1, one()).await.unwrap(), 1);
    let (answer, outcome) = Outcome::capture(buy(&app, 1, one())).await;
    let Err(AppError::Idempotent(told @ Rejection::Duplicate { retry_after: Some(rest), .. })) = answer else {
        panic!("{answer:?}")
    };
    assert!(rest <= secs(5), "{rest:?}");
    assert_eq!((told.to_string(), outcome), ("just ordered".to_owned(), Some(Outcome::Duplicate)));
    assert_eq!(buy(&app, 2, one()).await.unwrap(), 2, "another user");
    assert_eq!(buy(&app, 1, Order { amount: 2, ..one() }).await.unwrap(), 3, "another amount");
    // A failure frees the call.
    for _ in 0..2 {
        assert!(matches!(buy(&app, 1, Order { amount: 0, ..one() }).await, Err(AppError::NoStock)));
    }
    assert_runs(3);
}

#[test]
fn the_default_window_is_5_s_from_completion() {
    crate::common::on_memory(async |world| {
        let app = app(world.worker("a", Policy::new()).executor);
        assert_eq!(Policy::WINDOW, secs(5));
        buy(&app, 1, order("tea")).await.unwrap();
        world.clock.advance(ms(4999)).await;
        assert!(buy(&app, 1, order("tea")).await.is_err());
        world.clock.advance(ms(1)).await;
        assert_eq!(buy(&app, 1, order("tea")).await.unwrap(), 2);

        assert_eq!(reserve(app.clone(), 1, &order("tea")).await.unwrap(), 3);
        world.clock.advance(ms(59_999)).await;
        let other_amount = Order { amount: 2, ..order("tea") };
        assert_eq!(reserve(app.clone(), 1, &other_amount).await.unwrap(), 3, "the key is what counts");
        assert_eq!(reserve(app.clone(), 2, &order("tea")).await.unwrap(), 4);
        world.clock.advance(ms(1)).await;
        assert_eq!(reserve(app.clone(), 1, &order("tea")).await.unwrap(), 5);
        assert_runs(5);
    });
}

#[tokio::test]
async fn both_are_requests_and_a_policy_of_messages_is_not_theirs() {
    let policy = Policy::new().max_retries(0);
    let e = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).build().unwrap();
    let app = app(e.clone());
    for _ in 0..2 {
        let (_, outcome) = Outcome::capture(buy(&app, 1, Order { amount: 0, ..order("tea") })).await;
        assert!(matches!(outcome, Some(Outcome::Released { .. })), "not dead: {outcome:?}");
    }
}

#[tokio::test]
async fn an_executors_settings_for_duplicates_apply_to_keys() {
    let policy = Policy::new().on_consumed(idempotent::OnConsumed::Refuse);
    let e = Executor::builder(MemoryStore::new()).policy(Scene::Rest, policy).build().unwrap();
    let app = app(e.clone());
    once(1, || async { reserve(app.clone(), 1, &order("tea")).await.unwrap() }).await;
    #[idempotent(scene = rest, key = id, with = e)]
    async fn by_key(e: &Executor, id: u8) -> Result<u32, Rejection> {
        Ok(ran())
    }
    assert_eq!(by_key(&e, 1).await.unwrap(), 1);
    assert!(matches!(by_key(&e, 1).await, Err(Rejection::Duplicate { .. })));
    assert_runs(1);
}

/// The executor is no argument of the call, nor is `self`; and what was made of the arguments before does not matter.
#[async_trait]
trait Shop {
    async fn order(&self, article: &str, (a, b): (u8, u8)) -> Result<u32, Rejection>;
    async fn answer(&self, article: &str) -> Disposition;
}

#[async_trait]
impl Shop for App {
    #[idempotent(by = param, with = self.idem)]
    async fn order(&self, article: &str, (a, b): (u8, u8)) -> Result<u32, Rejection> {
        Ok(ran())
    }

    #[idempotent(by = param, with = self)]
    #[instrument(skip_all)]
    async fn answer(&self, mut article: &str) -> Disposition {
        ran();
        article = article.trim();
        Disposition::DeadLetter { reason: article.to_owned().into() }
    }
}

#[tokio::test]
async fn methods_below_async_trait_and_above_instrument_tell_calls_apart_too() {
    let app = app(executor());
    assert_eq!(app.order("tea", (1, 2)).await.unwrap(), 1);
    assert!(matches!(app.order("tea", (1, 2)).await, Err(Rejection::Duplicate { .. })));
    assert_eq!(app.order("tea", (2, 1)).await.unwrap(), 2);
    assert_runs(2);
    for article in ["tea", "tea", "coffee"] {
        assert!(matches!(app.answer(article).await, Disposition::DeadLetter { .. }));
    }
    assert_runs(2);
}

/// A value without a fingerprint is unknown: the call is refused, and there is no record.
#[test]
fn an_argument_that_cannot_be_written_is_an_error_for_the_call() {
    #[idempotent(by = param, with = e)]
    async fn odd(e: &Executor, prices: Vec<f64>, also: u8) -> Result<u32, Rejection> {
        Ok(ran())
    }
    crate::common::on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let (answer, outcome) = Outcome::capture(odd(&worker.executor, vec![1.0, f64::NAN], 1)).await;
        assert!(matches!(answer, Err(Rejection::Key(KeyError::Fingerprint { .. }))), "{answer:?}");
        assert_eq!((outcome, world.asked(StoreOperation::Claim).len()), (Some(Outcome::BadKey), 0));
        assert_eq!(odd(&worker.executor, Vec::new(), 1).await.unwrap(), 1);
        assert_runs(1);
    });
}

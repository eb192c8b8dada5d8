//! The meaning of values, errors and rejections.
use super::*;

#[derive(Debug, PartialEq)]
struct Foreign(String);

#[idempotent(
    key = id,
    with = e,
    failed_if = |declined| *declined,
    permanent = |error| error.0 == "gone",
    reject = |rejection| Err(Foreign(rejection.to_string())),
)]
async fn pay(e: &Executor, id: &str, answer: Result<bool, Foreign>) -> Result<bool, Foreign> {
    ran();
    answer
}

#[tokio::test]
async fn failed_if_permanent_and_reject_judge_a_foreign_error_type() {
    let e = executor();
    assert_eq!(pay(&e, "a", Ok(true)).await, Ok(true), "declined: handed on, not kept");
    assert_eq!(pay(&e, "a", Ok(false)).await, Ok(false));
    assert_eq!(pay(&e, "a", Ok(true)).await, Ok(false), "replayed");
    assert_runs(2);
    let gone = || Err(Foreign("gone".into()));
    let (answer, outcome) = Outcome::capture(pay(&e, "b", gone())).await;
    assert_eq!((answer, outcome), (gone(), Some(Outcome::Failed)));
    let Err(Foreign(again)) = pay(&e, "b", Ok(false)).await else { panic!("ran") };
    assert!(again.starts_with("an earlier attempt failed permanently"), "{again}");
    assert_runs(1);
}

#[tokio::test]
async fn the_description_of_an_error_is_in_the_record_and_in_the_answer_to_a_duplicate() {
    #[idempotent(
        key = id,
        with = e,
        permanent = |_| true,
        describe = |error: &Foreign| format!("declined: {}", error.0),
        reject = |rejection| Err(Foreign(rejection.to_string()))
    )]
    async fn described(e: &Executor, id: u64) -> Result<u64, Foreign> {
        Err(Foreign(format!("more than {id} cents")))
    }
    let e = executor();
    let (answer, outcome) = Outcome::capture(described(&e, 1000)).await;
    assert_eq!((answer, outcome), (Err(Foreign("more than 1000 cents".to_owned())), Some(Outcome::Failed)));
    let Err(Foreign(again)) = described(&e, 1000).await else { panic!("ran") };
    assert!(again.ends_with(": declined: more than 1000 cents"), "{again}");
}

#[tokio::test]
async fn a_failure_frees_the_key_and_a_transparent_error_does_not_hide_the_outcome() {
    #[idempotent(key = const { ONE }, with = e)]
    async fn reserve(e: &Executor, stock: u32) -> Result<u32, AppError> {
        ran();
        if stock == 0 { Err(AppError::NoStock) } else { Ok(stock) }
    }
    let e = executor();
    let (answer, outcome) = Outcome::capture(reserve(&e, 0)).await;
    assert!(matches!(answer, Err(AppError::NoStock)));
    assert!(matches!(outcome, Some(Outcome::Released { .. })), "{outcome:?}");
    assert_eq!(reserve(&e, 5).await.unwrap(), 5);
    assert_eq!(outcome_of(reserve(&e, 6)).await, Outcome::Replayed);
    assert_runs(2);
}

struct Text;

impl ResponseShape for Text {
    type Output<R> = String;
}

impl<R: Display> ReplyStrategy<R> for Text {
    type Value = String;
    type Failure = String;

    fn split(reply: R) -> impl Future<Output = HandlerOutcome<String, String>> {
        std::future::ready(HandlerOutcome::Value(reply.to_string()))
    }
    fn value(value: String) -> String {
        value
    }
    fn replayed(value: String) -> String {
        format!("{value} again")
    }
    fn failure(failure: String) -> String {
        failure
    }
}

impl<R: Display> RejectStrategy<R> for Text {
    fn rejected(rejection: Rejection) -> String {
        rejection.to_string()
    }
}

#[idempotent(key = id, with = e, reply = Text)]
async fn opaque(e: &Executor, id: u8) -> impl Display {
    ran();
    format!("<{id}>")
}

#[idempotent(key = id, with = e, reply = Text)]
async fn named(e: &Executor, id: u8) -> u64 {
    ran();
    if id == 0 {
        return 7;
    }
    u64::from(id)
}

/// The core's own path, where there is no facade.
#[idempotent(key = id, with = e, reply = self::Text, crate = ::idempotent_core)]
async fn core(e: &Executor, id: u8) -> u8 {
    ran();
    id
}

#[tokio::test]
async fn a_reply_strategy_of_ones_own() {
    let e = executor();
    assert_eq!((opaque(&e, 1).await, opaque(&e, 1).await), ("<1>".into(), "<1> again".into()));
    assert_eq!((named(&e, 0).await, named(&e, 0).await), ("7".into(), "7 again".into()));
    assert_eq!((core(&e, 1).await, core(&e, 1).await), ("1".into(), "1 again".into()));
    assert_runs(3);
}

#[tokio::test]
async fn a_value_that_cannot_be_kept_is_consumed_without_it_and_never_run_again() {
    #[idempotent(key = const { ONE }, with = e, max_result = "16B")]
    async fn large(e: &Executor) -> Result<Option<String>, AppError> {
        ran();
        Ok(Some("x".repeat(100)))
    }
    #[idempotent(key = const { ONE }, with = e)]
    async fn odd(e: &Executor) -> Result<Option<BTreeMap<(u8, u8), u8>>, AppError> {
        ran();
        Ok(Some([((1, 2), 3)].into())) // JSON has no such keys
    }
    #[idempotent(key = const { ONE }, with = e)]
    async fn panicking(e: &Executor) -> Result<Unwritable, AppError> {
        ran();
        Ok(Unwritable(7))
    }
    let e = executor();
    assert!(large(&e).await.unwrap().is_some() && odd(&e).await.unwrap().is_some());
    assert_eq!(panicking(&e).await.unwrap().0, 7, "the effect has happened: its caller is told so");
    let answers = [
        Outcome::capture(async { large(&e).await.map(drop) }).await,
        Outcome::capture(async { odd(&e).await.map(drop) }).await,
        Outcome::capture(async { panicking(&e).await.map(drop) }).await,
    ];
    for (answer, outcome) in answers {
        let Err(AppError::Idempotent(Rejection::ConsumedWithoutResult { .. })) = answer else { panic!("{answer:?}") };
        assert_eq!(outcome.unwrap().disposition(), Disposition::Ack);
    }
    assert_runs(3);
}

/// A result that panics when it is written.
#[derive(Debug, serde::Deserialize)]
struct Unwritable(u8);

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("as told: {}", self.0)
    }
}

#[tokio::test]
async fn a_panic_frees_the_key_and_goes_on() {
    #[idempotent(key = const { ONE }, with = e)]
    async fn boom(e: Executor, panic: bool) -> Result<u32, AppError> {
        assert!(!panic, "as told");
        Ok(ran())
    }
    let e = executor();
    assert!(tokio::spawn(boom(e.clone(), true)).await.unwrap_err().is_panic());
    once(1, || async { boom(e.clone(), false).await.unwrap() }).await;
}

#[tokio::test]
async fn a_run_inside_itself_is_refused_by_name() {
    #[idempotent(key = const { ONE }, with = e, scope = "loop")]
    async fn again(e: &Executor, depth: u8) -> Result<u8, AppError> {
        ran();
        if depth == 0 {
            return Ok(0);
        }
        Box::pin(again(e, depth - 1)).await
    }
    let error = again(&executor(), 1).await.unwrap_err();
    assert!(error.to_string().contains("`loop`"), "{error}");
    assert_runs(1);
}

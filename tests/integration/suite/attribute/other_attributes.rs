//! Other attributes, and what a body may do to the types around it.
use super::*;

#[instrument(skip(e))]
#[idempotent(key = id, with = e)]
async fn span_outside(e: &Executor, id: u64) -> anyhow::Result<u64> {
    ran();
    Ok(id + 1)
}

#[idempotent(key = id, with = e)]
#[instrument(skip(e), err)]
async fn span_inside(e: &Executor, id: u64) -> anyhow::Result<u64> {
    ran();
    Ok(id + 1)
}

#[async_trait]
trait Handle {
    async fn outside(&self, id: u64) -> Result<u64, Rejection>;
    async fn inside(&self, id: u64) -> Result<u64, Rejection>;
}

#[async_trait]
impl Handle for App {
    #[instrument(skip(self))]
    #[idempotent(key = id, with = self)]
    async fn outside(&self, id: u64) -> Result<u64, Rejection> {
        ran();
        Ok(id + 1)
    }

    #[idempotent(key = id, with = self)]
    #[instrument(skip(self))]
    async fn inside(&self, id: u64) -> Result<u64, Rejection> {
        ran();
        Ok(id + 1)
    }
}

#[tokio::test]
async fn above_and_below_instrument() {
    let (e, app) = (executor(), App { idem: executor() });
    once(2, || async { span_outside(&e, 1).await.unwrap() }).await;
    once(2, || async { span_inside(&e, 1).await.unwrap() }).await;
    once(2, || async { app.outside(1).await.unwrap() }).await;
    once(2, || async { app.inside(1).await.unwrap() }).await;
}

type Foo = Result<u8, Rejection>;

#[allow(dead_code)]
enum Bar {
    Foo,
}

/// tokio-rs/tracing issue 3306.
#[idempotent(key = const { ONE }, with = e)]
async fn shadowed(e: &Executor) -> Foo {
    #![allow(unused_imports)]
    use Bar::*;
    ran();
    Ok(1)
}

#[tokio::test]
async fn a_glob_import_in_the_body_that_hides_the_return_type() {
    let e = executor();
    once(1, || async { shadowed(&e).await.unwrap() }).await;
}

type Function = Box<dyn Fn() -> u32 + Send + Sync>;

/// tokio-rs/tracing issue 1053.
#[idempotent(key = id, with = e, codec = Seven)]
async fn coerced(e: &Executor, id: u8) -> Result<Function, anyhow::Error> {
    if id == 9 {
        return Ok(Box::new(|| 9));
    }
    ran();
    Ok(Box::new(|| 7))
}

struct Seven;

impl Codec<Function> for Seven {
    fn encode(_: &Function) -> Result<Option<Vec<u8>>, CodecError> {
        Ok(None)
    }
    fn decode(_: Option<&[u8]>) -> Result<Function, CodecError> {
        Ok(Box::new(|| 7))
    }
}

#[idempotent(key = const { ONE }, with = e)]
async fn boxed_error(e: &Executor, text: &str) -> Result<Vec<u64>, Box<dyn std::error::Error + Send + Sync>> {
    ran();
    let numbers = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    if text.is_empty() {
        return Err("empty".into());
    }
    Ok(numbers)
}

#[tokio::test]
async fn coercions_and_question_marks_as_in_a_plain_function() {
    let e = executor();
    once(7, || async { coerced(&e, 1).await.unwrap()() }).await;
    assert!(boxed_error(&e, "1,x").await.is_err());
    assert_runs(1);
    once(vec![1, 2], || async { boxed_error(&e, "1,2").await.unwrap() }).await;
}

#[idempotent(key = id, with = e)]
async fn inferred(e: &Executor, id: u8) -> anyhow::Result<BTreeMap<String, u64>> {
    ran();
    let pair = |text: &str| -> anyhow::Result<_> { Ok((text.to_owned(), text.len() as u64)) };
    let map = ["a", "bb"].into_iter().map(pair).collect::<anyhow::Result<_>>()?;
    let checked = async {
        let _: u8 = "7".parse()?;
        anyhow::Ok(())
    };
    checked.await?;
    Ok(map)
}

#[idempotent(key = const { ONE }, with = e)]
#[allow(clippy::diverging_sub_expression, unreachable_code)]
async fn never_ok(e: &Executor) -> Result<u8, AppError> {
    ran();
    Err(AppError::NoStock)?
}

#[tokio::test]
async fn types_are_inferred_from_the_return_type() {
    let e = executor();
    once(2, || async { inferred(&e, 1).await.unwrap().len() }).await;
    assert!(matches!(never_ok(&e).await, Err(AppError::NoStock)));
    assert_runs(1);
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[idempotent(key = id)]
async fn sent(id: u8) -> Result<u32, Rejection> {
    tokio::task::yield_now().await;
    Ok(ran())
}

#[tokio::test]
async fn futures_stay_send_and_need_not_be() {
    let e = executor();
    once(1, || async { is_send(e.scope(is_send(sent(1)))).await.unwrap() }).await;
    assert_eq!(tokio::spawn(async move { e.scope(sent(1)).await }).await.unwrap().unwrap(), 1);
    assert_runs(0);

    #[idempotent(key = const { ONE }, with = e)]
    async fn not_send(e: &Executor, local: std::rc::Rc<u8>) -> Result<u8, Rejection> {
        tokio::task::yield_now().await;
        Ok(*local)
    }
    assert_eq!(not_send(&executor(), 5.into()).await.unwrap(), 5);
}

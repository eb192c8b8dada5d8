//! Free functions.
use std::pin::Pin;

use super::*;

#[idempotent(key = order.id)]
async fn free(order: Order) -> anyhow::Result<u64> {
    ran();
    let one: u64 = "1".parse()?;
    Ok(moved(order) + one)
}

fn moved(order: Order) -> u64 {
    order.amount
}

#[tokio::test]
async fn a_free_function_finds_the_executor_in_scope_and_may_move_what_the_key_was_made_of() {
    let e = executor();
    once(42, || async { e.scope(free(order("a"))).await.unwrap() }).await;
}

#[idempotent(key = id, with = executor, codec = idempotent::Discard, scope = "generic")]
async fn generic<K, T>(executor: Arc<Executor>, id: K, value: T) -> anyhow::Result<Option<T>>
where
    K: KeyPart + Clone,
    T: Send,
{
    ran();
    Ok(Some(value))
}

#[tokio::test]
async fn a_generic_function_with_a_value_that_is_not_kept() {
    let e = Arc::new(executor());
    assert_eq!(generic(e.clone(), "k", 7).await.unwrap(), Some(7));
    assert_eq!(generic(e.clone(), "k", 7).await.unwrap(), None, "the default stands in");
    // Another instance of the same function is the same handler.
    assert_eq!(generic::<_, u8>(e, String::from("k"), 7).await.unwrap(), None);
    assert_runs(1);
}

#[idempotent(key = (a, b.to_string()), with = e, scope = "opaque")]
async fn opaque(e: &impl AsRef<Executor>, a: impl KeyPart, b: impl Display) -> Result<String, Rejection> {
    ran();
    Ok(format!("{b}"))
}

#[tokio::test]
async fn impl_trait_arguments() {
    let app = App { idem: executor() };
    once("z".to_owned(), || async { opaque(&app, 1u8, 'z').await.unwrap() }).await;
}

struct State<T>(T);
struct Key(String);
struct Json<T>(T);

#[idempotent(scene = rest, key = key, with = app, fingerprint = order)]
async fn extractors(
    State(app): State<App>,
    Key(key): Key,
    Json(order @ Order { amount, .. }): Json<&Order>,
    (_, [first, ..]): (u8, [u8; 3]),
    mut n: u64,
) -> Result<u64, Rejection> {
    ran();
    n += u64::from(first);
    Ok(amount + n + order.id.len() as u64)
}

#[tokio::test]
async fn destructured_arguments() {
    let app = App { idem: executor() };
    let call = || extractors(State(app.clone()), Key("k".into()), Json(&ORDER), (0, [1, 2, 3]), 1);
    static ORDER: std::sync::LazyLock<Order> = std::sync::LazyLock::new(|| order("a"));
    once(44, || async { call().await.unwrap() }).await;
}

#[idempotent(key = id, with = e)]
async fn disposed(e: &Executor, id: u8) -> Disposition {
    ran();
    match id {
        0 => Disposition::DeadLetter { reason: "zero".into() },
        1 => Disposition::Retry { after: secs(1) },
        _ => Disposition::Ack,
    }
}

#[tokio::test]
async fn a_disposition_says_itself_how_it_ended() {
    let e = executor();
    once(Disposition::Ack, || disposed(&e, 2)).await;
    for _ in 0..2 {
        assert_eq!(disposed(&e, 1).await, Disposition::Retry { after: secs(1) });
    }
    assert_runs(2);
    assert_eq!(disposed(&e, 0).await, Disposition::DeadLetter { reason: "zero".into() });
    let Disposition::DeadLetter { reason } = disposed(&e, 0).await else { panic!("no dead letter") };
    assert!(reason.starts_with("an earlier attempt failed permanently") && reason.contains("zero"), "{reason}");
    assert_runs(1);
}

#[idempotent(key = const { ONE }, with = e)]
async fn borrowed<'a>(e: &'a Executor, text: &'a str) -> Result<usize, Rejection> {
    ran();
    Ok(text.len())
}

#[tokio::test]
async fn named_lifetimes() {
    let e = executor();
    once(3, || async { borrowed(&e, &String::from("abc")).await.unwrap() }).await;
}

/// The function that `#[async_trait]` generates, written without the macro.
#[idempotent(key = id, with = e)]
fn boxed(e: &Executor, id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Rejection>> + Send + '_>> {
    Box::pin(async move {
        ran();
        Ok(id)
    })
}

#[tokio::test]
async fn a_function_that_returns_a_boxed_future() {
    let e = executor();
    once(1, || async { boxed(&e, 1).await.unwrap() }).await;
}

macro_rules! handlers {
    ($($name:ident($id:ident) = $key:expr;)*) => {$(
        #[idempotent(key = $key, with = e)]
        async fn $name(e: &Executor, $id: u8) -> Result<u8, Rejection> { Ok($id + ran() as u8) }
    )*};
}
handlers! { made(id) = id; made_too(id) = (id, "b"); }

#[tokio::test]
async fn functions_that_a_macro_writes() {
    let e = executor();
    once(8, || async { made(&e, 7).await.unwrap() }).await;
    once(8, || async { made_too(&e, 7).await.unwrap() }).await;
}

#[tokio::test]
async fn a_function_in_a_function() {
    #[idempotent(key = const { ONE })]
    async fn inside() -> Result<u32, Rejection> {
        Ok(ran())
    }
    let e = executor();
    once(1, || async { e.scope(inside()).await.unwrap() }).await;
}

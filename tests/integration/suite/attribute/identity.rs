//! The identity of calls.
use super::*;

macro_rules! variants {
    ($tenant:ident; $($name:ident($($argument:tt)*);)*) => {$(
        #[idempotent(key = id, $($argument)*)]
        #[allow(unused_variables)]
        async fn $name(id: &str, $tenant: Option<&str>) -> Result<u32, Rejection> { Ok(ran()) }
    )*};
}
variants! {
    tenant;
    plain(scope = "s");
    again(scope = "s", lease = "1m");
    other_scope(scope = "t");
    other_scene(scope = "s", scene = rest);
    named_scene(scope = "s", scene = "stock");
    other_prefix(scope = "s", prefix = "shop");
    with_tenant(scope = "s", tenant = tenant.unwrap());
}

#[tokio::test]
async fn prefix_tenant_scene_and_scope_are_part_of_it_and_policy_is_not() {
    executor()
        .scope(async {
            let first = plain("k", None).await.unwrap();
            assert_eq!(again("k", None).await.unwrap(), first);
            let others = [
                plain("l", None).await,
                other_scope("k", None).await,
                other_scene("k", None).await,
                named_scene("k", None).await,
                other_prefix("k", None).await,
                with_tenant("k", Some("a")).await,
                with_tenant("k", Some("b")).await,
            ];
            let others: Vec<_> = others.into_iter().map(Result::unwrap).collect();
            assert_eq!(others, [2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(with_tenant("k", Some("a")).await.unwrap(), 7);
        })
        .await;
    assert_runs(8);
}

#[tokio::test]
async fn the_attribute_and_an_identity_made_by_hand_name_the_same_record() {
    let e = executor();
    e.scope(with_tenant("k", Some("a"))).await.unwrap();
    let by_hand = Identity::new(Scene::Mq, "s", "k").tenant("a").key(e.namespace()).unwrap();
    assert_eq!(e.store().peek(&by_hand).await.unwrap().unwrap().state.kind(), StateKind::Consumed);
    let by_hand = Identity::new(Scene::Mq, "s", "k").key(e.namespace()).unwrap();
    assert!(e.store().peek(&by_hand).await.unwrap().is_none());
}

#[tokio::test]
async fn without_a_scope_each_function_is_a_handler_of_its_own() {
    #[idempotent(key = id, with = e)]
    async fn one(e: &Executor, id: u8) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = id, with = e)]
    async fn two(e: &Executor, id: u8) -> Result<u32, Rejection> {
        Ok(ran())
    }
    let e = executor();
    assert_eq!((one(&e, 1).await.unwrap(), two(&e, 1).await.unwrap()), (1, 2));
}

#[tokio::test]
async fn a_missing_key_is_an_error_for_the_message_and_runs_nothing() {
    #[idempotent(key = (id, part), with = e)]
    async fn charge(e: &Executor, id: Option<&str>, part: &str) -> Result<u32, AppError> {
        Ok(ran())
    }
    #[idempotent(key = id, with = e)]
    async fn charge_owned(e: &Executor, id: Option<String>) -> Result<u32, Rejection> {
        Ok(ran())
    }
    let e = executor();
    let Err(Rejection::Key(error)) = charge_owned(&e, None).await else { panic!("ran without a key") };
    assert!(error.to_string().contains("id"), "names the expression: {error}");
    once(1, || async { charge_owned(&e, Some("a".into())).await.unwrap() }).await;
    for (id, part) in [(None, "p"), (Some(""), "p"), (Some("a"), "")] {
        let (answer, outcome) = Outcome::capture(charge(&e, id, part)).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Key(KeyError::Empty { .. })))), "{answer:?}");
        assert_eq!(outcome, Some(Outcome::BadKey));
    }
    let long = "x".repeat(1025);
    let answer = charge(&e, Some(&long), "p").await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Key(KeyError::TooLong { .. })))), "{answer:?}");
    assert_runs(0);
}

#[idempotent(key = order.id, with = e, fingerprint = order)]
async fn charge(e: &Executor, order: &Order) -> Result<u64, AppError> {
    ran();
    Ok(order.amount)
}

#[tokio::test]
async fn a_changed_payload_is_refused_and_never_answered_as_a_duplicate() {
    let e = executor();
    once(41, || async { charge(&e, &order("a")).await.unwrap() }).await;
    let changed = Order { amount: 42, ..order("a") };
    let (answer, outcome) = Outcome::capture(charge(&e, &changed)).await;
    assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Mismatch))), "{answer:?}");
    assert_eq!(outcome, Some(Outcome::Mismatch));
    assert_runs(0);
}

struct Twice(Executor);
trait Billing {
    async fn handle(&self, id: u8) -> Result<u8, Rejection>;
    #[idempotent(key = id, with = self.executor())]
    async fn by_default(&self, id: u8) -> Result<u8, Rejection> {
        Ok(10)
    }
    fn executor(&self) -> &Executor;
}
trait Shipping {
    async fn handle(&self, id: u8) -> Result<u8, Rejection>;
}
#[async_trait::async_trait]
trait Mailing {
    async fn handle(&self, id: u8) -> Result<u8, Rejection>;
}
impl Billing for Twice {
    #[idempotent(key = id, with = self.0)]
    async fn handle(&self, id: u8) -> Result<u8, Rejection> {
        Ok(1)
    }
    fn executor(&self) -> &Executor {
        &self.0
    }
}
impl Shipping for Twice {
    #[idempotent(key = id, with = self.0)]
    async fn handle(&self, id: u8) -> Result<u8, Rejection> {
        Ok(2)
    }
}
#[async_trait::async_trait]
impl Mailing for Twice {
    #[idempotent(key = id, with = self.0)]
    async fn handle(&self, id: u8) -> Result<u8, Rejection> {
        Ok(3)
    }
}
impl Twice {
    #[idempotent(key = id, with = self.0)]
    async fn handle(&self, id: u8) -> Result<u8, Rejection> {
        Ok(4)
    }
}

/// Different handlers share no keys.
#[tokio::test]
async fn methods_of_one_name_on_one_type_are_handlers_of_their_own() {
    let twice = Twice(Executor::new(MemoryStore::new()));
    for _ in 0..2 {
        let answers = [
            Billing::handle(&twice, 1).await.unwrap(),
            Shipping::handle(&twice, 1).await.unwrap(),
            Mailing::handle(&twice, 1).await.unwrap(),
            twice.handle(1).await.unwrap(),
            twice.by_default(1).await.unwrap(),
        ];
        assert_eq!(answers, [1, 2, 3, 4, 10]);
    }
    assert_eq!(twice.0.counts().of("ran"), 5);
}

#[idempotent(key = id, with = e, scope = "generic")]
async fn generic<K: idempotent::KeyPart>(e: &Executor, id: K) -> Result<u8, Rejection> {
    Ok(1)
}

#[idempotent(key = id, with = e, scope = "by impl")]
async fn by_impl(e: &Executor, id: impl idempotent::KeyPart, _: fn(u8) -> Vec<u8>) -> Result<u8, Rejection> {
    Ok(1)
}

trait Event: Send {
    const NAME: &'static str;
}

struct Paid;
struct Shipped;

impl Event for Paid {
    const NAME: &'static str = "paid";
}

impl Event for Shipped {
    const NAME: &'static str = "shipped";
}

#[idempotent(key = id, with = e, scope = E::NAME)]
async fn on<E: Event>(e: &Executor, id: u8, event: E) -> Result<u8, Rejection> {
    drop(event);
    Ok(1)
}

#[tokio::test]
async fn a_generic_handler_with_a_scope_for_each_type_is_a_handler_for_each_type() {
    let e = Executor::new(MemoryStore::new());
    for _ in 0..2 {
        on(&e, 17, Paid).await.unwrap();
        on(&e, 17, Shipped).await.unwrap();
    }
    assert_eq!((e.counts().of("ran"), e.counts().of("replayed")), (2, 2));
}

#[tokio::test]
async fn a_generic_handler_of_one_scope_is_one_handler_whatever_its_types() {
    let e = Executor::new(MemoryStore::new());
    generic(&e, "k").await.unwrap();
    generic(&e, String::from("k")).await.unwrap();
    assert_eq!(e.counts().of("ran"), 1);
    by_impl(&e, "k", |n| vec![n]).await.unwrap();
    by_impl(&e, String::from("k"), |_| Vec::new()).await.unwrap();
    assert_eq!(e.counts().of("ran"), 2);
}

#[tokio::test]
async fn a_missing_tenant_is_an_error() {
    #[idempotent(key = id, tenant = tenant, with = e)]
    async fn tenanted(e: &Executor, id: u8, tenant: Option<&str>) -> Result<u8, Rejection> {
        Ok(1)
    }
    let e = Executor::new(MemoryStore::new());
    assert!(matches!(tenanted(&e, 1, None).await, Err(Rejection::Key(_))));
    assert_eq!(tenanted(&e, 1, Some("acme")).await.unwrap(), 1);
}

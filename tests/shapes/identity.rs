//! What makes two calls the same.
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
    let e = executor();
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

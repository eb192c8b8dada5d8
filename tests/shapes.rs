//! The attribute at run time: every shape of function it takes, and what each argument does.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use common::{AppError, Worker, World, assert_in_flight, ms, secs};
use idempotent::{
    Clock, Codec, CodecError, Discard, Disposition, Executor, Identity, KeyError, KeyPart, Lease, MemoryStore, Outcome,
    Policy, Rejection, Rejects, Replies, Reshapes, Scene, Split, StateKind, Store, idempotent,
};
use idempotent_testkit::Verb;
use serde::{Deserialize, Serialize};
use tracing::instrument;

thread_local! {
    /// Each test has a thread and a runtime of its own.
    static RUNS: Cell<u32> = const { Cell::new(0) };
}

fn ran() -> u32 {
    RUNS.set(RUNS.get() + 1);
    RUNS.get()
}

#[track_caller]
fn assert_runs(wanted: u32) {
    assert_eq!(RUNS.take(), wanted, "runs of the handler");
}

/// Calls twice: the same answer, and one run.
async fn once<T: PartialEq + std::fmt::Debug, F: Future<Output = T>>(wanted: T, call: impl Fn() -> F) {
    for place in ["run", "replay"] {
        assert_eq!(call().await, wanted, "{place}");
    }
    assert_runs(1);
}

async fn outcome_of<F: Future>(call: F) -> Outcome {
    Outcome::capture(call).await.1.unwrap()
}

fn executor() -> Executor {
    Executor::new(MemoryStore::new())
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    id: String,
    amount: u64,
}

fn order(id: &str) -> Order {
    Order { id: id.into(), amount: 41 }
}

/// A state as web frameworks have them.
#[derive(Clone)]
struct App {
    idem: Executor,
}

impl AsRef<Executor> for App {
    fn as_ref(&self) -> &Executor {
        &self.idem
    }
}

mod functions {
    use super::*;

    #[idempotent(key = order.id)]
    async fn free(order: Order) -> anyhow::Result<u64> {
        ran();
        Ok(moved(order) + 1)
    }

    fn moved(order: Order) -> u64 {
        order.amount
    }

    #[tokio::test]
    async fn a_free_function_finds_the_executor_in_scope_and_may_move_what_the_key_was_made_of() {
        let e = executor();
        once(42, || async { e.scope(free(order("a"))).await.unwrap() }).await;
    }

    #[idempotent(key = id, with = executor, codec = Discard)]
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
        assert_runs(1);
        // Another instance of the same function is the same handler: its type is not part of the identity.
        assert_eq!(generic::<_, u8>(e, "k", 7).await.unwrap(), None);
        assert_runs(0);
    }

    #[idempotent(key = (a, b.to_string()), with = e)]
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
        let Disposition::DeadLetter { reason } = disposed(&e, 0).await else { panic!("not put aside") };
        assert!(reason.starts_with("failed for good"), "{reason}");
        assert_runs(1);
    }

    #[idempotent(key = 1u8, with = e)]
    async fn borrowed<'a>(e: &'a Executor, text: &'a str) -> Result<usize, Rejection> {
        ran();
        Ok(text.len())
    }

    #[tokio::test]
    async fn named_lifetimes() {
        let e = executor();
        once(3, || async { borrowed(&e, &String::from("abc")).await.unwrap() }).await;
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
        #[idempotent(key = "k")]
        async fn inside() -> Result<u32, Rejection> {
            Ok(ran())
        }
        let e = executor();
        once(1, || async { e.scope(inside()).await.unwrap() }).await;
    }
}

mod methods {
    use super::*;

    struct Service {
        idem: Executor,
        calls: u32,
    }

    impl Service {
        #[idempotent(key = (tenant, &order.id), with = self.idem)]
        async fn by_ref(&self, tenant: u32, order: &Order) -> Result<String, AppError> {
            ran();
            Ok(format!("{tenant}:{}", order.id))
        }

        /// Docs and visibility stay.
        #[idempotent(key = text, with = self.idem)]
        pub(crate) async fn by_mut<'a>(&mut self, text: &'a str) -> Result<u32, Rejection> {
            ran();
            self.calls += 1;
            Ok(self.calls)
        }

        #[idempotent(key = (a, b.to_string()), with = self.idem)]
        async fn by_arc(self: Arc<Self>, (a, _): (u8, u8), b: impl Display) -> Result<String, Rejection> {
            ran();
            Ok(format!("{a}{b}"))
        }

        #[idempotent(key = 1u8, with = self.idem)]
        async fn by_box(self: Box<Self>) -> Result<u32, Rejection> {
            Ok(ran())
        }

        #[idempotent(key = self.calls, with = self.idem)]
        async fn by_value(mut self, n: u32) -> Result<u32, Rejection> {
            ran();
            self.calls += n;
            Ok(self.calls)
        }

        #[idempotent(key = id, with = e)]
        async fn associated(e: &Executor, id: u8) -> Result<u8, Rejection> {
            ran();
            Ok(id)
        }
    }

    fn service(e: &Executor) -> Service {
        Service { idem: e.clone(), calls: 0 }
    }

    #[tokio::test]
    async fn every_kind_of_self() {
        let e = executor();
        once("1:a".to_owned(), || async { service(&e).by_ref(1, &order("a")).await.unwrap() }).await;
        once(1, || async { service(&e).by_mut("x").await.unwrap() }).await;
        once("1z".to_owned(), || async { Arc::new(service(&e)).by_arc((1, 2), 'z').await.unwrap() }).await;
        once(1, || async { Box::new(service(&e)).by_box().await.unwrap() }).await;
        once(2, || async { service(&e).by_value(2).await.unwrap() }).await;
        once(3, || async { Service::associated(&e, 3).await.unwrap() }).await;
    }

    trait Native {
        async fn handle(&self, id: u8) -> Disposition;
        fn declared(&self, id: u8) -> impl Future<Output = Result<u8, Rejection>> + Send;
    }

    impl Native for Service {
        #[idempotent(key = id, with = self.idem)]
        async fn handle(&self, id: u8) -> Disposition {
            ran();
            Disposition::Ack
        }

        #[idempotent(key = id, with = self.idem)]
        async fn declared(&self, id: u8) -> Result<u8, Rejection> {
            ran();
            Ok(id)
        }
    }

    trait ByDefault: Sync {
        fn executor(&self) -> &Executor;

        #[idempotent(key = key, with = self.executor())]
        async fn handle<K: KeyPart + Send + Sync>(&self, key: K) -> Result<u32, Rejection> {
            Ok(ran())
        }
    }

    impl ByDefault for Service {
        fn executor(&self) -> &Executor {
            &self.idem
        }
    }

    #[tokio::test]
    async fn methods_of_native_traits() {
        let e = executor();
        once(Disposition::Ack, || async { Native::handle(&service(&e), 1).await }).await;
        once(1, || async { service(&e).declared(1).await.unwrap() }).await;
        once(1, || async { ByDefault::handle(&service(&e), 1u8).await.unwrap() }).await;
    }

    #[async_trait]
    trait Dyn: Send + Sync {
        async fn by_ref(&self, order: Order) -> anyhow::Result<String>;
        async fn patterns(&self, pair: (u8, u8), mut n: u32) -> Result<u32, Rejection>;
        async fn by_arc(self: Arc<Self>, id: u8) -> Result<(), Rejection>;
        fn executor(&self) -> &Executor;

        #[idempotent(key = id, with = self.executor())]
        async fn by_default(&self, id: u8) -> Result<u32, Rejection> {
            Ok(ran())
        }
    }

    #[async_trait]
    impl Dyn for Service {
        #[idempotent(key = order.id, with = self.idem, fingerprint = order.amount)]
        async fn by_ref(&self, order: Order) -> anyhow::Result<String> {
            ran();
            let one: u32 = "1".parse()?;
            Ok(format!("{}{}", order.id, one + self.calls))
        }

        #[idempotent(key = (a, b), with = self.idem)]
        async fn patterns(&self, (a, b): (u8, u8), mut n: u32) -> Result<u32, Rejection> {
            ran();
            n += u32::from(a) + u32::from(b);
            Ok(n)
        }

        #[idempotent(key = id, with = self.idem)]
        async fn by_arc(self: Arc<Self>, id: u8) -> Result<(), Rejection> {
            ran();
            assert_eq!(Lease::current().map(|lease| lease.attempt()), Some(1), "the body runs under the lease");
            Ok(())
        }

        fn executor(&self) -> &Executor {
            &self.idem
        }
    }

    #[tokio::test]
    async fn methods_of_async_trait() {
        let e = executor();
        let service: Arc<dyn Dyn> = Arc::new(service(&e));
        once("a1".to_owned(), || async { service.by_ref(order("a")).await.unwrap() }).await;
        once(6, || async { service.patterns((1, 2), 3).await.unwrap() }).await;
        once((), || async { service.clone().by_arc(1).await.unwrap() }).await;
        once(1, || async { service.by_default(1).await.unwrap() }).await;
    }

    struct One;
    struct Other;

    macro_rules! same_name {
        ($($ty:ident)*) => {$(
            impl $ty {
                #[idempotent(key = "k")]
                async fn handle(&self) -> Result<u32, Rejection> { Ok(ran()) }
            }
        )*};
    }
    same_name! { One Other }

    #[tokio::test]
    async fn methods_of_one_name_on_two_types_are_two_handlers() {
        executor()
            .scope(async {
                assert_eq!((One.handle().await.unwrap(), Other.handle().await.unwrap()), (1, 2));
                assert_eq!((One.handle().await.unwrap(), Other.handle().await.unwrap()), (1, 2));
            })
            .await;
        assert_runs(2);
    }
}

mod beside {
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
    #[idempotent(key = 9u8, with = e)]
    async fn shadowed(e: &Executor) -> Foo {
        #[allow(unused_imports)]
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

    #[idempotent(key = 1u8, with = e)]
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

    #[idempotent(key = 1u8, with = e)]
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

        #[idempotent(key = 1u8, with = e)]
        async fn not_send(e: &Executor, local: std::rc::Rc<u8>) -> Result<u8, Rejection> {
            tokio::task::yield_now().await;
            Ok(*local)
        }
        assert_eq!(not_send(&executor(), 5.into()).await.unwrap(), 5);
    }
}

mod executors {
    //! `with`, scope, none.
    use super::*;

    #[idempotent(key = 1u8)]
    async fn ambient() -> Result<u32, AppError> {
        Ok(ran())
    }

    #[tokio::test]
    async fn without_an_executor_the_handler_never_runs() {
        let (answer, outcome) = Outcome::capture(ambient()).await;
        let Err(AppError::Idempotent(rejection @ Rejection::NoExecutor { .. })) = answer else { panic!("{answer:?}") };
        assert!(rejection.to_string().contains("ambient"), "{rejection}");
        assert_eq!(outcome, Some(Outcome::NoExecutor));
        assert!(matches!(Outcome::NoExecutor.disposition(), Disposition::Retry { .. }), "never acked");
        assert_runs(0);
        let e = executor();
        e.scope(async {
            // A task spawned inside leaves the scope; one that is detached does not.
            assert!(tokio::spawn(ambient()).await.unwrap().is_err());
            assert_eq!(Executor::detach(ambient()).await.unwrap(), 1);
        })
        .await;
        assert!(Executor::current().is_none(), "the scope ended");
    }

    #[tokio::test]
    async fn scopes_nest_and_with_goes_over_them() {
        #[idempotent(key = 1u8, with = e)]
        async fn own(e: &Executor) -> Result<u32, AppError> {
            Ok(ran())
        }
        let (outer, inner) = (executor(), executor());
        outer
            .scope(async {
                ambient().await.unwrap();
                inner.scope(ambient()).await.unwrap();
                inner.scope(own(&outer)).await.unwrap();
            })
            .await;
        let ran = |e: &Executor| e.counts().of("ran");
        assert_eq!((ran(&outer), ran(&inner)), (2, 1));
    }

    struct Holder {
        app: App,
        shared: Arc<Executor>,
        boxed: Arc<App>,
    }

    impl Holder {
        fn find(&self, by: &str) -> &App {
            assert_eq!(by, "name");
            &self.app
        }

        #[idempotent(key = 1u8, scope = "one", with = self.app)]
        async fn state(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = self.app.idem)]
        async fn field(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = self.shared)]
        async fn arc(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = &self.shared)]
        async fn reference(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = self.find("name"))]
        async fn method(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = self.app.idem.clone())]
        async fn owned(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, scope = "one", with = *self.boxed)]
        async fn boxed(&self) -> Result<u32, Rejection> {
            Ok(ran())
        }
    }

    #[tokio::test]
    async fn with_takes_a_state_a_field_an_arc_and_a_call() {
        let idem = executor();
        let app = App { idem: idem.clone() };
        let holder = Holder { boxed: app.clone().into(), app, shared: Arc::new(idem) };
        once(1, || async { holder.state().await.unwrap() }).await;
        let replayed = [
            holder.field().await,
            holder.arc().await,
            holder.reference().await,
            holder.method().await,
            holder.owned().await,
            holder.boxed().await,
        ];
        assert!(replayed.into_iter().all(|answer| answer.unwrap() == 1));
        assert_runs(0);
    }
}

mod identity {
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
}

mod answers {
    //! What a value, an error and a rejection mean.
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
        assert!(again.starts_with("failed for good"), "{again}");
        assert_runs(1);
    }

    #[tokio::test]
    async fn a_failure_frees_the_key_and_a_transparent_error_does_not_hide_the_outcome() {
        #[idempotent(key = 1u8, with = e)]
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

    impl Reshapes for Text {
        type Output<R> = String;
    }

    impl<R: Display> Replies<R> for Text {
        type Value = String;
        type Failure = String;

        fn split(reply: R) -> impl Future<Output = Split<String, String>> {
            std::future::ready(Split::Value(reply.to_string()))
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

    impl<R: Display> Rejects<R> for Text {
        fn rejected(rejection: Rejection) -> String {
            rejection.to_string()
        }
    }

    #[idempotent(key = id, with = e, reply = Text)]
    async fn opaque(e: &Executor, id: u8) -> impl Display {
        ran();
        format!("<{id}>")
    }

    #[tokio::test]
    async fn a_reply_strategy_of_ones_own() {
        let e = executor();
        assert_eq!((opaque(&e, 1).await, opaque(&e, 1).await), ("<1>".into(), "<1> again".into()));
        assert_runs(1);
    }

    #[tokio::test]
    async fn a_value_that_cannot_be_kept_is_consumed_without_it_and_never_run_again() {
        #[idempotent(key = 1u8, with = e, max_result = "16B")]
        async fn large(e: &Executor) -> Result<Option<String>, AppError> {
            ran();
            Ok(Some("x".repeat(100)))
        }
        #[idempotent(key = 1u8, with = e)]
        async fn odd(e: &Executor) -> Result<Option<BTreeMap<(u8, u8), u8>>, AppError> {
            ran();
            Ok(Some([((1, 2), 3)].into())) // JSON has no such keys
        }
        let e = executor();
        assert!(large(&e).await.unwrap().is_some() && odd(&e).await.unwrap().is_some());
        let answers = [
            Outcome::capture(async { large(&e).await.map(drop) }).await,
            Outcome::capture(async { odd(&e).await.map(drop) }).await,
        ];
        for (answer, outcome) in answers {
            let Err(AppError::Idempotent(Rejection::ConsumedWithoutResult { .. })) = answer else { panic!("{answer:?}") };
            assert_eq!(outcome.unwrap().disposition(), Disposition::Ack);
        }
        assert_runs(2);
    }

    #[tokio::test]
    async fn a_panic_frees_the_key_and_goes_on() {
        #[idempotent(key = 1u8, with = e)]
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
        #[idempotent(key = 1u8, with = e, scope = "loop")]
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
}

mod policies {
    //! On a virtual clock.
    use super::*;

    fn world(policy: Policy) -> (World, Worker) {
        let world = World::memory();
        let worker = world.worker("a", policy);
        (world, worker)
    }

    async fn rest_of_lease() -> Result<u64, AppError> {
        Ok(Lease::current().unwrap().remaining().as_secs())
    }

    #[tokio::test]
    async fn the_attribute_goes_over_the_executors_policy_over_the_scenes_default() {
        #[idempotent(key = 1u8)]
        async fn plain() -> Result<u64, AppError> {
            rest_of_lease().await
        }
        #[idempotent(key = 1u8, lease = "10s")]
        async fn own() -> Result<u64, AppError> {
            rest_of_lease().await
        }
        #[idempotent(key = 1u8, scene = rest)]
        async fn other_scene() -> Result<u64, AppError> {
            rest_of_lease().await
        }
        // A tenth of the lease is kept as a margin.
        let (_, by_default) = world(Policy::new());
        assert_eq!(by_default.executor.scope(plain()).await.unwrap(), 27);
        let (_, by_policy) = world(Policy::new().lease(secs(20)));
        let scoped = by_policy.executor.scope(async { (plain().await, own().await, other_scene().await) }).await;
        assert_eq!((scoped.0.unwrap(), scoped.1.unwrap(), scoped.2.unwrap()), (18, 9, 27));
    }

    #[tokio::test]
    async fn a_policy_that_makes_no_sense_with_the_attribute_runs_nothing() {
        #[idempotent(key = 1u8, with = e, lease = "2h", max_run = "3h")]
        async fn long(e: &Executor) -> Result<u32, AppError> {
            Ok(ran())
        }
        let (_, worker) = world(Policy::new().retain(secs(3600)));
        let (answer, outcome) = Outcome::capture(long(&worker.executor)).await;
        let Err(AppError::Idempotent(Rejection::Policy(error))) = answer else { panic!("{answer:?}") };
        assert!(error.to_string().contains("2h") && error.to_string().contains("1h"), "{error}");
        assert_eq!(outcome, Some(Outcome::Misconfigured));
        assert_runs(0);
    }

    #[idempotent(key = id, with = worker.executor, lease = "9s", on_in_flight = wait("2s"))]
    async fn waited(worker: Worker, id: u8, takes: Duration) -> Result<u32, AppError> {
        ran();
        worker.clock.sleep_until(worker.clock.now() + takes).await;
        Ok(RUNS.get())
    }

    #[tokio::test]
    async fn a_duplicate_may_wait_for_the_result_and_not_longer_than_it_was_told() {
        let (world, worker) = world(Policy::new());
        let run = tokio::spawn(waited(worker.clone(), 1, secs(1)));
        world.clock.settle().await;
        let duplicate = tokio::spawn(Outcome::capture(waited(worker.clone(), 1, secs(1))));
        world.clock.advance(secs(1)).await;
        assert_eq!(run.await.unwrap().unwrap(), 1);
        let (answer, outcome) = duplicate.await.unwrap();
        assert_eq!((answer.unwrap(), outcome), (1, Some(Outcome::Replayed)));

        let run = tokio::spawn(waited(worker.clone(), 2, secs(5)));
        world.clock.settle().await;
        let duplicate = tokio::spawn(Outcome::capture(waited(worker.clone(), 2, secs(5))));
        world.clock.advance(ms(1_999)).await;
        assert!(!duplicate.is_finished());
        world.clock.advance(ms(1)).await;
        assert_in_flight(&duplicate.await.unwrap().1.unwrap());
        world.clock.advance(secs(3)).await;
        run.await.unwrap().unwrap();
        assert_runs(2);
    }

    #[tokio::test]
    async fn a_duplicate_in_flight_gets_the_attributes_message() {
        #[idempotent(key = 1u8, with = worker.executor, message = "on its way")]
        async fn slow(worker: Worker) -> Result<(), AppError> {
            ran();
            worker.clock.sleep_until(worker.clock.now() + secs(1)).await;
            Ok(())
        }
        let (world, worker) = world(Policy::new());
        let run = tokio::spawn(slow(worker.clone()));
        world.clock.settle().await;
        let (answer, outcome) = Outcome::capture(slow(worker)).await;
        assert_eq!(answer.unwrap_err().to_string(), "on its way");
        assert_in_flight(&outcome.unwrap());
        world.clock.advance(secs(1)).await;
        run.await.unwrap().unwrap();
        assert_runs(1);
    }

    #[tokio::test]
    async fn a_run_that_died_is_taken_over_or_parked() {
        #[idempotent(key = id, with = worker.executor, lease = "9s")]
        async fn hang(worker: &Worker, id: u8) -> Result<u32, AppError> {
            match ran() {
                1 => std::future::pending().await,
                _ => Ok(Lease::current().unwrap().attempt()),
            }
        }
        #[idempotent(key = id, with = worker.executor, lease = "9s", on_expiry = park)]
        async fn never_twice(worker: &Worker, id: u8) -> Result<(), AppError> {
            ran();
            std::future::pending().await
        }
        let (world, worker) = world(Policy::new());
        let dropped = {
            let worker = worker.clone();
            tokio::spawn(async move { tokio::join!(hang(&worker, 1), never_twice(&worker, 1)) })
        };
        world.clock.settle().await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        assert_in_flight(&outcome_of(hang(&worker, 1)).await);
        world.clock.advance(secs(9)).await;
        assert_runs(2);
        assert_eq!(RUNS.replace(1), 0);
        assert_eq!(hang(&worker, 1).await.unwrap(), 2, "the second attempt");
        assert_eq!(RUNS.take(), 2);
        let answer = never_twice(&worker, 1).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Dead { attempts: 1, .. }))), "{answer:?}");
        assert_runs(0);
    }

    #[tokio::test]
    async fn max_retries_buries_and_counts_from_a_constant() {
        const RETRIES: u32 = 1;
        #[idempotent(key = 1u8, with = e, max_retries = RETRIES)]
        async fn poison(e: &Executor) -> Result<(), AppError> {
            ran();
            Err(AppError::NoStock)
        }
        #[idempotent(key = 1u8, with = e, max_retries = 0)]
        async fn one_try(e: &Executor) -> Result<(), AppError> {
            ran();
            Err(AppError::NoStock)
        }
        let (_, Worker { executor: e, .. }) = world(Policy::new());
        assert!(matches!(outcome_of(poison(&e)).await, Outcome::Released { .. }));
        let dead = outcome_of(poison(&e)).await;
        assert!(matches!(dead, Outcome::Dead { .. }), "{dead:?}");
        assert_eq!(outcome_of(poison(&e)).await, dead, "copies of the dead letter collapse");
        assert_runs(2);
        assert!(matches!(outcome_of(one_try(&e)).await, Outcome::Dead { .. }));
        assert_runs(1);
    }

    #[tokio::test]
    async fn a_result_is_kept_for_its_retention() {
        #[idempotent(key = 1u8, with = e, lease = "9s", retain = "1h")]
        async fn hourly(e: &Executor) -> Result<u32, AppError> {
            Ok(ran())
        }
        let (world, Worker { executor: e, .. }) = world(Policy::new());
        once(1, || async { hourly(&e).await.unwrap() }).await;
        world.clock.advance(secs(3600) - ms(1)).await;
        assert_eq!(outcome_of(hourly(&e)).await, Outcome::Replayed);
        world.clock.advance(ms(1)).await;
        assert_eq!(outcome_of(hourly(&e)).await, Outcome::Ran);
    }

    #[tokio::test]
    async fn a_lease_that_is_lost_drops_the_handler_or_lets_it_finish() {
        #[idempotent(key = 1u8, with = worker.executor, lease = "9s")]
        async fn abort(worker: Worker, takes: Duration) -> Result<(), AppError> {
            worker.clock.sleep_until(worker.clock.now() + takes).await;
            ran();
            Ok(())
        }
        #[idempotent(key = 1u8, with = worker.executor, lease = "9s", on_lease_lost = finish)]
        async fn finish(worker: Worker, takes: Duration) -> Result<bool, AppError> {
            worker.clock.sleep_until(worker.clock.now() + takes).await;
            ran();
            Ok(Lease::current().unwrap().is_lost())
        }
        let (world, worker) = world(Policy::new());
        worker.store.fail_before(Verb::Renew, idempotent_testkit::FOREVER);
        let aborted = tokio::spawn(Outcome::capture(abort(worker.clone(), secs(10))));
        let finished = tokio::spawn(Outcome::capture(finish(worker.clone(), secs(10))));
        world.clock.advance(secs(10)).await;
        let (answer, outcome) = aborted.await.unwrap();
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::LeaseLost))), "{answer:?}");
        assert_eq!(outcome, Some(Outcome::LeaseLost));
        let (answer, outcome) = finished.await.unwrap();
        assert_eq!((answer.unwrap(), outcome), (true, Some(Outcome::Ran)), "late, but nobody took over");
        assert_runs(1);
    }

    #[tokio::test]
    async fn max_run_ends_the_renewals() {
        #[idempotent(key = 1u8, with = worker.executor, lease = "9s", max_run = "1m")]
        async fn slow(worker: Worker, takes: Duration) -> Result<(), AppError> {
            worker.clock.sleep_until(worker.clock.now() + takes).await;
            Ok(())
        }
        let (world, worker) = world(Policy::new());
        let run = tokio::spawn(Outcome::capture(slow(worker, secs(3600))));
        world.clock.advance(secs(59)).await;
        assert!(!run.is_finished(), "renewed");
        world.clock.advance(secs(11)).await;
        assert_eq!(run.await.unwrap().1, Some(Outcome::LeaseLost));
    }

    #[tokio::test]
    async fn a_store_that_is_down_refuses_the_call_or_lets_it_run_unprotected() {
        #[idempotent(key = 1u8, with = e)]
        async fn safe(e: Executor) -> Result<u32, AppError> {
            Ok(ran())
        }
        #[idempotent(key = 1u8, with = e, on_store_error = run_unprotected)]
        async fn bold(e: Executor) -> Result<u32, AppError> {
            Ok(ran())
        }
        let (world, worker) = world(Policy::new());
        worker.store.down();
        let safe = tokio::spawn(Outcome::capture(safe(worker.executor.clone())));
        world.clock.advance(secs(1)).await;
        assert!(matches!(safe.await.unwrap().1, Some(Outcome::StoreDown(_))));
        assert_runs(0);
        let bold = tokio::spawn(Outcome::capture(bold(worker.executor)));
        world.clock.advance(secs(1)).await;
        assert_eq!(bold.await.unwrap().1, Some(Outcome::Unprotected));
        assert_runs(1);
    }

    #[idempotent(key = 1u8, with = worker.executor, lease = "9s")]
    async fn left(worker: Worker) -> Result<u32, AppError> {
        worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
        Ok(ran())
    }

    #[idempotent(key = 1u8, with = worker.executor, lease = "9s", release_on_cancel)]
    async fn freed(worker: Worker) -> Result<u32, AppError> {
        worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
        Ok(ran())
    }

    #[idempotent(key = 1u8, lease = "9s", detach)]
    async fn detached(worker: Worker) -> Result<u32, AppError> {
        worker.clock.sleep_until(worker.clock.now() + secs(5)).await;
        assert!(Executor::current().is_some() && Lease::current().is_some(), "scope and lease go along");
        Ok(ran())
    }

    #[tokio::test]
    async fn a_dropped_run_leaves_its_key_to_the_lease_frees_it_or_goes_on() {
        let (world, worker) = world(Policy::new());
        let e = worker.executor.clone();
        let run = tokio::spawn({
            let worker = worker.clone();
            async move {
                tokio::join!(left(worker.clone()), freed(worker.clone()), worker.executor.scope(detached(worker.clone())))
            }
        });
        world.clock.settle().await;
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        world.clock.settle().await;
        assert_in_flight(&outcome_of(left(worker.clone())).await);
        let again = tokio::spawn(outcome_of(freed(worker.clone())));
        world.clock.advance(secs(5)).await;
        assert_eq!(again.await.unwrap(), Outcome::Ran);
        let (answer, outcome) = Outcome::capture(e.scope(detached(worker.clone()))).await;
        assert!(answer.is_ok());
        assert_eq!(outcome, Some(Outcome::Replayed), "it had gone on");
        assert_runs(2);
    }
}

/// Across threads, so the count is not the thread's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_duplicates_at_once_one_runs() {
    #[derive(Default)]
    struct Gate {
        runs: AtomicU32,
        refused: AtomicU32,
        open: tokio::sync::Notify,
    }
    #[idempotent(key = "one", with = e)]
    async fn hold(e: Executor, gate: Arc<Gate>) -> Result<u32, Rejection> {
        gate.open.notified().await; // opened by the 63rd duplicate
        Ok(gate.runs.fetch_add(1, SeqCst) + 1)
    }
    let (e, gate) = (executor(), Arc::new(Gate::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (e, gate) = (e.clone(), gate.clone());
        tasks.spawn(async move {
            let answer = hold(e, gate.clone()).await;
            if matches!(answer, Err(Rejection::InFlight { .. })) && gate.refused.fetch_add(1, SeqCst) == 62 {
                gate.open.notify_one();
            }
            answer
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(1))).count(), 1);
    assert_eq!(hold(e, gate.clone()).await.unwrap(), 1);
    assert_eq!(gate.runs.load(SeqCst), 1);
}

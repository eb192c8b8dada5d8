//! Methods, inherent and of traits.
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
    #[allow(clippy::needless_lifetimes)] // named on purpose: it is the shape
    #[must_use = "the answer may be a rejection"]
    #[idempotent(key = text, with = self.idem)]
    pub(crate) async fn by_mut<'a>(&mut self, text: &'a str) -> Result<u32, Rejection> {
        ran();
        self.calls += 1;
        Ok(self.calls)
    }

    #[idempotent(key = (a, b.to_string()), with = self.idem, scope = "by arc")]
    async fn by_arc(self: Arc<Self>, (a, _): (u8, u8), b: impl Display + Send + Sync) -> Result<String, Rejection> {
        ran();
        Ok(format!("{a}{b}{}", self.calls))
    }

    #[idempotent(key = const { ONE }, with = self.idem)]
    async fn by_box(self: Box<Self>) -> Result<u32, Rejection> {
        Ok(ran())
    }

    #[idempotent(key = self.calls, with = self.idem)]
    async fn by_value(mut self, mut n: u32) -> Result<u32, Rejection> {
        ran();
        n += 1;
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
    once("1z0".to_owned(), || async { Arc::new(service(&e)).by_arc((1, 2), 'z').await.unwrap() }).await;
    once(1, || async { Box::new(service(&e)).by_box().await.unwrap() }).await;
    once(3, || async { service(&e).by_value(2).await.unwrap() }).await;
    once(3, || async { Service::associated(&e, 3).await.unwrap() }).await;
}

trait Native {
    async fn native(&self, id: u8) -> Disposition;
    fn declared(&self, id: u8) -> impl Future<Output = Result<u8, Rejection>> + Send;
}

impl Native for Service {
    #[idempotent(key = id, with = self.idem)]
    async fn native(&self, id: u8) -> Disposition {
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

    #[idempotent(key = key, with = self.executor(), scope = "provided")]
    async fn provided<K: KeyPart + Send + Sync>(&self, key: K) -> Result<u32, Rejection> {
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
    once(Disposition::Ack, || async { service(&e).native(1).await }).await;
    once(1, || async { service(&e).declared(1).await.unwrap() }).await;
    once(1, || async { service(&e).provided(1u8).await.unwrap() }).await;
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
            #[idempotent(key = const { ONE })]
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

type Boxed<'a> = std::pin::Pin<Box<dyn std::future::Future<Output = Result<u32, Rejection>> + Send + 'a>>;

#[idempotent(key = id, with = self.idem, scope = "alias")]
impl Service {
    /// rustc alone knows that the alias is a future.
    fn by_alias(&self, id: u32) -> Boxed<'_> {
        Box::pin(async move { Ok(ran() + id) })
    }

    fn plain(&self, id: u32) -> Option<Vec<u32>> {
        Some(vec![id, ran()])
    }
}

#[tokio::test]
async fn a_function_of_a_block_that_returns_an_alias_of_a_boxed_future_is_protected() {
    let e = executor();
    let service = service(&e);
    assert_eq!((service.by_alias(7).await.unwrap(), service.by_alias(7).await.unwrap()), (8, 8));
    assert_runs(1);
    assert_eq!((service.plain(7), service.plain(7)), (Some(vec![7, 1]), Some(vec![7, 2])), "no future, no key");
    assert_runs(2);
}

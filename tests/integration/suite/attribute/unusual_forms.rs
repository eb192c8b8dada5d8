//! Rare forms of functions, and expressions other than a name.
use std::borrow::Cow;
use std::pin::Pin;

use super::*;

mod expressions {
    use super::*;

    struct Basket {
        lines: Vec<Order>,
        shop: Option<u32>,
    }

    #[idempotent(
        key = basket.lines.iter().map(|line| &*line.id).collect::<Vec<_>>().join(","),
        tenant = match basket.shop { Some(shop) => shop.to_string(), None => "web".into() },
        with = { let e: &Executor = e; e },
        fingerprint = (&basket.lines, basket.shop),
    )]
    async fn checkout(e: &Executor, basket: Basket) -> Result<usize, Rejection> {
        ran();
        let Basket { lines, .. } = basket;
        Ok(lines.len())
    }

    #[tokio::test]
    async fn chains_matches_blocks_and_closures() {
        let e = executor();
        let basket = |shop| Basket { lines: vec![order("a"), order("b")], shop };
        once(2, || async { checkout(&e, basket(None)).await.unwrap() }).await;
        once(2, || async { checkout(&e, basket(Some(1))).await.unwrap() }).await;
    }

    #[idempotent(key = format!("{a}-{}", b + 1), with = e)]
    async fn formatted(e: &Executor, a: &str, b: u8) -> Result<u32, Rejection> {
        Ok(ran())
    }

    #[idempotent(key = &text[..3], with = e)]
    async fn sliced(e: &Executor, text: String) -> Result<String, Rejection> {
        ran();
        Ok(text)
    }

    #[idempotent(key = if big { "big" } else { "small" }, with = e)]
    async fn chosen(e: &Executor, big: bool) -> Result<u32, Rejection> {
        Ok(ran())
    }

    #[idempotent(key = (-id, id as u64, &[1u8, 2][..], *flag, 'c'), with = e)]
    async fn of_many_parts(e: &Executor, id: i64, flag: &bool) -> Result<u32, Rejection> {
        Ok(ran())
    }

    #[idempotent(key = name, with = e)]
    async fn moved(e: &Executor, name: Cow<'static, str>) -> Result<String, Rejection> {
        ran();
        Ok(name.into_owned())
    }

    #[tokio::test]
    async fn macros_slices_conditions_and_tuples() {
        let e = executor();
        once(1, || async { formatted(&e, "a", 1).await.unwrap() }).await;
        assert_eq!(formatted(&e, "a", 2).await.unwrap(), 1);
        assert_runs(1);
        assert_eq!(sliced(&e, "abcd".into()).await.unwrap(), "abcd");
        assert_eq!(sliced(&e, "abce".into()).await.unwrap(), "abcd");
        assert_runs(1);
        once(1, || async { chosen(&e, true).await.unwrap() }).await;
        once(1, || async { chosen(&e, false).await.unwrap() }).await;
        once(1, || async { of_many_parts(&e, 7, &true).await.unwrap() }).await;
        once("n".to_owned(), || async { moved(&e, "n".into()).await.unwrap() }).await;
    }

    /// Arguments may have the names of ours.
    #[idempotent(key = (key, scope, lease), with = with, scope = "names", tenant = tenant, fingerprint = fingerprint)]
    async fn names(
        with: &Executor,
        key: u8,
        scope: u8,
        lease: u8,
        tenant: u8,
        fingerprint: u8,
    ) -> Result<u8, Rejection> {
        ran();
        Ok(key + scope + lease + tenant + fingerprint)
    }

    #[tokio::test]
    async fn arguments_with_the_names_of_the_attributes() {
        let e = executor();
        once(15, || async { names(&e, 1, 2, 3, 4, 5).await.unwrap() }).await;
    }
}

mod receivers {
    use super::*;

    #[derive(Clone)]
    struct Service<T, const N: usize> {
        idem: Executor,
        value: T,
    }

    trait Make {
        type Made: Clone + Serialize + for<'de> Deserialize<'de> + Send;
        fn make(&self) -> Self::Made;
    }

    impl Make for u8 {
        type Made = String;
        fn make(&self) -> String {
            format!("<{self}>")
        }
    }

    impl<T, const N: usize> Service<T, N>
    where
        T: Make + Clone + Send + Sync,
    {
        #[idempotent(key = const { N }, with = self.idem)]
        async fn made(&self) -> Result<<T as Make>::Made, Rejection> {
            ran();
            Ok(self.value.make())
        }

        #[idempotent(key = id, with = self.idem)]
        async fn by_ref_to_arc(self: &Arc<Self>, id: u8) -> Result<usize, Rejection> {
            ran();
            Ok(N + usize::from(id))
        }

        #[idempotent(key = id, with = self.idem)]
        async fn by_pin(self: Pin<&mut Self>, id: u8) -> Result<u8, Rejection> {
            ran();
            Ok(id)
        }

        #[idempotent(key = const { ONE }, with = idem, codec = NotKept)]
        async fn new(idem: &Executor, value: T) -> Result<Option<Self>, Rejection> {
            ran();
            Ok(Some(Self { idem: idem.clone(), value }))
        }
    }

    struct NotKept;

    impl<T> Codec<Option<T>> for NotKept {
        fn encode(_: &Option<T>) -> Result<Option<Vec<u8>>, CodecError> {
            Ok(None)
        }
        fn decode(_: Option<&[u8]>) -> Result<Option<T>, CodecError> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn generic_types_with_constants_and_associated_types() {
        let e = executor();
        let service = Service::<u8, 3>::new(&e, 7).await.unwrap().unwrap();
        assert!(Service::<u8, 3>::new(&e, 7).await.unwrap().is_none());
        assert_runs(1);
        once("<7>".to_owned(), || async { service.made().await.unwrap() }).await;
        let other = Service::<u8, 4> { idem: e.clone(), value: 7 };
        once("<7>".to_owned(), || async { other.made().await.unwrap() }).await;
        let shared = Arc::new(service.clone());
        once(5, || async { shared.by_ref_to_arc(2).await.unwrap() }).await;
        once(2, || async { Pin::new(&mut service.clone()).by_pin(2).await.unwrap() }).await;
    }

    #[async_trait(?Send)]
    trait Local {
        async fn local<'a, K: KeyPart + 'a>(&'a self, key: K, text: &'a str) -> Result<String, Rejection>;
    }

    #[async_trait(?Send)]
    impl Local for std::rc::Rc<Executor> {
        #[idempotent(scope = "local", key = key, with = **self)]
        async fn local<'a, K: KeyPart + 'a>(&'a self, key: K, text: &'a str) -> Result<String, Rejection> {
            tokio::task::yield_now().await;
            ran();
            Ok(text.to_owned())
        }
    }

    #[tokio::test]
    async fn async_trait_without_send_with_generics_and_lifetimes() {
        let e = std::rc::Rc::new(executor());
        once("t".to_owned(), || async { e.local(1u8, "t").await.unwrap() }).await;
    }
}

mod bodies {
    use super::*;

    #[idempotent(key = n, with = e)]
    async fn busy(e: &Executor, #[allow(unused_mut)] mut n: u32) -> anyhow::Result<u32> {
        ran();
        use std::fmt::Write;
        const STEP: u32 = 2;
        fn double(n: u32) -> u32 {
            n * STEP
        }
        let mut text = String::new();
        let found = 'search: loop {
            for step in 0.. {
                write!(text, "{step}")?;
                if step * STEP >= n {
                    break 'search step;
                }
            }
        };
        let Some(first) = text.chars().next() else { anyhow::bail!("nothing written") };
        anyhow::ensure!(first == '0', "written otherwise");
        if found > 10 {
            return Err(AppError::NoStock.into());
        }
        let later = async move { anyhow::Ok(double(found)) };
        later.await
    }

    #[tokio::test]
    async fn items_loops_labels_and_early_returns() {
        let e = executor();
        once(6, || async { busy(&e, 5).await.unwrap() }).await;
        assert!(busy(&e, 99).await.unwrap_err().downcast_ref::<AppError>().is_some());
        assert_runs(1);
    }

    #[cfg_attr(test, idempotent(key = id, with = e))]
    #[must_use = "kept"]
    #[inline]
    #[doc(hidden)]
    pub(in crate::attribute::unusual_forms) async fn with_attributes(e: &Executor, id: u8) -> Result<u8, Rejection> {
        ran();
        Ok(id)
    }

    #[idempotent(key = id, with = e)]
    async fn only_an_expression(e: &Executor, id: u8) -> Result<u8, Rejection> {
        Ok(id).inspect(|_| {
            ran();
        })
    }

    #[idempotent(key = id, with = e)]
    async fn only_a_match(e: &Executor, id: Option<u8>) -> Result<u8, AppError> {
        ran();
        match id {
            Some(id) if id > 0 => Ok(id),
            Some(_) | None => Err(AppError::NoArticle),
        }
    }

    #[tokio::test]
    async fn attributes_and_bodies_of_one_expression() {
        let e = executor();
        once(1, || async { with_attributes(&e, 1).await.unwrap() }).await;
        once(1, || async { only_an_expression(&e, 1).await.unwrap() }).await;
        once(1, || async { only_a_match(&e, Some(1)).await.unwrap() }).await;
        assert!(matches!(only_a_match(&e, Some(0)).await, Err(AppError::NoArticle)));
        assert_runs(1);
    }

    #[idempotent(key = id, with = e)]
    async fn boxed(e: &Executor, id: u8) -> Result<Box<[Cow<'static, str>]>, Box<dyn std::error::Error>> {
        ran();
        let _: u8 = "1".parse()?;
        Ok([Cow::Borrowed("a")].into())
    }

    #[tokio::test]
    async fn an_error_that_is_neither_send_nor_sync() {
        let e = executor();
        once(1, || async { boxed(&e, 1).await.unwrap().len() }).await;
    }
}

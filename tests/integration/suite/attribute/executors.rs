//! `with`, scope, none.
use super::*;

#[idempotent(key = const { ONE })]
async fn ambient() -> Result<u32, AppError> {
    Ok(ran())
}

/// An attribute without an executor rejects all calls.
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
    #[idempotent(key = const { ONE }, with = e)]
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

/// The type of what brings the executor says nothing about the call.
#[tokio::test]
async fn one_call_by_two_types_of_executors_is_a_duplicate() {
    #[idempotent(key = id, with = app)]
    async fn pay(app: impl AsRef<Executor>, id: u32) -> Result<u32, AppError> {
        Ok(ran())
    }
    let e = executor();
    let app = App { idem: e.clone() };
    assert_eq!((pay(&e, 1).await.unwrap(), pay(&app, 1).await.unwrap(), pay(e, 1).await.unwrap()), (1, 1, 1));
    assert_runs(1);
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

    #[idempotent(key = const { ONE }, scope = "one", with = self.app)]
    async fn state(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = self.app.idem)]
    async fn field(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = self.shared)]
    async fn arc(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = &self.shared)]
    async fn reference(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = self.find("name"))]
    async fn method(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = self.app.idem.clone())]
    async fn owned(&self) -> Result<u32, Rejection> {
        Ok(ran())
    }
    #[idempotent(key = const { ONE }, scope = "one", with = *self.boxed)]
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

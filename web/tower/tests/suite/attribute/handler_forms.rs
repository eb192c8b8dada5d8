//! Methods of services, generic handlers, and handlers with axum's own attribute.
use super::*;

struct Shop {
    executor: Executor,
    app: App,
}

impl Shop {
    #[idempotent(
        scene = rest,
        scope = "shop",
        key = key,
        tenant = user,
        fingerprint = order,
        with = self.executor,
        reply = Http,
        crate = ::idempotent_core,
    )]
    async fn by_reference(&self, user: &str, key: IdempotencyKey, order: Order) -> impl IntoResponse {
        self.app.ran();
        (StatusCode::CREATED, Json(order))
    }

    #[idempotent(
        scene = rest,
        scope = "shop",
        key = key,
        tenant = user,
        fingerprint = order,
        with = self.executor,
        reply = Http,
        detach,
        crate = ::idempotent_core,
    )]
    async fn owned(
        self: Arc<Self>,
        user: String,
        key: IdempotencyKey,
        order: Order,
    ) -> Result<Json<Order>, StatusCode> {
        self.app.ran();
        if order.qty == 0 { Err(StatusCode::BAD_REQUEST) } else { Ok(Json(order)) }
    }
}

#[tokio::test]
async fn methods_of_a_service_can_be_annotated() {
    let app = App::new();
    let shop = || Arc::new(Shop { executor: app.executor.clone(), app: app.clone() });
    let (first, second) = (shop(), shop());
    let borrowed =
        post(async move |key: IdempotencyKey, Json(order): Json<Order>| first.by_reference("ada", key, order).await);
    let owned =
        post(async move |key: IdempotencyKey, Json(order): Json<Order>| second.owned("bob".into(), key, order).await);
    for (route, status) in [(borrowed, 201), (owned, 200)] {
        let service = Router::new().route("/orders", route);
        assert_eq!(once(&app, &service).await.status, status);
    }
}

#[axum::debug_handler]
#[idempotent(scene = rest, scope = "above", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn above(State(app): State<App>, key: IdempotencyKey, Json(order): Json<Order>) -> impl IntoResponse {
    app.ran();
    Json(order)
}

#[idempotent(scene = rest, scope = "below", key = key, with = app, tenant = (), fingerprint = (), reply = Http, detach, crate = ::idempotent_core)]
#[axum::debug_handler]
async fn below(State(app): State<App>, key: IdempotencyKey, Json(order): Json<Order>) -> Result<Json<Order>, Problem> {
    app.ran();
    Ok(Json(order))
}

#[tokio::test]
async fn debug_handler_works_above_and_below_the_attribute() {
    let app = App::new();
    for service in [at(&app, "/orders", above), at(&app, "/orders", below)] {
        assert_eq!(once(&app, &service).await.json()["qty"], 1);
    }
}

trait Warehouse: Clone + Send + Sync + 'static {
    fn take(&self, order: &Order) -> u32;
}

#[derive(Clone)]
struct Shelf(App);

impl Warehouse for Shelf {
    fn take(&self, order: &Order) -> u32 {
        self.0.ran() + order.qty
    }
}

#[idempotent(scene = rest, scope = "generic", key = key, with = executor, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn generic<W: Warehouse>(
    Extension(executor): Extension<Executor>,
    State(warehouse): State<W>,
    key: IdempotencyKey,
    Json(order): Json<Order>,
) -> Json<u32> {
    Json(warehouse.take(&order))
}

#[tokio::test]
async fn a_generic_handler_runs_with_each_of_its_types() {
    let app = App::new();
    let service = Router::new()
        .route("/orders", post(generic::<Shelf>))
        .layer(Extension(app.executor.clone()))
        .with_state(Shelf(app.clone()));
    assert_eq!(once(&app, &service).await.json(), 2);
}

/// A service that depends on another one.
#[idempotent(scene = rest, scope = "early", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn early(State(app): State<App>, key: IdempotencyKey, body: String) -> Result<impl IntoResponse, Problem> {
    app.ran();
    let quantity: u32 =
        body.parse().map_err(|_| Problem::new(ProblemKind::InvalidBody).detail("a number is wanted"))?;
    if quantity == 0 {
        return Ok((StatusCode::ACCEPTED, "nothing to do".to_owned()));
    }
    Ok((StatusCode::CREATED, quantity.to_string()))
}

#[tokio::test]
async fn question_marks_and_early_returns_work() {
    let app = App::new();
    let service = at(&app, "/orders", early);
    let says = async |body: &'static str| send(&service, request("/orders", body, body)).await;
    says("x").await.assert_problem(400, "invalid-body");
    assert_eq!((says("0").await.status, says("7").await.status), (202, 201));
    app.assert_runs(3);
}

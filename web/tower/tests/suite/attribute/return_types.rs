//! The return types of annotated handlers, and their replays.
use super::*;

// rustfmt would indent the attribute further at each run.
#[rustfmt::skip]
macro_rules! orders {
    ($name:ident, $reply:ty, |$run:ident, $order:ident| $body:expr) => {
        #[idempotent(
            scene = rest,
            scope = "orders",
            key = key,
            fingerprint = $order,
            with = app,
            tenant = (), reply = Http,
            crate = ::idempotent_core,
        )]
        async fn $name(State(app): State<App>, key: IdempotencyKey, Json($order): Json<Order>) -> $reply {
            let $run = app.ran();
            $body
        }
    };
}

orders!(opaque, impl IntoResponse, |run, order| ([(header::LOCATION, format!("/orders/{run}"))], Json(order)));
orders!(json, Json<Order>, |run, order| Json(Order { qty: run, ..order }));
orders!(response, Response, |run, order| (StatusCode::ACCEPTED, format!("{run} {}", order.sku)).into_response());
orders!(tuple, (StatusCode, HeaderMap, Bytes), |run, order| {
    (StatusCode::CREATED, HeaderMap::new(), Bytes::from(vec![0, 0xff, run as u8, order.qty as u8]))
});
orders!(nothing, (), |_run, _order| ());
orders!(result, Result<(StatusCode, Json<Order>), ApiError>, |_run, order| match order.qty {
    0 => Err(ApiError::Empty),
    _ => Ok((StatusCode::CREATED, Json(order))),
});
orders!(opaque_error, Result<Json<Order>, impl IntoResponse>, |_run, order| match order.qty {
    0 => Err((StatusCode::IM_A_TEAPOT, "empty")),
    _ => Ok(Json(order)),
});

/// Error types as in applications, with and without `Http`.
#[derive(Debug, thiserror::Error)]
enum ApiError {
    #[error("an order of nothing")]
    Empty,
    #[error(transparent)]
    Problem(#[from] Problem),
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        Self::Problem(rejection.into())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Empty => (StatusCode::BAD_REQUEST, self.to_string()).into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

#[tokio::test]
async fn every_axum_response_type_is_replayed() {
    let order = br#"{"sku":"teapot","qty":1}"#;
    let cases: [(Built, u16, &[u8]); 7] = [
        (|app| at(app, "/orders", opaque), 200, order),
        (|app| at(app, "/orders", json), 200, order),
        (|app| at(app, "/orders", response), 202, b"1 teapot"),
        (|app| at(app, "/orders", tuple), 201, &[0, 0xff, 1, 1]),
        (|app| at(app, "/orders", nothing), 200, b""),
        (|app| at(app, "/orders", result), 201, order),
        (|app| at(app, "/orders", opaque_error), 200, order),
    ];
    for (service, status, body) in cases {
        let app = App::new();
        let answer = once(&app, &service(&app)).await;
        assert_eq!((answer.status, &*answer.body), (status, body));
    }
}

#[tokio::test]
async fn an_error_is_returned_and_frees_the_key() {
    let services: [(Built, u16); 2] =
        [(|app| at(app, "/orders", result), 400), (|app| at(app, "/orders", opaque_error), 418)];
    for (service, status) in services {
        let app = App::new();
        let service = service(&app);
        for _ in 0..2 {
            let failed = order(&service, "k", 0).await;
            assert_eq!((failed.status, failed.is_replayed()), (status, false));
        }
        app.assert_runs(2);
        // The key is free for a different payload as well.
        assert!(order(&service, "k", 1).await.status < 300);
        app.assert_runs(1);
        order(&service, "k", 0).await.assert_problem(422, "key-reused");
        app.assert_runs(0);
    }
}

/// A handler without `Http`: the record stores the value, not the response.
#[idempotent(
    scene = rest,
    key = key,
    fingerprint = order,
    with = app,
    codec = AxumJson,
    crate = ::idempotent_core,
)]
async fn typed(State(app): State<App>, key: IdempotencyKey, Json(order): Json<Order>) -> Result<Json<Order>, ApiError> {
    app.ran();
    if order.qty == 0 { Err(ApiError::Empty) } else { Ok(Json(order)) }
}

/// The same with `reject`, for an error that accepts only problems.
#[idempotent(
    scene = rest,
    key = key,
    fingerprint = order,
    with = app,
    codec = AxumJson,
    reject = |rejection| Err(Problem::from(rejection)),
    crate = ::idempotent_core,
)]
async fn rejecting(
    State(app): State<App>,
    key: IdempotencyKey,
    Json(order): Json<Order>,
) -> Result<Json<Order>, Problem> {
    app.ran();
    Ok(Json(order))
}

#[tokio::test]
async fn the_codec_for_axum_json_stores_the_value_and_the_error_type_reports_rejections() {
    let app = App::new();
    let service = at(&app, "/orders", typed);
    assert_eq!(order(&service, "k", 0).await.status, 400);
    let first = order(&service, "k", 2).await;
    assert_eq!(first.json(), serde_json::json!({"sku": "teapot", "qty": 2}));
    // No marker: the response is created again from the value.
    assert_eq!(order(&service, "k", 2).await, first);
    app.assert_runs(2);
    order(&service, "k", 3).await.assert_problem(422, "key-reused");

    let service = at(&app, "/orders", rejecting);
    let first = order(&service, "k", 2).await;
    assert_eq!(order(&service, "k", 2).await, first);
    order(&service, "k", 3).await.assert_problem(422, "key-reused");
    app.assert_runs(1);
}

#[test]
fn a_problem_is_an_error_with_its_code_and_detail() {
    let error = ApiError::from(Rejection::UnknownToken);
    let told = "unknown-token: The token was not issued to this caller, or its time is over. Ask for a new one.";
    assert_eq!(error.to_string(), told);
    let boxed: Box<dyn std::error::Error + Send + Sync> = Problem::new(ProblemKind::UnknownToken).into();
    assert_eq!(boxed.to_string(), told);
}

//! The API: accepts orders.
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use idempotent::http::Principal;
use idempotent::metrics::MetricsObserver;
use idempotent::mq::OutboundMessage;
use idempotent::{Executor, IdempotencyLayer, Outbox, Tracing, connect};
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use sqlx::postgres::PgPool;

use crate::arguments::ServeArguments;
use crate::database;
use crate::health::{self, Stop};
use crate::shipping::QUEUE;

/// An order, as in the request and in the message.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) number: String,
    pub(crate) article: String,
}

#[derive(Clone)]
struct Orders {
    pool: PgPool,
    outbox: Outbox<Postgres>,
}

impl Orders {
    /// Writes an order and its message in one transaction. Returns false if the order exists.
    async fn place(&self, order: &Order) -> anyhow::Result<bool> {
        let mut tx = self.pool.begin().await?;
        let is_new = database::place(&mut tx, &order.number, &order.article).await?;
        if is_new {
            let body = serde_json::to_vec(order)?;
            let id = format!("order-{}", order.number);
            self.outbox.enqueue(&mut tx, &OutboundMessage::new(QUEUE, id, body)).await?;
        }
        tx.commit().await?;
        Ok(is_new)
    }
}

async fn place(State(orders): State<Orders>, Json(order): Json<Order>) -> StatusCode {
    match orders.place(&order).await {
        Ok(true) => StatusCode::CREATED,
        Ok(false) => StatusCode::OK,
        Err(error) => {
            tracing::error!("cannot place an order: {error:#}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// Accepts orders until the stop signal, and then answers the open requests within the grace period.
pub(crate) async fn serve(arguments: ServeArguments) -> anyhow::Result<()> {
    let metrics = health::record_metrics()?;
    let stop = Stop::listen()?;
    let pool = database::connect(&arguments.database.url()?).await?;
    let orders = Orders { outbox: Outbox::open(pool.clone()).await?, pool };
    let observer = MetricsObserver::new().store("keys");
    let executor = Executor::builder(connect(arguments.keys()?).await?).observer((Tracing, observer)).build()?;
    // The sample has no users. A real service returns the authenticated user of each request.
    let once = IdempotencyLayer::new(executor.clone(), Principal::none());
    let app = Router::new()
        .route("/orders", post(place).route_layer(once))
        .merge(health::routes(stop.clone(), metrics))
        .with_state(orders);
    let listener = health::bind(arguments.listen).await?;
    let served = executor
        .serve_until(stop.requested(), arguments.grace, async |stopped| {
            axum::serve(listener, app).with_graceful_shutdown(stopped).await
        })
        .await;
    tracing::info!(finished = served.drained.finished, abandoned = served.drained.abandoned, "stopped");
    served.output.transpose()?;
    Ok(())
}

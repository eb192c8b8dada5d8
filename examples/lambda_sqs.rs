//! A function of AWS Lambda that charges orders from SQS, each order once. Only what is not done is delivered again.
//!
//! ```text
//! cargo lambda build --release --features lambda --example lambda_sqs
//! aws lambda create-event-source-mapping --function-name charge --event-source-arn "$QUEUE" \
//!     --function-response-types ReportBatchItemFailures
//! ```
//!
//! The chapter on other runtimes shows this program, and says what a deadline does.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "Lambda stores what a function prints")]
use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::future::join_all;
use idempotent::dynamodb::DynamoBackend;
use idempotent::dynamodb::aws_sdk_dynamodb::Client;
use idempotent::store::Cas;
use idempotent::{Disposition, Executor, idempotent};
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use tokio::time::{Instant, sleep, timeout_at};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
    #[serde(default)]
    seconds: u64,
}

#[idempotent(scene = mq, scope = "charge", key = order.number, lease = "10s")]
async fn charge(order: Order) -> anyhow::Result<()> {
    anyhow::ensure!(order.cents > 0, "nothing to charge");
    println!("order {}: charging", order.number);
    sleep(Duration::from_secs(order.seconds)).await; // the answer of the payment service
    println!("order {}: charged {} cents", order.number, order.cents);
    Ok(())
}

async fn handle(event: LambdaEvent<SqsEvent>, executor: &Executor) -> Result<SqsBatchResponse, Error> {
    // Stops early enough before the deadline to send the response.
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let end = Instant::now() + left.saturating_sub(Duration::from_millis(500));
    let runs = event.payload.records.into_iter().map(async |record| {
        let id = record.message_id.unwrap_or_default();
        let run = async {
            let order = serde_json::from_str(&record.body.unwrap_or_default())?;
            let (answer, disposition) = executor.scope(Disposition::of(charge(order))).await;
            if let Err(error) = answer {
                eprintln!("message {id}: {error:#}");
            }
            Ok::<_, serde_json::Error>(disposition)
        };
        match timeout_at(end, run).await {
            Ok(Ok(Disposition::Ack)) => return None,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => eprintln!("message {id}: not an order: {error}"),
            Err(_) => eprintln!("message {id}: no answer before the deadline"),
        }
        Some(id)
    });
    let mut response = SqsBatchResponse::default();
    response.set_failures(join_all(runs).await.into_iter().flatten());
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::new(&aws_config::load_from_env().await);
    // Without `create`, the table must exist: a partition key `id` of type S, and the TTL of the attribute `ttl`.
    let backend = DynamoBackend::builder(&client, "idempotent").create(true).open().await?;
    let executor = Executor::new(Cas(backend));
    run(service_fn(|event| handle(event, &executor))).await
}

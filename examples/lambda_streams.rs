//! Functions of AWS Lambda that handle the items of a batch in their order, and report all items from the first failure on.
//!
//! The handler setting of the function chooses: `fifo` for a FIFO queue of SQS, `kinesis` or `table` for a stream of Kinesis or
//! DynamoDB. The event source mapping must report batch item failures, as for `lambda_sqs`. For a stream, set `MaximumRetryAttempts`,
//! and a destination for failed items: without them, one bad item stops its shard until its data expires.
//!
//! ```text
//! cargo lambda build --release --features lambda --example lambda_streams
//! ```
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "Lambda stores what a function prints")]
use std::time::{Duration, SystemTime};

use aws_lambda_events::dynamodb::{Event as TableEvent, EventRecord};
use aws_lambda_events::kinesis::KinesisEvent;
use aws_lambda_events::sqs::SqsEvent;
use aws_lambda_events::streams::KinesisEventResponse as Failures;
use futures_util::TryFutureExt;
use idempotent::dynamodb::DynamoBackend;
use idempotent::dynamodb::aws_sdk_dynamodb::Client;
use idempotent::store::Cas;
use idempotent::{Disposition, Executor, idempotent};
use lambda_runtime::{Context, Error, LambdaEvent, run, service_fn};
use tokio::time::timeout;

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

#[idempotent(scene = mq, scope = "charge", key = order.number, lease = "10s")]
async fn charge(order: Order) -> anyhow::Result<()> {
    anyhow::ensure!(order.cents > 0, "nothing to charge");
    println!("order {}: charged {} cents", order.number, order.cents);
    Ok(())
}

// A stream may deliver a change several times, always with the same id.
#[idempotent(scene = mq, scope = "index", key = &change.event_id, lease = "10s")]
async fn index(change: EventRecord) -> anyhow::Result<()> {
    println!("indexed {} {}", change.event_name, change.event_id);
    Ok(())
}

/// Returns whether the item of this run is done.
async fn is_done(run: impl Future<Output = anyhow::Result<()>>, executor: &Executor) -> bool {
    let run = run.inspect_err(|error| eprintln!("{error:#}"));
    executor.scope(Disposition::of(run)).await.1 == Disposition::Ack
}

async fn order(body: &[u8], executor: &Executor) -> bool {
    match serde_json::from_slice(body) {
        Ok(order) => is_done(charge(order), executor).await,
        Err(_) => false,
    }
}

/// Runs the items, each with its id, until one of them is not done before the deadline. Reports this item and all later ones.
async fn in_order(items: impl Iterator<Item = (String, impl Future<Output = bool>)>, context: &Context) -> Failures {
    let mut failures = Failures::default();
    for (id, run) in items {
        // Stops early enough before the deadline to send the response.
        let left = context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
        let time = left.saturating_sub(Duration::from_millis(500));
        if !failures.batch_item_failures.is_empty() || timeout(time, run).await != Ok(true) {
            failures.add_failure(id);
        }
    }
    failures
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::new(&aws_config::load_from_env().await);
    // Without `create`, the table must exist: a partition key `id` of type S, and the TTL of the attribute `ttl`.
    let backend = DynamoBackend::builder(&client, "idempotent").create(true).open().await?;
    let executor = &Executor::new(Cas(backend));
    let fifo = async |LambdaEvent { payload, context }: LambdaEvent<SqsEvent>| {
        let items = payload.records.into_iter().map(|record| {
            let body = record.body.unwrap_or_default();
            (record.message_id.unwrap_or_default(), async move { order(body.as_bytes(), executor).await })
        });
        Ok::<_, Error>(in_order(items, &context).await)
    };
    let kinesis = async |LambdaEvent { payload, context }: LambdaEvent<KinesisEvent>| {
        let items = payload.records.into_iter().map(|record| {
            let record = record.kinesis;
            (record.sequence_number, async move { order(&record.data, executor).await })
        });
        Ok::<_, Error>(in_order(items, &context).await)
    };
    let table = async |LambdaEvent { payload, context }: LambdaEvent<TableEvent>| {
        let items = payload.records.into_iter().map(|record| {
            (record.change.sequence_number.clone().unwrap_or_default(), is_done(index(record), executor))
        });
        Ok::<_, Error>(in_order(items, &context).await)
    };
    match &*std::env::var("_HANDLER")? {
        "fifo" => run(service_fn(fifo)).await,
        "kinesis" => run(service_fn(kinesis)).await,
        "table" => run(service_fn(table)).await,
        other => Err(format!("the handler is {other:?}, it must be `fifo`, `kinesis` or `table`").into()),
    }
}

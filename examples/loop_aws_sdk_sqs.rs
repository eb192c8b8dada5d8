//! Consumes a queue of Amazon SQS by a loop over aws-sdk-sqs: the attribute deduplicates, and the loop settles by [`Disposition`].
//!
//! ```text
//! aws sqs create-queue --queue-name orders
//! aws sqs create-queue --queue-name orders-dead
//! cargo run -p idempotent-examples --features sqs --example loop_aws_sdk_sqs -- sqs://eu-west-1
//! ```
//!
//! The keys are in the file `orders.db`, or in the one that a second argument names. Dead letters are where `idempotent dead list`
//! looks for them. The guide on own loops says what the consumer of this project adds.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::Message;
use futures_util::TryFutureExt;
use futures_util::future::try_join_all;
use idempotent::{Disposition, Executor, SqliteStore, idempotent};
use tokio::signal::unix::{SignalKind, signal};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

#[idempotent(scene = mq, scope = "charge", key = order.number)]
async fn charge(order: Order) -> anyhow::Result<()> {
    anyhow::ensure!(order.cents > 0, "nothing to charge");
    println!("order {}: charged {} cents", order.number, order.cents);
    Ok(())
}

async fn handle(message: Message, executor: &Executor, client: &Client, queue: &str) -> anyhow::Result<()> {
    let (body, receipt) = (message.body.unwrap_or_default(), message.receipt_handle.unwrap_or_default());
    let disposition = match serde_json::from_str(&body) {
        Ok(order) => {
            let charged = charge(order).inspect_err(|error| eprintln!("{error:#}"));
            executor.scope(Disposition::of(charged)).await.1
        }
        Err(error) => Disposition::DeadLetter { reason: error.to_string().into() },
    };
    match disposition {
        Disposition::Ack => {}
        Disposition::DeadLetter { .. } => {
            client.send_message().queue_url(format!("{queue}-dead")).message_body(body).send().await?;
        }
        retry => {
            let after = if let Disposition::Retry { after } = retry { after.as_secs() } else { 0 };
            // SQS allows 12 hours after the receipt.
            let seconds = i32::try_from(after).unwrap_or(i32::MAX).clamp(1, 43_000);
            let visibility = client.change_message_visibility().queue_url(queue).receipt_handle(receipt);
            visibility.visibility_timeout(seconds).send().await?;
            return Ok(());
        }
    }
    client.delete_message().queue_url(queue).receipt_handle(receipt).send().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    // A service uses the crate `aws-config`: `Client::new(&aws_config::load_from_env().await)`.
    let client = idempotent::sqs::client(&arguments.next().unwrap_or_else(|| "sqs://eu-west-1".to_owned()))?;
    let executor = Executor::new(SqliteStore::open(arguments.next().unwrap_or_else(|| "orders.db".to_owned())).await?);
    let queue = client.get_queue_url().queue_name("orders").send().await?.queue_url.unwrap_or_default();
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let receive = client.receive_message().queue_url(&queue).max_number_of_messages(10).wait_time_seconds(20);
        let received = tokio::select! {
            received = receive.send() => received?,
            _ = terminate.recv() => return Ok(()),
        };
        let messages = received.messages.unwrap_or_default().into_iter();
        try_join_all(messages.map(|message| handle(message, &executor, &client, &queue))).await?;
    }
}

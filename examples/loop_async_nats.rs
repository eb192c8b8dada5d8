//! Consumes a stream of NATS JetStream by a loop over async-nats: the attribute deduplicates, and the loop settles by [`Disposition`].
//!
//! ```text
//! nats stream add ORDERS --subjects 'orders.>' --defaults
//! nats stream add ORDERS-dead --subjects idempotent.dead.ORDERS-dead --defaults
//! cargo run -p idempotent-examples --features nats --example loop_async_nats -- nats://127.0.0.1:4222
//! ```
//!
//! The keys are in the file `orders.db`, or in the one that a second argument names. Dead letters are where `idempotent dead list`
//! looks for them. The guide on own loops says what the consumer of this project adds.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, AckKind, Context, Message};
use futures_util::{StreamExt, TryFutureExt, TryStreamExt};
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

async fn handle(message: Message, executor: &Executor, context: &Context) -> anyhow::Result<()> {
    let disposition = match serde_json::from_slice(&message.payload) {
        Ok(order) => {
            let charged = charge(order).inspect_err(|error| eprintln!("{error:#}"));
            executor.scope(Disposition::of(charged)).await.1
        }
        Err(error) => Disposition::DeadLetter { reason: error.to_string().into() },
    };
    let answer = match disposition {
        Disposition::Ack => AckKind::Ack,
        Disposition::DeadLetter { .. } => {
            context.publish("idempotent.dead.ORDERS-dead", message.payload.clone()).await?.await?;
            AckKind::Term
        }
        Disposition::Retry { after } => AckKind::Nak(Some(after)),
        _ => AckKind::Nak(None),
    };
    message.double_ack_with(answer).await.map_err(anyhow::Error::from_boxed)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    let executor = Executor::new(SqliteStore::open(arguments.next().unwrap_or_else(|| "orders.db".to_owned())).await?);
    let context = jetstream::new(async_nats::connect(url).await?);
    let config = pull::Config { durable_name: Some("billing".to_owned()), ..Default::default() };
    let consumer = context.get_stream("ORDERS").await?.get_or_create_consumer("billing", config).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    // No more than run at once: the time of `ack_wait` begins when a message is sent.
    // Takes no more messages after SIGTERM, and finishes those that run.
    let messages = consumer
        .stream()
        .max_messages_per_batch(16)
        .messages()
        .await?
        .take_until(Box::pin(terminate.recv()))
        .map_err(anyhow::Error::from);
    messages.try_for_each_concurrent(16, |message| handle(message, &executor, &context)).await
}

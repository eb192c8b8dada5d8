//! Subscribers of RustStream charge orders from its memory broker, from RabbitMQ or from MQTT, each order once.
//!
//! ```text
//! cargo run -p idempotent-examples --features ruststream --example ruststream -- memory
//! {"number": 1, "cents": 500}
//! rabbitmqadmin declare queue name=orders.dead
//! cargo run -p idempotent-examples --features ruststream --example ruststream -- amqp://guest:guest@127.0.0.1/%2f
//! cargo run -p idempotent-examples --features ruststream --example ruststream -- mqtt://127.0.0.1:1883
//! mosquitto_pub -q 1 -t orders -m '{"number": 1, "cents": 500}'
//! ```
//!
//! The keys are in `orders.db`, or in the file that a second argument names. The memory broker takes its orders from
//! the lines of the input. The chapter on other runtimes says what each outcome does on each broker.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::borrow::Cow;
use std::future::{Future, ready};
use std::io::{Error, Write, stdin, stdout};
use std::time::Duration;

use idempotent::reply::{DefaultReply, HandlerOutcome as Classified, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::{Disposition, Executor, Rejection, SqliteStore, idempotent};
use ruststream::OutgoingMessage;
use ruststream::memory::prelude::*;
use ruststream_lapin::prelude::{Delay, LapinBroker, RabbitQueue};
use ruststream_rumqttc::prelude::{MqttBroker, MqttTopic};

#[derive(serde::Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

#[idempotent(scene = mq, scope = "charge", key = order.number, reply = Settlement)]
async fn charge(order: &Order) -> HandlerOutcome {
    if order.cents == 0 {
        println!("order {}: nothing to charge", order.number);
        return HandlerOutcome::drop();
    }
    println!("order {}: charged {} cents", order.number, order.cents);
    HandlerOutcome::ack()
}

/// The reply strategy of handlers that return the outcome of RustStream.
struct Settlement;

impl ResponseShape for Settlement {
    type Output<R> = R;
}

impl ReplyStrategy<HandlerOutcome> for Settlement {
    type Value = ();
    type Failure = HandlerOutcome;

    fn split(outcome: HandlerOutcome) -> impl Future<Output = Classified<(), HandlerOutcome>> {
        ready(match outcome {
            done if done.is_ack() => Classified::Value(()),
            dropped if dropped.is_drop() => Classified::Permanent(dropped),
            retry => Classified::Transient(retry),
        })
    }

    fn value((): ()) -> HandlerOutcome {
        HandlerOutcome::ack()
    }

    fn replayed((): ()) -> HandlerOutcome {
        println!("a duplicate: acknowledged");
        HandlerOutcome::ack()
    }

    fn failure(outcome: HandlerOutcome) -> HandlerOutcome {
        outcome
    }

    fn describe(outcome: &HandlerOutcome) -> Cow<'static, str> {
        if outcome.is_drop() { "the handler dropped it".into() } else { "the handler asked for a retry".into() }
    }
}

impl RejectStrategy<HandlerOutcome> for Settlement {
    fn rejected(rejection: Rejection) -> HandlerOutcome {
        println!("{rejection}");
        match DefaultReply::rejected(rejection) {
            Disposition::Ack => HandlerOutcome::ack(),
            Disposition::Retry { after } => HandlerOutcome::retry_after(after),
            Disposition::DeadLetter { .. } => HandlerOutcome::drop(),
            _ => HandlerOutcome::retry_after(Duration::from_secs(1)),
        }
    }
}

#[subscriber("orders", workers(16))]
async fn from_memory(order: &Order) -> HandlerOutcome {
    charge(order).await
}

/// A retry waits in the queue `orders.retry`, and what is dropped is in the queue `orders.dead`.
#[subscriber(
    RabbitQueue::new("orders").dead_letter_exchange("").dead_letter_routing_key("orders.dead").delay(Delay::dlx_ttl()),
    workers(16)
)]
async fn from_rabbitmq(order: &Order) -> HandlerOutcome {
    charge(order).await
}

/// A retry waits here. For a returned `retry_after`, RustStream would acknowledge the message, and publish a copy after
/// the delay: a process that is killed before that loses the message.
#[subscriber(MqttTopic::new("orders"), workers(16))]
async fn from_mqtt(order: &Order) -> HandlerOutcome {
    loop {
        let outcome = charge(order).await;
        let Some(delay) = outcome.retry_delay() else { return outcome };
        tokio::time::sleep(delay).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let broker = arguments.next().unwrap_or_else(|| "memory".to_owned());
    Executor::new(SqliteStore::open(arguments.next().unwrap_or_else(|| "orders.db".to_owned())).await?).install()?;
    let app = RustStream::new(AppInfo::new("orders", "0.1.0"));
    let app = match broker.split(':').next() {
        Some("amqp") => app.with_broker(LapinBroker::new(broker).declare_topology(true).prefetch(nonzero!(16)), |b| {
            b.include(from_rabbitmq);
        }),
        // The server keeps messages while the program is down, and sends again what was not acknowledged.
        Some("mqtt") => app.with_broker(
            MqttBroker::new(broker, "orders").clean_start(false).session_expiry(Duration::from_hours(1)),
            |b| {
                b.include(from_mqtt);
            },
        ),
        _ => app.with_broker(MemoryBroker::new(), |b| {
            b.include(from_memory);
            b.after_startup(Publish, async |publisher| {
                let runtime = tokio::runtime::Handle::current();
                // In a thread, because the runtime waits at its end for a read of tokio's `stdin`.
                std::thread::spawn(move || {
                    stdin().lines().map_while(Result::ok).try_for_each(|line| {
                        runtime.block_on(publisher.publish(OutgoingMessage::new("orders", line.as_bytes()), None))
                    })
                });
                Ok::<_, Error>(())
            });
        }),
    };
    let app = app.after_startup(|_| ready(writeln!(stdout(), "waiting for orders")));
    Ok(app.shutdown_timeout(Duration::from_secs(20)).run().await?)
}

//! Deferrals, as of duplicates in flight: a copy in a retry queue, and a delay by the broker.
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotent::Timestamp;
use idempotent::mq::{OutboundMessage, Publish, Received, Retry, Settlement, Source, SourceErrorKind};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::RabbitServer;

use crate::broker::report::{Goal, Report};
use crate::broker::{PREFETCH, body};

const CASE: &str = "deferrals";
const MESSAGES: usize = 20_000;
/// Long enough that no message returns during the measurement.
const DELAY: Duration = Duration::from_secs(3_600);

/// Measures deferrals by copies, and by a broker that supports delays.
pub fn take(report: &Report, rabbit: &RabbitServer) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let messages = if report.is_tried() { 500 } else { MESSAGES };
    let queues = [
        ("copy", Queue::quorum("deferred.copy")),
        ("broker", Queue::quorum("deferred.broker").delayed_retry(DELAY, DELAY)),
    ];
    for (name, queue) in queues.into_iter().filter(|(name, _)| report.wants(name, CASE)) {
        let name_of_queue = format!("deferred.{name}");
        match runtime.block_on(rate(&rabbit.url(), queue, &name_of_queue, messages)) {
            Some(rate) => report.value((name, CASE, Some(PREFETCH)), "messages/s", rate, Goal::None),
            None => {
                println!("{name}: the broker does not delay messages; IDEMPOTENT_RABBITMQ_SBIN names one that does")
            }
        }
    }
}

/// Returns the deferrals per second, or `None` if the broker refuses the queue.
async fn rate(url: &str, queue: Queue, name: &str, messages: usize) -> Option<f64> {
    let mut source = RabbitSource::builder(url, queue).build().unwrap();
    match source.declare().await {
        Err(refused) if refused.kind() == SourceErrorKind::Fatal => return None,
        declared => declared.unwrap(),
    }
    let publisher = RabbitPublisher::builder(url).build().unwrap();
    let sent: Vec<_> = (0..messages).map(|number| OutboundMessage::new(name, number.to_string(), body())).collect();
    for some in sent.chunks(1_000) {
        Publish::publish(&publisher, some).await.into_iter().for_each(|published| drop(published.unwrap()));
    }
    let (settler, mut retry) = (source.settler(), Retry::after(DELAY, Timestamp(0)));
    retry.attempt = 1;
    let retry = Settlement::Retry(retry);
    let (begin, mut deferred) = (Instant::now(), 0);
    while deferred < messages {
        let Received::Deliveries(held) = source.receive(PREFETCH).await.unwrap() else { panic!("the channel is gone") };
        deferred += held.len();
        join_all(held.iter().map(async |(delivery, tag)| settler.settle(delivery, tag, &retry).await.unwrap())).await;
    }
    let rate = messages as f64 / begin.elapsed().as_secs_f64();
    source.close().await;
    Some(rate)
}

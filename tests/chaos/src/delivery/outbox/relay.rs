//! Sends what was written.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent::delay_queue::DelayProducer;
use idempotent::mq::{Outbound, Publish, PublishError, Published};
use idempotent::outbox::{Relay, Resends};

use super::{queue, stores};
use crate::delivery::DeliveryFlaw;
use crate::delivery::hands::{Hands, Point, Stop, stopped};

const LEASE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// Sends until it is told to end.
pub(in crate::delivery) async fn relay(hands: &Arc<Hands>, stop: Stop) -> anyhow::Result<()> {
    let (_, outbox, _) = stores(&hands.start.database).await?;
    let producer = DelayProducer::new(&queue(&hands.start.broker).await);
    let resends = Resends::new()
        // Nothing is given up: whatever is not done is sent again.
        .max_sends(1_000)
        .backoff(Duration::from_millis(300), Duration::from_secs(1))
        .backlog(Duration::from_millis(300))
        .look_again(Duration::from_millis(200))
        .log_age(Duration::from_secs(4))
        .quiet(Duration::from_secs(6));
    let relay = Relay::new(&outbox, Arc::new(Mortal { producer, hands: hands.clone() }));
    relay.lease(LEASE).poll(POLL).batch(50).resends(resends).run(stopped(stop)).await;
    Ok(())
}

/// A producer in whose calls its process dies.
struct Mortal {
    producer: DelayProducer,
    hands: Arc<Hands>,
}

#[async_trait]
impl Publish for Mortal {
    async fn publish(&self, messages: &[Outbound]) -> Vec<Result<Published, PublishError>> {
        self.hands.may_die(Point::BeforeSend);
        if self.hands.start.flaw == Some(DeliveryFlaw::SendsBackwards) {
            let backwards: Vec<_> = messages.iter().rev().cloned().collect();
            let mut answers = self.producer.publish(&backwards).await;
            answers.reverse();
            return answers;
        }
        let answers = self.hands.may_die_in(Point::AtSending, self.producer.publish(messages)).await;
        self.hands.may_die(Point::AfterSend);
        answers
    }
}

impl std::fmt::Debug for Mortal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mortal").field("producer", &self.producer).finish_non_exhaustive()
    }
}

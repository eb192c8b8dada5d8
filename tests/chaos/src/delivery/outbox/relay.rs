//! Sends what was written.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent::alert::{Alert, AlertError, AlertSender};
use idempotent::mq::{OutboundMessage, Publish, PublishError, Published};
use idempotent::outbox::{Relay, ResendPolicy};

use super::broker::OutboxBroker;
use super::home::Home;
use super::statements::Statements;
use super::{MOST_SENDS, Note, broker};
use crate::delivery::database::on_database;
use crate::delivery::process::{DOOMED, Point, ProcessContext, Stop, stopped};
use crate::delivery::{DeliveryFlaw, SqlStore};

const POLL: Duration = Duration::from_millis(50);

/// Relays until the stop signal.
pub(in crate::delivery) async fn relay(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => relay_of::<Db>(context, stop).await)
}

async fn relay_of<Db: Statements>(context: &Arc<ProcessContext>, stop: Stop) -> anyhow::Result<()> {
    let home = Home::<Db>::reach(&context.start.database).await;
    let inner = broker::publisher(&context.start.broker).await?;
    let (broker, _) = OutboxBroker::of(&context.start.broker)?;
    let publisher = Arc::new(DyingPublisher { inner, context: context.clone(), doomed: doomed(broker) });
    let alert = Arc::new(Noted(context.clone()));
    let (first, most) = patience(broker);
    let resends = ResendPolicy::new()
        .backoff(first, most)
        .backlog(first)
        .look_again(Duration::from_millis(200))
        .log_age(Duration::from_secs(4))
        .quiet(Duration::from_secs(6));
    let relay = |outbox, sends| {
        let relay = Relay::new(outbox, publisher.clone()).alerts(alert.clone());
        relay.lease(lease(broker)).poll(POLL).batch(50).resends(resends.clone().max_sends(sends))
    };
    // Of these nothing is given up: whatever is not done is sent again.
    let wanted = relay(&home.outbox, 1_000);
    let unwanted = relay(&home.unwanted, MOST_SENDS);
    tokio::join!(wanted.run(stopped(stop.clone())), unwanted.run(stopped(stop)));
    Ok(())
}

fn lease(broker: OutboxBroker) -> Duration {
    match broker {
        OutboxBroker::Delay => Duration::from_secs(2),
        // A handshake and a confirm on a busy machine.
        _ => Duration::from_secs(6),
    }
}

/// Returns the patience of a relay. A delay queue merges a resent message into the waiting one. Other brokers
/// store another copy, so short times would fill their queues.
fn patience(broker: OutboxBroker) -> (Duration, Duration) {
    match broker {
        OutboxBroker::Delay => (Duration::from_millis(300), Duration::from_secs(1)),
        _ => (Duration::from_secs(3), Duration::from_secs(20)),
    }
}

/// Returns the probability of a kill around a call of the broker, in percent. Brokers other than the delay queue are
/// down for longer after a crash, so a play contains fewer calls of them.
fn doomed(broker: OutboxBroker) -> u64 {
    match broker {
        OutboxBroker::Delay => DOOMED,
        _ => DOOMED * 4,
    }
}

/// A producer in whose calls its process dies.
struct DyingPublisher {
    inner: Arc<dyn Publish>,
    context: Arc<ProcessContext>,
    /// The probability of a kill, in percent.
    doomed: u64,
}

#[async_trait]
impl Publish for DyingPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        self.context.may_die_with(self.doomed, Point::BeforeSend);
        if self.context.start.flaw == Some(DeliveryFlaw::SendsBackwards) {
            let backwards: Vec<_> = messages.iter().rev().cloned().collect();
            let mut answers = self.inner.publish(&backwards).await;
            answers.reverse();
            return answers;
        }
        let answers = self.context.may_die_in_with(self.doomed, Point::AtSending, self.inner.publish(messages)).await;
        self.context.may_die_with(self.doomed, Point::AfterSend);
        answers
    }
}

impl std::fmt::Debug for DyingPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DyingPublisher").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// An alert sender that writes each alert into the notes before the relay continues.
struct Noted(Arc<ProcessContext>);

#[async_trait]
impl AlertSender for Noted {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        if self.0.start.flaw != Some(DeliveryFlaw::TellsNobody)
            && let Some(message) = alert.given_up
        {
            let outbox = alert.scope.clone().into_owned();
            self.0.notes.write(&Note::Alarmed { outbox, seq: message.seq, sends: message.sends });
            self.0.may_die(Point::AfterAlarm);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Noted").finish_non_exhaustive()
    }
}

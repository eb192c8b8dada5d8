//! A producer of all kinds of messages. The producer sends some messages twice, resends unconfirmed ones, and cancels
//! some.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::{DelayMessage, DelayQueue, SendReceipt};
use idempotent::mq::{Cancelled, DelayErrorKind};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::note::{Body, Note, Off, Topic, own_id};
use super::topics;
use crate::delivery::process::{Point, ProcessContext, now};

/// A message comes so often.
const PACE: Duration = Duration::from_millis(25);
/// On their way at once.
const MOST: usize = 32;
/// In percent of the messages.
const POISON: u64 = 4;
const COPIED: u64 = 10;
const CALLED_OFF: u64 = 15;
/// Between two attempts to be heard.
const REST: Duration = Duration::from_millis(50);

struct Order {
    n: u64,
    topic: Topic,
    message: DelayMessage,
    /// True if the message has an id or a merge key, so that it may be sent again.
    named: bool,
    late: Duration,
}

/// Sends until there is peace, and all that was begun is known.
pub(in crate::delivery) async fn produce(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    let queues = Arc::new(topics(&context.start.broker, context.start.flaw).await?);
    let mut under_way = JoinSet::new();
    let mut count = 0;
    while !context.is_peace() {
        sleep(PACE).await;
        if under_way.len() < MOST {
            count += 1;
            let order = order(context, (u64::from(context.start.id) << 32) | count);
            let (context, queues) = (context.clone(), queues.clone());
            under_way.spawn(async move { see_to(&context, &queues, order).await });
        }
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
    Ok(())
}

/// Creates a message, and writes its note before any other process sees the message.
fn order(context: &ProcessContext, n: u64) -> Order {
    let dice = &context.dice;
    let topic = if n.is_multiple_of(2) { Topic::Work } else { Topic::Bare };
    let poison = dice.percent(POISON);
    let body = Body::new(n, poison).bytes();
    let late = dice.ms(1, 900);
    let began = now();
    let id = dice.percent(70).then(|| own_id(n));
    let (message, not_before) = match dice.below(10) {
        0..4 => (DelayMessage::after(late, body), began + late),
        4..7 => (DelayMessage::due(began + late, body), began + late),
        // A failing message is not merged, because the judge could not tell which of the merged messages failed.
        7..9 if !poison => {
            let key = format!("merge-{}", dice.below(20));
            let merged = DelayMessage::merged(key, late / 4 + Duration::from_millis(1), body);
            context.notes.write(&Note::Intends { n, topic, poison, not_before: (began + late / 4).0 });
            return Order { n, topic, message: merged, named: true, late };
        }
        _ => {
            let rank = u32::try_from(dice.range(17, 100)).unwrap_or(17);
            (DelayMessage::priority(rank, body), began)
        }
    };
    context.notes.write(&Note::Intends { n, topic, poison, not_before: not_before.0 });
    let named = id.is_some();
    let message = id.into_iter().fold(message, DelayMessage::id);
    Order { n, topic, message, named, late }
}

async fn see_to(context: &ProcessContext, queues: &[DelayQueue; 2], order: Order) {
    let queue = match order.topic {
        Topic::Work => &queues[0],
        Topic::Bare => &queues[1],
    };
    context.may_die(Point::BeforeSend);
    let Some(sent) = send(context, queue, &order).await else { return };
    if order.named && context.dice.percent(COPIED) {
        context.notes.write(&Note::Again { n: order.n });
        send(context, queue, &order).await;
    }
    if sent.is_new && context.dice.percent(CALLED_OFF) {
        // Most of them before it is due.
        let percent = u32::try_from(context.dice.below(130)).unwrap_or_default();
        sleep(order.late * percent / 100).await;
        call_off(context, queue, order.topic, &sent.id).await;
    }
}

/// Once it is known to be kept; `None` if that is not to be known.
async fn send(context: &ProcessContext, queue: &DelayQueue, order: &Order) -> Option<SendReceipt> {
    let Order { n, topic, .. } = *order;
    loop {
        match context.may_die_in(Point::AfterSend, queue.send(&order.message)).await {
            Ok(sent) => {
                context.notes.write(&Note::Kept { n, topic, id: sent.id.clone(), at: sent.at.0, new: sent.is_new });
                return Some(sent);
            }
            Err(error) if error.kind() == DelayErrorKind::Refused => {
                context.notes.write(&Note::Refused { n, why: error.to_string() });
                return None;
            }
            // Another one would be a message of its own.
            Err(error) if error.kind() != DelayErrorKind::NotApplied && !order.named => return None,
            Err(_) => context.notes.write(&Note::Again { n }),
        }
        sleep(REST).await;
    }
}

async fn call_off(context: &ProcessContext, queue: &DelayQueue, topic: Topic, id: &str) {
    context.notes.write(&Note::Cancelling { topic, id: id.to_owned() });
    let mut sure = true;
    loop {
        let how = match queue.cancel(id).await {
            Ok(Cancelled::Done) => Off::Done,
            Ok(Cancelled::Delivering) => Off::Delivering,
            Ok(_) => Off::Unknown,
            Err(_) => {
                sure = false;
                sleep(REST).await;
                continue;
            }
        };
        return context.notes.write(&Note::Cancelled { topic, id: id.to_owned(), how, heard: now().0, sure });
    }
}

//! Sends chains, each shuffled a little; one link of some always fails. Those that are streams it registers before.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::{DelayMessage, DelayQueue};
use idempotent::{Executor, Identity, Scene};
use tokio::time::sleep;

use super::{LENGTH, Link, Note, executor, queue};
use crate::delivery::DeliveryFlaw;
use crate::delivery::process::{Point, ProcessContext};

/// A link comes so often.
const PACE: Duration = Duration::from_millis(25);
/// Chains that are sent side by side.
const ABREAST: u64 = 6;
/// In percent of the chains: one of its links always fails.
const POISONED: u64 = 35;
const REST: Duration = Duration::from_millis(50);
const NUMBERS: [u64; LENGTH as usize] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Sends until there is peace; a chain that was begun is sent to its end.
pub(in crate::delivery) async fn produce(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    let queue = queue(&context.start.broker).await;
    let executor = executor(context).await?;
    let mut chain = u64::from(context.start.id) * 100_000;
    while !context.is_peace() {
        let flaw = context.start.flaw;
        for stream in (chain..chain + ABREAST).filter(|chain| is_stream(*chain)) {
            match flaw {
                Some(DeliveryFlaw::RegistersLate) => {}
                Some(DeliveryFlaw::ForgetsNumber) => register(context, &executor, stream, &[2, 4, 6, 8]).await,
                _ => register(context, &executor, stream, &NUMBERS).await,
            }
        }
        for link in links(context, chain) {
            sleep(PACE).await;
            send(context, &queue, link).await;
            if link.numbered && flaw == Some(DeliveryFlaw::RegistersLate) {
                register(context, &executor, link.chain, &[link.number]).await;
            }
        }
        chain += ABREAST;
    }
    Ok(())
}

/// Every other one.
fn is_stream(chain: u64) -> bool {
    chain % 2 == 1
}

async fn register(context: &ProcessContext, executor: &Executor, chain: u64, numbers: &[u64]) {
    let stream = Identity::new(Scene::Mq, "streams", &chain);
    loop {
        let registered = executor.register(&stream, numbers.iter().copied());
        match context.may_die_in(Point::Registering, registered).await {
            Ok(_) => return context.notes.write(&Note::Registered { chain }),
            // Said twice it is meant once.
            Err(error) => eprintln!("not known to be registered: {error}"),
        }
        sleep(REST).await;
    }
}

/// Returns the links of some chains, in an order in which each link is near its place.
fn links(context: &ProcessContext, first: u64) -> Vec<Link> {
    let dice = &context.dice;
    let mut links = Vec::new();
    for chain in first..first + ABREAST {
        // Not the first, so that there is one before it; not the last, so that there is one to skip it.
        let poison = dice.percent(POISONED).then(|| dice.range(2, LENGTH - 1));
        let link = |number| Link { chain, number, numbered: is_stream(chain), poison: poison == Some(number) };
        // By when: its number, and up to three later.
        links.extend((1..=LENGTH).map(|number| (number * 10 + dice.below(30), link(number))));
    }
    links.sort_unstable_by_key(|(when, _)| *when);
    links.into_iter().map(|(_, link)| link).collect()
}

async fn send(context: &ProcessContext, queue: &DelayQueue, link: Link) {
    context.notes.write(&Note::Intends(link));
    context.may_die(Point::BeforeSend);
    let body = serde_json::to_vec(&link).unwrap_or_default();
    let message = DelayMessage::after(context.dice.ms(0, 60), body).id(link.name());
    loop {
        match context.may_die_in(Point::AfterSend, queue.send(&message)).await {
            Ok(_) => return context.notes.write(&Note::Kept(link)),
            // Under the same id: it is one.
            Err(error) => eprintln!("not known to be sent: {error}"),
        }
        sleep(REST).await;
    }
}

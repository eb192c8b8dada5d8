//! The state after the end of all activity.
use std::collections::BTreeMap;

use anyhow::Context;
use idempotent::outbox::{Outbox, OutboxDb, OutboxStatus};

use super::broker::Broker;
use super::home::Home;
use super::statements::{Statements, Written};

#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    pub(super) written: BTreeMap<String, Written>,
    pub(super) effects: Vec<String>,
    pub(super) stubs: BTreeMap<String, Kept>,
    /// The committed messages without a receiver, and their stubs.
    pub(super) unwanted: Vec<String>,
    pub(super) unwanted_stubs: BTreeMap<String, Kept>,
    /// The ids of the broker's dead letters.
    pub(super) letters: Vec<String>,
    /// All messages that the broker has accepted, if it keeps them.
    pub(super) tape: Option<Vec<Accepted>>,
}

/// A message that the broker has accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Accepted {
    pub(super) id: String,
    /// Positions of one aggregate sort in order of acceptance.
    pub(super) position: String,
}

/// The status of a message in the outbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kept {
    pub(super) seq: i64,
    pub(super) status: OutboxStatus,
    pub(super) sends: u32,
}

/// The number of tries. Each failed one removes a connection from the pool that a crash of its server has ended.
const TRIES: usize = 20;

/// Reads the final state.
pub(super) async fn left<Db: Statements>(home: &Home<Db>, broker: &Broker) -> anyhow::Result<Left> {
    for _ in 1..TRIES {
        match read(home, broker).await {
            Err(error) => eprintln!("not read: {error:#}"),
            left => return left,
        }
    }
    read(home, broker).await
}

async fn read<Db: Statements>(home: &Home<Db>, broker: &Broker) -> anyhow::Result<Left> {
    let mut connection = home.pool.acquire().await.context("the database is gone")?;
    let written = Db::written(&mut connection).await?;
    let (unwanted, effects) = (Db::unwanted(&mut connection).await?, Db::effects(&mut connection).await?);
    drop(connection);
    Ok(Left {
        written,
        effects,
        stubs: stubs(&home.outbox).await?,
        unwanted,
        unwanted_stubs: stubs(&home.unwanted).await?,
        letters: broker.letters().await?,
        tape: broker.tape().await?,
    })
}

async fn stubs<Db: OutboxDb>(outbox: &Outbox<Db>) -> anyhow::Result<BTreeMap<String, Kept>> {
    let mut stubs = BTreeMap::new();
    for status in [OutboxStatus::Unconfirmed, OutboxStatus::Confirmed, OutboxStatus::Void, OutboxStatus::Dead] {
        let mut behind = 0;
        loop {
            let page = outbox.list(status, behind, 1_000).await?;
            let Some(last) = page.last() else { break };
            behind = last.record.seq;
            let kept = |entry: idempotent::outbox::OutboxEntry| {
                (entry.id, Kept { seq: entry.record.seq, status, sends: entry.record.sends })
            };
            stubs.extend(page.into_iter().map(kept));
        }
    }
    Ok(stubs)
}

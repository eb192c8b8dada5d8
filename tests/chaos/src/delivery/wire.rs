//! What a process is told, as a line of JSON; a second line, whatever it says, means peace.
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::DeliveryFlaw;

/// The first line a process reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Start {
    /// Which incarnation it is.
    pub(super) id: u32,
    pub(super) role: Role,
    pub(super) seed: u64,
    /// The broker's URL, by way of a proxy.
    pub(super) broker: String,
    /// Where records and effects are.
    pub(super) database: String,
    /// Records are beside the effects, in one transaction.
    pub(super) in_transaction: bool,
    /// Its notes go here.
    pub(super) notes: PathBuf,
    pub(super) flaw: Option<DeliveryFlaw>,
    /// Nobody dies by its own hand.
    pub(super) peace: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    DelayProducer,
    /// An annotated handler, under a consumer.
    DelayConsumer,
    /// The queue's own way: take, commit, roll back.
    DelayTaker,
    /// Transactions with messages in them.
    Writer,
    Relay,
    OutboxConsumer,
    ChainProducer,
    ChainConsumer,
}

impl Role {
    /// What ends by itself once there is peace.
    pub(super) fn is_producer(self) -> bool {
        matches!(self, Self::DelayProducer | Self::Writer | Self::ChainProducer)
    }
}

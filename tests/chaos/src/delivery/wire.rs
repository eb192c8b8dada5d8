//! The message to a process, a line of JSON. A second line ends the faults.
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::DeliveryFlaw;
use crate::args::Args;

/// The first line a process reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Start {
    /// The number of the incarnation.
    pub(super) id: u32,
    pub(super) role: Role,
    pub(super) seed: u64,
    /// The broker's URL, by way of a proxy.
    pub(super) broker: String,
    /// The database of records and effects.
    pub(super) database: String,
    /// True if records and effects are written in one transaction.
    pub(super) in_transaction: bool,
    /// Its notes go here.
    pub(super) notes: PathBuf,
    pub(super) flaw: Option<DeliveryFlaw>,
    /// True if no process kills itself.
    pub(super) peace: bool,
}

impl Start {
    /// Creates the settings that all processes of a play share. `Workers` sets the rest for each process.
    pub(super) fn new(args: &Args, flaw: Option<DeliveryFlaw>, broker: String, database: String) -> Self {
        let (seed, peace) = (args.seed, args.calm);
        let (id, role, notes) = (0, Role::Relay, PathBuf::new());
        Self { id, role, seed, broker, database, in_transaction: true, notes, flaw, peace }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    DelayProducer,
    /// An annotated handler, under a consumer.
    DelayConsumer,
    /// The queue's own way: take, commit, roll back.
    DelayTaker,
    /// Schedules tasks of a delay table.
    TableProducer,
    /// A consumer of a delay table, which polls.
    TableConsumer,
    /// A consumer of a delay table with a timing wheel.
    TableWheel,
    /// Transactions with messages in them.
    Writer,
    Relay,
    OutboxConsumer,
    ChainProducer,
    ChainConsumer,
}

impl Role {
    /// Returns whether the process ends by itself after the faults.
    pub(super) fn is_producer(self) -> bool {
        matches!(self, Self::DelayProducer | Self::TableProducer | Self::Writer | Self::ChainProducer)
    }
}

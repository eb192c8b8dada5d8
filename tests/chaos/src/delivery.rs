//! Producers and time: the delay queue, the outbox, and calls that come after each other. All of a play's parts are
//! processes, on real servers, and all of them are killed, stopped and cut off.
//!
//! What each process sees it writes into a file of its own before it goes on (`notes`); what took effect is in a database.
//! Both are judged at the end, when everything has come to rest.
//!
//! Read in this order: `wire` (what a process is told), `flaw` (what may be wrong on purpose), `notes`, `hands` (how a process
//! dies by itself), `crew` (the processes), `plan` (what goes wrong when), `stage` (the bad times and the peace after them),
//! `effects` (what is in the database); then the plays: `delay`, `outbox`, `ordering`.
mod crew;
mod delay;
mod effects;
mod flaw;
mod hands;
mod notes;
mod ordering;
mod outbox;
mod plan;
mod stage;
mod wire;

use std::path::Path;

pub use self::flaw::DeliveryFlaw;
use self::hands::Hands;
pub use self::outbox::{Ground, OutboxBroker, OutboxStore};
use self::wire::{Role, Start};
use crate::args::{Args, Topology};
use crate::process::begin;
use crate::verdict::Verdict;

/// What is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Play {
    /// The delay queue.
    Delay,
    /// The outbox.
    Outbox,
    /// Calls that come after each other.
    Ordering,
}

impl Play {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Delay, Self::Outbox, Self::Ordering];

    /// As it is called for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Outbox => "outbox",
            Self::Ordering => "ordering",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|play| play.name() == name)
    }
}

/// Where it is played.
#[derive(Clone, Debug)]
pub struct Places {
    /// The records of calls that come after each other.
    pub records: Topology,
    /// The outbox and its broker.
    pub outbox: Ground,
}

/// Plays one run.
///
/// # Errors
/// If it cannot be started, or what it is made of does not work.
///
/// # Cancellation
/// Dropping it kills the processes and the servers.
pub(crate) async fn play(
    args: &Args,
    (what, places, flaw): (Play, &Places, Option<DeliveryFlaw>),
    folder: &Path,
) -> anyhow::Result<Verdict> {
    match what {
        Play::Delay => delay::play(args, flaw, folder).await,
        Play::Outbox => outbox::play(args, places.outbox, flaw, folder).await,
        Play::Ordering => ordering::play(args, &places.records, flaw, folder).await,
    }
}

/// A process of a play: does what its first line says until stdin ends or it is killed.
///
/// # Errors
/// If it does not understand what it is told, or cannot go on.
///
/// # Cancellation
/// Dropping it leaves its work to the runtime.
pub async fn work() -> anyhow::Result<()> {
    let Some((start, lines)) = begin::<Start>().await? else { return Ok(()) };
    let (hands, stop) = Hands::start(start, lines)?;
    match hands.start.role {
        Role::DelayProducer => delay::produce(&hands).await,
        Role::DelayConsumer => delay::consume(&hands, stop).await,
        Role::DelayTaker => delay::take(&hands, stop).await,
        Role::Writer => outbox::write(&hands).await,
        Role::Relay => outbox::relay(&hands, stop).await,
        Role::OutboxConsumer => outbox::consume(&hands, stop).await,
        Role::ChainProducer => ordering::produce(&hands).await,
        Role::ChainConsumer => ordering::consume(&hands, stop).await,
    }
}

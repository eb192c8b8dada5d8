//! One state of the world: the record, the workers' runs, what is on the wire, and what the invariants remember.
use idempotent_core::ReleaseKind;

use crate::invariant::Step;
use crate::record::{Kept, NOW};

/// Deliveries a state has room for.
pub const RUNS: usize = 4;
/// Requests under way that a state has room for.
pub const WIRE: usize = 8;

/// One state of the world.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    /// What the store keeps under the one key.
    pub record: Option<Kept>,
    /// One for each delivery, in the order in which workers take them.
    pub runs: [Run; RUNS],
    /// What was sent by a worker that crashed or gave up waiting, and may be applied at any later time, or never.
    pub wire: Wire,
    /// What the adversary may still do.
    pub left: Budget,
    /// What the invariants remember.
    pub ghost: Ghost,
    /// What the last step did.
    pub step: Step,
}

/// What one delivery came to so far.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Run {
    /// Where it stands.
    pub phase: Phase,
    /// By what sort of worker, or of which payload, if the variant has several.
    pub sort: u8,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Not taken by any worker yet.
    #[default]
    Waiting,
    /// Its claim was not answered.
    Claiming,
    /// Its handler runs.
    Granted(Holding),
    /// Its handler is done.
    Effected {
        /// Under this grant.
        held: Holding,
        /// A completion was not answered.
        unsure: bool,
    },
    /// Its handler failed.
    Releasing {
        /// Under this grant.
        held: Holding,
        /// What is to become of the key.
        end: End,
        /// A release was not answered.
        unsure: bool,
    },
    /// Settled one way or the other, or its worker crashed.
    Over,
}

/// A grant, as the worker knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Holding {
    /// Its fencing number.
    pub number: u8,
    /// The last run the limit allows.
    pub last: bool,
    /// Whether it took over.
    pub taken_over: bool,
    /// Not known to the worker: its lease has not ended, and it was not settled.
    pub live: bool,
}

/// [`ReleaseKind`], with a hash.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum End {
    /// [`ReleaseKind::Delete`].
    Delete,
    /// [`ReleaseKind::Vacate`].
    Vacate,
    /// [`ReleaseKind::Refund`].
    Refund,
    /// [`ReleaseKind::MarkFailed`].
    Fail,
    /// [`ReleaseKind::MarkDead`].
    Bury,
}

impl From<End> for ReleaseKind {
    fn from(end: End) -> Self {
        match end {
            End::Delete => Self::Delete,
            End::Vacate => Self::Vacate,
            End::Refund => Self::Refund,
            End::Fail => Self::MarkFailed,
            End::Bury => Self::MarkDead,
        }
    }
}

/// A request to the store, with what its guard needs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Message {
    /// Whose.
    pub run: u8,
    /// By what sort of worker, or of which payload.
    pub sort: u8,
    /// The grant's number; 0 where it is not known.
    pub number: u8,
    /// What it asks for.
    pub request: Request,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Request {
    /// The key.
    Claim,
    /// Consuming to consumed; with the effect in the same transaction, where the variant has that.
    Complete,
    /// An end without success.
    Release(End),
    /// A longer lease.
    Renew,
}

/// Requests under way, sorted: their order means nothing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Wire([Option<Message>; WIRE]);

impl Wire {
    /// One more.
    ///
    /// # Panics
    /// If there is no room.
    pub fn push(&mut self, message: Message) {
        let free = self.0.iter_mut().find(|slot| slot.is_none()).expect("the wire is as long as the budgets allow");
        *free = Some(message);
        self.sort();
    }

    /// One less.
    pub fn remove(&mut self, message: Message) {
        if let Some(slot) = self.0.iter_mut().find(|slot| **slot == Some(message)) {
            *slot = None;
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.0.sort_unstable_by_key(|slot| (slot.is_none(), *slot));
    }

    /// How many like this.
    #[must_use]
    pub fn count(&self, message: Message) -> usize {
        self.0.iter().flatten().filter(|other| **other == message).count()
    }

    /// Each that is different.
    pub fn each(&self) -> impl Iterator<Item = Message> + '_ {
        self.0
            .iter()
            .enumerate()
            .filter(|(at, slot)| *at == 0 || **slot != self.0[at - 1])
            .filter_map(|(_, slot)| *slot)
    }
}

/// What the adversary may still do, each so many times.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    /// Crashes of a worker.
    pub crashes: u8,
    /// Leases that end while somebody holds them: pauses of a worker.
    pub expiries: u8,
    /// Handlers that fail.
    pub failures: u8,
    /// Requests that are not answered.
    pub timeouts: u8,
    /// Records the store loses.
    pub losses: u8,
    /// Records whose retention, or memory, ends.
    pub ends: u8,
    /// Keys an operator makes claimable again.
    pub forgets: u8,
}

/// What the invariants remember.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ghost {
    /// Whose the last grant was: 1 for the first delivery.
    pub owner: u8,
    /// Its number.
    pub number: u8,
    /// The highest number granted so far.
    pub highest: u8,
    /// The highest number under which there was an effect: what a fenced resource keeps.
    pub resource: u8,
    /// By whom the first result was stored, 0 if nobody did.
    pub first: u8,
    /// There was an effect.
    pub effected: bool,
    /// Grants that have a cause and were not given.
    pub due: i8,
    /// Grants that had no effect.
    pub idle: i8,
    /// Grants counted against the limit.
    pub spent: i8,
    /// Whose lease ran out last, if nobody has run to an end since; else 0.
    pub ran_out: u8,
}

impl Run {
    /// A worker has taken it and is not done with it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Waiting | Phase::Over)
    }

    /// Its grant, if it knows of one.
    #[must_use]
    pub fn held(&self) -> Option<Holding> {
        let mut copy = *self;
        copy.held_mut().copied()
    }

    /// Its grant, if it knows of one.
    pub fn held_mut(&mut self) -> Option<&mut Holding> {
        match &mut self.phase {
            Phase::Granted(held) | Phase::Effected { held, .. } | Phase::Releasing { held, .. } => Some(held),
            Phase::Waiting | Phase::Claiming | Phase::Over => None,
        }
    }
}

impl State {
    /// Every fencing number anywhere, for renumbering.
    fn numbers(&mut self) -> impl Iterator<Item = &mut u8> {
        let Self { record, runs, wire, ghost, .. } = self;
        let record = record.iter_mut().map(|kept| &mut kept.number);
        let runs = runs.iter_mut().filter_map(|run| run.held_mut().map(|held| &mut held.number));
        let wire = wire.0.iter_mut().flatten().map(|message| &mut message.number);
        let ghost = [&mut ghost.number, &mut ghost.highest, &mut ghost.resource];
        record.chain(runs).chain(wire).chain(ghost).filter(|number| **number > 0)
    }

    /// Whether any number is not below the clock.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.clone().numbers().any(|number| *number >= NOW)
    }

    /// The clock moves by so much, and back if it is less than nothing; then numbers below it move up against it.
    ///
    /// The protocol compares numbers with each other, and asks whether one is below the clock; from the clock on it
    /// counts them up. So below the clock only their order matters, from there on how far ahead they are.
    ///
    /// # Panics
    /// If numbers run further ahead than the model has room for.
    pub fn tick(&mut self, by: i8) {
        let mut past = 0_u128;
        for number in self.numbers() {
            *number = number.checked_add_signed(-by).filter(|n| *n < 128).expect("numbers stay near the clock");
            past |= u128::from(*number < NOW) << *number;
        }
        for number in self.numbers().filter(|number| **number < NOW) {
            let rank = (past >> *number).count_ones();
            *number = NOW - u8::try_from(rank).expect("there are few numbers");
        }
    }
}

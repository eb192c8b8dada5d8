//! A state of the model: the record, the workers' runs, the requests in transit, and the memory of the invariants.
use idempotent_core::ReleaseKind;

use crate::invariant::Step;
use crate::record::{Kept, NOW};

/// The maximum number of deliveries in a state.
pub const RUNS: usize = 4;
/// The maximum number of requests in transit in a state.
pub const WIRE: usize = 8;

/// A state of the model.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    /// The store's record of the single key.
    pub record: Option<Kept>,
    /// One run for each delivery, in the order in which workers take them.
    pub runs: [Run; RUNS],
    /// Requests of workers that crashed or gave up waiting, which may be applied at any later time, or never.
    pub wire: Wire,
    /// The remaining actions of the adversary.
    pub left: Budget,
    /// The memory of the invariants.
    pub ghost: Ghost,
    /// The results of the last step.
    pub step: Step,
}

/// The progress of one delivery.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Run {
    /// The phase of the run.
    pub phase: Phase,
    /// The sort of worker, or the payload, if the variant has several.
    pub sort: u8,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phase {
    /// No worker has taken the delivery.
    #[default]
    Waiting,
    /// Its claim was not answered.
    Claiming,
    /// The handler is running, or waits for its turn.
    Granted(Holding),
    /// The handler has ended successfully.
    Effected {
        /// The grant.
        held: Holding,
        /// A completion was not answered.
        unsure: bool,
    },
    /// The handler has failed.
    Releasing {
        /// The grant.
        held: Holding,
        /// The final state of the key.
        end: End,
        /// A release was not answered.
        unsure: bool,
    },
    /// Settled, or its worker crashed.
    Over,
}

/// A grant as the worker knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Holding {
    /// The fencing token.
    pub number: u8,
    /// True if this is the last run that the limit allows.
    pub last: bool,
    /// True if it took over.
    pub taken_over: bool,
    /// True if the lease has not expired and the grant was not settled, which the worker does not know.
    pub live: bool,
}

/// [`ReleaseKind`] with a hash.
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

/// A request to the store, with the values for its guard.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Message {
    /// The run that sent it.
    pub run: u8,
    /// The sort of worker, or the payload.
    pub sort: u8,
    /// The fencing token of the grant; 0 if it is unknown.
    pub number: u8,
    /// The requested operation.
    pub request: Request,
}

/// An operation of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Request {
    /// Claims the key.
    Claim,
    /// Completes the key, together with the effect in the same transaction if the variant has one.
    Complete,
    /// Releases the key without success.
    Release(End),
    /// Extends the lease.
    Renew,
}

/// Requests in transit, sorted, because their order is irrelevant.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Wire([Option<Message>; WIRE]);

impl Wire {
    /// Adds a request.
    ///
    /// # Panics
    /// If there is no space.
    pub fn push(&mut self, message: Message) {
        let free = self.0.iter_mut().find(|slot| slot.is_none()).expect("the wire is as long as the budgets allow");
        *free = Some(message);
        self.sort();
    }

    /// Removes a request.
    pub fn remove(&mut self, message: Message) {
        if let Some(slot) = self.0.iter_mut().find(|slot| **slot == Some(message)) {
            *slot = None;
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.0.sort_unstable_by_key(|slot| (slot.is_none(), *slot));
    }

    /// Returns the number of equal requests.
    #[must_use]
    pub fn count(&self, message: Message) -> usize {
        self.0.iter().flatten().filter(|other| **other == message).count()
    }

    /// Returns each different request.
    pub fn each(&self) -> impl Iterator<Item = Message> + '_ {
        self.0
            .iter()
            .enumerate()
            .filter(|(at, slot)| *at == 0 || **slot != self.0[at - 1])
            .filter_map(|(_, slot)| *slot)
    }
}

/// The remaining number of each of the adversary's actions.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    /// Crashes of a worker.
    pub crashes: u8,
    /// Leases that expire while they are held, by a pause of a worker.
    pub expiries: u8,
    /// Handlers that fail.
    pub failures: u8,
    /// Requests without an answer.
    pub timeouts: u8,
    /// Records the store loses.
    pub losses: u8,
    /// Records whose retention ends.
    pub ends: u8,
    /// Keys that an operator makes claimable again.
    pub forgets: u8,
    /// Transactions that a statement of the handler ends.
    pub ended_transactions: u8,
}

/// The memory of the invariants.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ghost {
    /// The owner of the last grant: 1 for the first delivery.
    pub owner: u8,
    /// The fencing token of the last grant.
    pub number: u8,
    /// The highest fencing token so far.
    pub highest: u8,
    /// The highest fencing token of an effect, as a fenced resource stores it.
    pub resource: u8,
    /// The owner that stored the first result, or 0.
    pub first: u8,
    /// True if there was an effect.
    pub effected: bool,
    /// The number of grants that have a cause but were not made.
    pub due: i8,
    /// The number of grants without an effect.
    pub idle: i8,
    /// The number of grants that count towards the limit.
    pub spent: i8,
    /// The owner whose lease expired last, if no run has ended since; otherwise 0.
    pub ran_out: u8,
}

impl Run {
    /// Returns whether a worker has taken the delivery and has not finished it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Waiting | Phase::Over)
    }

    /// Returns the grant, if the run knows one.
    #[must_use]
    pub fn held(&self) -> Option<Holding> {
        let mut copy = *self;
        copy.held_mut().copied()
    }

    /// Returns the grant, if the run knows one.
    pub fn held_mut(&mut self) -> Option<&mut Holding> {
        match &mut self.phase {
            Phase::Granted(held) | Phase::Effected { held, .. } | Phase::Releasing { held, .. } => Some(held),
            Phase::Waiting | Phase::Claiming | Phase::Over => None,
        }
    }
}

impl State {
    /// Returns every fencing token in the state, for renumbering.
    fn numbers(&mut self) -> impl Iterator<Item = &mut u8> {
        let Self { record, runs, wire, ghost, .. } = self;
        let record = record.iter_mut().map(|kept| &mut kept.number);
        let runs = runs.iter_mut().filter_map(|run| run.held_mut().map(|held| &mut held.number));
        let wire = wire.0.iter_mut().flatten().map(|message| &mut message.number);
        let ghost = [&mut ghost.number, &mut ghost.highest, &mut ghost.resource];
        record.chain(runs).chain(wire).chain(ghost).filter(|number| **number > 0)
    }

    /// Returns whether any fencing token is not below the clock.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.clone().numbers().any(|number| *number >= NOW)
    }

    /// Moves the clock by this number of steps (negative: back), and then moves fencing tokens below it up to it.
    ///
    /// The protocol compares fencing tokens with each other and with the clock, and increments them from the clock on.
    /// Below the clock, only their order matters. From the clock on, their distance matters.
    ///
    /// # Panics
    /// If fencing tokens are further ahead than the model can represent.
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

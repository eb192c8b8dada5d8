//! What tests of idempotent handlers and stores are made of: time that stands still, a store that fails on
//! demand, randomness that repeats, and the laws every store has to keep.
//!
//! | I want to … | look at |
//! |---|---|
//! | know that a handler of mine runs once for duplicates | [`run_twice`], [`run_at_once`] |
//! | know that its effect survives a crash at any await | [`crash_everywhere`]; cancelled at one, [`crash_at`] |
//! | test what it does when it is turned away, and see every outcome | [`MockExecutor`] |
//! | test leases, heartbeats and waits without waiting | [`VirtualClock`] |
//! | lose replies, hang, refuse, kill a worker | [`FaultStore`] |
//! | repeat a run bit by bit | [`SeededEntropy`] |
//! | know that a store of mine is right | [`conformance!`]; what its builder may offer: [`Subject`] |
//! | know that a handler that blocks its runtime keeps its lease | [`blocked_handler_keeps_its_key`] |
//! | know which laws there are | [`conformance::laws`] |
//! | damage a record, lose a reply | [`DamageInjector`], [`LossInjector`] |
//! | know that a backend in two methods is right | [`cas_conformance!`], then [`conformance!`] |
//! | know that an adapter of a broker is right | `broker_conformance!`; feature `broker` |
//! | play thousands of worlds with crashes, lost replies and pauses | [`sim`] |
//! | have a private server | `servers`, and `proxy` to fail between it and a client; feature `servers` |
//! | judge what real processes did to a store | [`history`], written by [`history::Recording`] |
//! | know that a check of mine notices a store that is wrong | [`mutants`] |
mod blocked;
#[cfg(feature = "broker")]
pub mod broker;
mod clock;
pub mod conformance;
mod crash;
mod deliver;
mod entropy;
mod fault;
pub mod history;
mod mock;
pub mod mutants;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod servers;
pub mod sim;

pub use self::blocked::blocked_handler_keeps_its_key;
pub use self::clock::{InFlightCalls, InFlightGuard, VirtualClock};
pub use self::conformance::{CasSubject, Damage, DamageInjector, LossInjector, LostPart, Subject};
pub use self::crash::{Crash, crash_at, crash_everywhere};
pub use self::deliver::{DeliveredAtOnce, DeliveredTwice, TestDelivery, run_at_once, run_twice};
pub use self::entropy::SeededEntropy;
pub use self::fault::{FOREVER, FaultRates, FaultStore, StoreAnswer, StoreCall, StoreOperation};
pub use self::mock::{EndedDelivery, MockExecutor};

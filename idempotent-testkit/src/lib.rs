//! Test tools for idempotent handlers and stores: a virtual clock, a store with scripted faults, reproducible
//! randomness, and the laws that every store must keep.
//!
//! | I want to … | look at |
//! |---|---|
//! | verify that my handler runs once for duplicates | [`run_twice`], [`run_at_once`] |
//! | verify that its effect survives a crash at any await | [`crash_everywhere`]; to cancel it at one await, [`crash_at`] |
//! | test the handling of rejections, and of every outcome | [`MockExecutor`] |
//! | test leases, heartbeats and waits without real waiting | [`VirtualClock`] |
//! | lose replies, hang, refuse calls, kill a worker | [`FaultStore`] |
//! | repeat a run exactly | [`SeededEntropy`] |
//! | verify my store | [`conformance!`]; for the options of the subject: [`Subject`] |
//! | verify that a handler that blocks its runtime keeps its lease | [`blocked_handler_keeps_its_key`] |
//! | see the list of laws | [`conformance::laws`] |
//! | damage a record, lose a reply | [`DamageInjector`], [`LossInjector`] |
//! | verify my backend with two methods | [`cas_conformance!`], then [`conformance!`] |
//! | verify a backend whose clients use their own clocks | [`skew_conformance!`] too |
//! | verify my broker adapter | `broker_conformance!`; feature `broker` |
//! | check the calls of real processes to a store | [`history`], recorded by [`history::Recording`] |
#![cfg_attr(docsrs, feature(doc_cfg))]
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

pub use self::blocked::blocked_handler_keeps_its_key;
pub use self::clock::{InFlightCalls, InFlightGuard, VirtualClock};
pub use self::conformance::{CasSubject, Damage, DamageInjector, LossInjector, LostPart, SkewedStores, Subject};
pub use self::crash::{Crash, crash_at, crash_everywhere};
pub use self::deliver::{DeliveredAtOnce, DeliveredTwice, TestDelivery, run_at_once, run_twice};
pub use self::entropy::SeededEntropy;
pub use self::fault::{FOREVER, FaultRates, FaultStore, StoreAnswer, StoreCall, StoreOperation};
pub use self::mock::{EndedDelivery, MockExecutor};

/// Items for the simulator of this project. They may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::__store_that_carries as store_that_carries;
    pub use crate::history::store_calls::{
        Answer, Answers, Ask, Carries, all, all_ambiguous, all_claims, all_settled, ask, one, one_claim,
    };
}

//! The laws that every store must keep. [`conformance!`](crate::conformance!) creates one named test for each law.
mod answers;
mod cas;
mod clock;
mod damage;
pub mod laws;
pub(crate) mod limit;
mod list;
mod lose;
mod model;
mod need;
mod operations;
mod pace;
mod patient;
mod skew;
mod subject;
mod together;

use std::future::{Future, IntoFuture};
use std::pin::Pin;

pub use self::cas::{BuiltCas, CasLaw, CasSource, CasSubject, hold_cas, hold_cas_listed};
pub use self::damage::{Damage, DamageInjector};
pub use self::list::Law;
pub use self::lose::{LossInjector, LostPart};
pub use self::need::Need;
pub use self::skew::{BuiltSkewed, SkewLaw, SkewedStores, hold_skew_listed};
pub use self::subject::Subject;

/// The threads a law needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Threads {
    /// One thread: all ready tasks run before time moves.
    One,
    /// Several threads, for races.
    Many,
}

/// Checks one law with a new subject, on a separate runtime. [`conformance!`](crate::conformance!) does this for all
/// laws.
///
/// `build` is called inside the runtime, and returns a [`Subject`] or a future of one.
///
/// A law in real time on one thread is inconclusive if it fails and its own steps took more than half of a lease: the
/// machine was too busy. Such a law is repeated with another subject and a longer lease, at most twice.
///
/// # Panics
/// If the law is broken, or has not ended after 300 s of real time because the store does not answer. The limit is a
/// last resort and not a measure of speed. `IDEMPOTENT_KIT_LIMIT` sets another limit, in seconds.
pub fn hold<B, L>(threads: Threads, build: impl Fn() -> B, law: L)
where
    B: IntoFuture<Output = Subject>,
    L: AsyncFn(&Subject),
{
    hold_named(limit::name_of::<L>(), threads, build, law);
}

/// Names the law, and erases the types of subject and law, so that the surrounding runtime is compiled once and not for
/// each test.
#[allow(clippy::print_stderr, reason = "this is the body of a test")]
fn hold_named<B>(name: &str, threads: Threads, build: impl Fn() -> B, law: impl AsyncFn(&Subject))
where
    B: IntoFuture<Output = Subject>,
{
    limit::run(
        name,
        threads,
        Box::pin(async {
            for lease in pace::LEASES {
                let mut subject = build().await;
                subject.begin(lease);
                let Err(broken) = clock::caught(Box::pin(law(&subject))).await else { return };
                let again = threads == Threads::One && subject.was_too_slow() && lease < pace::LEASES[2];
                if !again {
                    clock::blame(broken, async || clock::of_store(&subject).await).await;
                }
                eprintln!("the law `{name}` was held again: its steps took longer than a lease of {lease:?} allows");
            }
        }),
    );
}

/// The future of a subject.
#[doc(hidden)]
pub type Built = Pin<Box<dyn Future<Output = Subject>>>;

/// Checks one law of [`laws`](list::all) for a test of `conformance!`. A law whose needs the subject does not offer is
/// skipped: one test, [`left_out`], fails for all of them.
#[doc(hidden)]
pub fn hold_listed(group: &str, law: &str, build: fn() -> Built) {
    listed(group, law).hold_if_offered(build);
}

/// Checks a law with a need in `without:`, in case the subject offers it.
#[doc(hidden)]
pub fn hold_left_out(group: &str, law: &str, build: fn() -> Built) {
    listed(group, law).hold(build);
}

#[allow(clippy::panic, reason = "this is the body of a test")]
fn listed(group: &str, law: &str) -> &'static list::Law {
    let listed = list::all().find(|listed| listed.group() == group && listed.name() == law);
    listed.unwrap_or_else(|| panic!("no law `{law}` in `{group}`"))
}

/// Fails with the line to paste if the subject lacks a need that is not in `without:`.
#[doc(hidden)]
#[allow(clippy::panic, reason = "this is the body of a test")]
pub fn left_out<B>(build: impl FnOnce() -> B, without: &[Need])
where
    B: IntoFuture<Output = Subject>,
{
    let law = async {
        let missing = build().await.missing();
        let new: Vec<_> = missing.iter().filter(|need| !without.contains(need)).collect();
        if new.is_empty() {
            return;
        }
        let remedies: String = new.iter().map(|need| format!("\n  {need}: {}", need.remedy())).collect();
        let names = missing.iter().map(|need| need.name()).collect::<Vec<_>>().join(", ");
        panic!(
            "some laws need more than this subject offers, and were not held:{remedies}\nOffer these, or leave them out \
             by name:\n  conformance!(name, builder, without: [{names}])"
        )
    };
    limit::run("a_missing_capability_excludes_its_laws", Threads::One, Box::pin(law));
}

/// Fails if the subject offers a need in `without:`.
#[doc(hidden)]
#[allow(clippy::panic, reason = "this is the body of a test")]
pub fn not_on_offer<B>(build: impl FnOnce() -> B, without: &[Need])
where
    B: IntoFuture<Output = Subject>,
{
    let law = async {
        let missing = build().await.missing();
        let there: Vec<_> = without.iter().filter(|need| !missing.contains(need)).map(|need| need.name()).collect();
        assert!(there.is_empty(), "left out by `without`, and yet on offer; take it out there: {}", there.join(", "));
    };
    limit::run("an_excluded_capability_is_not_offered", Threads::One, Box::pin(law));
}

/// Creates a module of named tests for a store, one for each law.
///
/// The expression is evaluated for each test, and again for each repetition of a law in real time, inside a tokio
/// runtime. It returns a [`Subject`] or a future of one: the store with its clean-up and optional features. With a
/// [`VirtualClock`](crate::VirtualClock) that the store reads, laws about time are exact and take no time. Without one,
/// they wait in real time, and times are compared with a tolerance. tokio's macros are not needed.
///
/// # Laws that are left out
/// Some laws need more than the six methods: a capability of the store, or a feature of the subject's builder. The macro does
/// not hold laws whose needs are missing. One test, `a_missing_capability_excludes_its_laws`, then fails for all of these laws, and
/// prints the remedies and the `without:` line to paste. The test run lists omitted laws as `ignored, not shown:
/// without …`. A test also fails if `without:` names a need that the subject offers.
///
/// | name in `without` | offered by | laws about |
/// |---|---|---|
/// | `clock` | [`Subject::on_clock`] | ends that are exact to the ms |
/// | `second` | [`Subject::second`] | the view of one connection on the writes of another; races over both |
/// | `clients` | [`Subject::clients`] | clients whose clocks are wrong by 5 minutes, which must not matter |
/// | `losing` | [`Subject::losing`] | the errors for a lost request or reply |
/// | `planting` | [`Subject::planting`] | damaged and newer records, which are rejected and left unchanged |
/// | `foreign` | `planting`, if the storage can hold values that are not records | foreign values, which are also rejected |
/// | `batch`, `watch`, `search`, `purge`, `admin`, `journal`, `order` | [`StoreCapabilities`](idempotent_core::StoreCapabilities) of the store | these capabilities |
///
/// An unknown name does not compile:
///
/// ```compile_fail
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{Subject, conformance};
/// conformance!(memory_keeps_the_laws, Subject::new(MemoryStore::new()), without: [batches]);
/// ```
///
/// These laws see the store from outside. A store on a [`CasBackend`](idempotent_core::CasBackend) also needs
/// [`cas_conformance!`](crate::cas_conformance!).
///
/// ```
/// use std::sync::Arc;
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{FaultStore, Subject, VirtualClock, conformance};
///
/// fn memory() -> Subject {
///     let clock = VirtualClock::new();
///     let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
///     let faults = FaultStore::new(store.clone(), &clock);
///     Subject::new(faults.clone()).on_clock(clock).second(store).losing(faults)
/// }
///
/// conformance!(memory_keeps_the_laws, memory(), without: [clients, planting, foreign]);
/// // or, if the builder waits, and the store has all capabilities:
/// // conformance!(server_keeps_the_laws, async { subject_on(connect().await) });
/// # idempotent_testkit::conformance::not_on_offer(memory, &{
/// #     use idempotent_testkit::conformance::Need::*;
/// #     [Clients, Planting, Foreign, Batch]
/// # });
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $builder:expr $(,)?) => {
        $crate::conformance! { $name, $builder, without: [] }
    };
    ($name:ident, $builder:expr, without: [$($without:ident),* $(,)?] $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[cfg(test)]
            fn __build() -> $crate::conformance::Built {
                ::std::boxed::Box::pin(async { ::std::future::IntoFuture::into_future($builder).await })
            }
            $crate::__laws! { __law_tests [__build] [$($without)*] }
            $crate::__left_out! { [__build] $($without)* }
        }
    };
}

/// Creates a test for each law.
#[doc(hidden)]
#[macro_export]
macro_rules! __law_tests {
    ($builder:tt $without:tt $($threads:ident $group:ident $needs:tt: $($law:ident)+;)+) => {
        $($crate::__law_tests! { @group $builder $without $threads $group $needs $($law)+ })+
    };
    (@group $builder:tt $without:tt $threads:ident $group:ident $needs:tt $($law:ident)+) => {
        $($crate::__law_test! { $needs $without $builder $threads $group $law })+
    };
}

//! The laws every store has to keep, as named tests made by one line.
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
mod subject;
mod together;

use std::future::{Future, IntoFuture};
use std::pin::Pin;

pub use self::cas::{BuiltCas, CasLaw, CasSource, CasSubject, hold_cas, hold_cas_listed};
pub use self::damage::{Damage, DamageInjector};
pub use self::list::Law;
pub use self::lose::{LossInjector, LostPart};
pub use self::need::Need;
pub use self::subject::Subject;

/// The threads a law needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Threads {
    /// One: everything that is ready runs before time moves.
    One,
    /// Several: for races.
    Many,
}

/// Holds one law against a freshly built subject, on a runtime of its own. [`conformance!`](crate::conformance!)
/// does this for all of them.
///
/// `build` is called inside the runtime. What it gives may be a [`Subject`] or a future of one.
///
/// A law in real time, on one thread, that is broken while its own steps took more than half of a lease has shown nothing: the
/// machine was too busy. It is held against another subject, with longer leases, twice at most.
///
/// # Panics
/// If the law is broken, or has not ended after 300 s of real time: the store keeps it waiting for ever. The limit is a
/// last resort and no measure of speed; `IDEMPOTENT_KIT_LIMIT` sets another one, in seconds.
pub fn hold<B, L>(threads: Threads, build: impl Fn() -> B, law: L)
where
    B: IntoFuture<Output = Subject>,
    L: AsyncFn(&Subject),
{
    hold_named(limit::name_of::<L>(), threads, build, law);
}

/// Names the law and erases the types of subject and law: the runtime around them is compiled once, and not once for
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

/// A subject that is being built.
#[doc(hidden)]
pub type Built = Pin<Box<dyn Future<Output = Subject>>>;

/// Holds one law of [`laws`](list::all) for a test that `conformance!` made. A law whose needs the subject does not offer is not
/// held: one test, [`left_out`], fails for all of them.
#[doc(hidden)]
pub fn hold_listed(group: &str, law: &str, build: fn() -> Built) {
    listed(group, law).hold_if_offered(build);
}

/// Holds a law of which `without:` leaves out a need, which the subject may offer all the same.
#[doc(hidden)]
pub fn hold_left_out(group: &str, law: &str, build: fn() -> Built) {
    listed(group, law).hold(build);
}

#[allow(clippy::panic, reason = "this is the body of a test")]
fn listed(group: &str, law: &str) -> &'static list::Law {
    let listed = list::all().find(|listed| listed.group() == group && listed.name() == law);
    listed.unwrap_or_else(|| panic!("no law `{law}` in `{group}`"))
}

/// Fails with the line to paste, if the subject lacks something that is not in `without:`.
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
    limit::run("what_is_missing_is_left_out", Threads::One, Box::pin(law));
}

/// Behind `without:`.
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
    limit::run("what_is_left_out_is_not_on_offer", Threads::One, Box::pin(law));
}

/// One line makes a module of named tests, one for each law, over a store of yours.
///
/// The expression is evaluated for each test, and again for each further try of a law in real time, inside a tokio runtime, and gives a [`Subject`] or a future of
/// one: the store, and what guards it, cleans it up, and lets more be shown. With a
/// [`VirtualClock`](crate::VirtualClock) that the store reads, laws about time are exact and take no time; without
/// one they wait for real, and times are compared with some slack. tokio's macros are not needed.
///
/// # What is not shown says so
/// Some laws need more than the six methods: a capability of the store, or a feature of the subject's builder. The macro does
/// not hold laws whose needs are missing. One test, `what_is_missing_is_left_out`, then fails for all of these laws, and
/// prints the remedies and the `without:` line to paste. The test run lists omitted laws as `ignored, not shown:
/// without …`. A test also fails if `without:` names a need that the subject offers.
///
/// | name in `without` | offered by | shows |
/// |---|---|---|
/// | `clock` | [`Subject::on_clock`] | ends to the ms |
/// | `second` | [`Subject::second`] | what one connection wrote, the other sees; races over both |
/// | `clients` | [`Subject::clients`] | clocks of clients that are 5 minutes wrong change nothing |
/// | `losing` | [`Subject::losing`] | what the store calls a lost request or reply |
/// | `planting` | [`Subject::planting`] | damaged, foreign and newer records are refused and left alone |
/// | `foreign` | the same, where the storage can hold what is not a record | somebody else's value is refused too |
/// | `batch`, `watch`, `browse`, `purge`, `admin`, `journal`, `order` | [`StoreCapabilities`](idempotent_core::StoreCapabilities) of the store | that they work |
///
/// A name that is none does not compile:
///
/// ```compile_fail
/// use idempotent_core::MemoryStore;
/// use idempotent_testkit::{Subject, conformance};
/// conformance!(memory_keeps_the_laws, Subject::new(MemoryStore::new()), without: [batches]);
/// ```
///
/// These laws see the store from outside. One made of a [`CasBackend`](idempotent_core::CasBackend) needs
/// [`cas_conformance!`](crate::cas_conformance!) beside them.
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
/// conformance!(memory_keeps_the_laws, memory(), without: [clients, planting, foreign, batch, browse]);
/// // or, where the builder waits for something, and the store can do all there is:
/// // conformance!(server_keeps_the_laws, async { subject_on(connect().await) });
/// # idempotent_testkit::conformance::not_on_offer(memory, &{
/// #     use idempotent_testkit::conformance::Need::*;
/// #     [Clients, Planting, Foreign, Batch, Browse]
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

/// A test for each law.
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

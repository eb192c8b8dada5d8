//! The laws of a [`CasBackend`](idempotent_core::CasBackend). [`cas_conformance!`](crate::cas_conformance!) creates one
//! named test for each law.
mod list;
mod subject;

use std::future::Future;
use std::pin::Pin;

pub use self::list::{CasLaw, all};
pub use self::subject::{CasSource, CasSubject};
pub(crate) use self::subject::{Hand, held};
use super::{Threads, clock, limit};

/// Checks one law with a new backend, on a separate runtime. [`cas_conformance!`](crate::cas_conformance!) does this
/// for all laws.
///
/// `build` is called inside the runtime, and returns a [`CasSource`].
///
/// # Panics
/// If the law is broken, or does not end within the limit of [`hold`](super::hold).
pub fn hold_cas<B, Form: ?Sized, L>(threads: Threads, build: impl FnOnce() -> B, law: L)
where
    B: CasSource<Form>,
    L: AsyncFnOnce(&CasSubject),
{
    hold_cas_named(limit::name_of::<L>(), threads, build, law);
}

fn hold_cas_named<B, Form: ?Sized>(
    name: &str,
    threads: Threads,
    build: impl FnOnce() -> B,
    law: impl AsyncFnOnce(&CasSubject),
) where
    B: CasSource<Form>,
{
    let law = async {
        let subject = build().subject().await;
        if let Err(broken) = clock::caught(Box::pin(law(&subject))).await {
            clock::blame(broken, async || clock::of_backend(&subject).await).await;
        }
    };
    limit::run(name, threads, Box::pin(law));
}

/// The future of a subject.
#[doc(hidden)]
pub type BuiltCas = Pin<Box<dyn Future<Output = CasSubject>>>;

/// Checks one law of [`all`] for a test of `cas_conformance!`.
#[doc(hidden)]
#[allow(clippy::panic, reason = "this is the body of a test")]
pub fn hold_cas_listed(law: &str, build: fn() -> BuiltCas) {
    let listed = all().find(|listed| listed.name() == law).unwrap_or_else(|| panic!("no law `{law}`"));
    listed.hold(build);
}

/// Creates a module of named tests for a backend, one for each guarantee of
/// [`CasBackend`](idempotent_core::CasBackend).
///
/// [`conformance!`](crate::conformance!) does not replace these tests: it compares the *store* that
/// [`Cas`](idempotent_core::Cas) builds on the backend with the protocol, and does not see versions. A backend that
/// reuses versions after a deletion may pass there, because it fails only if a writer is delayed past the deletion.
/// Such a writer overwrites a record that it has never seen: two owners hold the key, and fencing tokens fall. Verify a
/// backend with both macros.
///
/// The expression is evaluated for each test, inside a tokio runtime. It returns a [`CasSubject`](crate::CasSubject), a
/// backend, or a future of one of them. Each one starts empty. With a [`VirtualClock`](crate::VirtualClock) that the
/// backend reads, laws about time take no time; without one, they wait for a second. Calls that fail with
/// [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied) are retried. Any other error breaks the law.
///
/// ```
/// # use std::collections::HashMap;
/// # use std::sync::{Arc, Mutex};
/// # use async_trait::async_trait;
/// # use idempotent_core::{Cas, CasBackend, Clock, Key, Record, VersionedRecord, StoreError, Version};
/// use idempotent_testkit::{CasSubject, Subject, VirtualClock, cas_conformance, conformance};
/// # #[derive(Debug)]
/// # struct Shelf(Mutex<(HashMap<Key, (Version, Record)>, Version)>, Arc<dyn Clock>);
/// # impl Shelf {
/// #     fn new(clock: Arc<dyn Clock>) -> Self { Self(Mutex::default(), clock) }
/// # }
/// # #[async_trait]
/// # impl CasBackend for Shelf {
/// #     async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
/// #         let row = self.0.lock().unwrap().0.get(key).cloned();
/// #         let version = row.as_ref().map_or(0, |row| row.0);
/// #         Ok(VersionedRecord { record: row.map(|row| row.1), version, now: self.1.wall() })
/// #     }
/// #     async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
/// #         let (rows, last) = &mut *self.0.lock().unwrap();
/// #         if rows.get(key).map_or(0, |row| row.0) != seen { return Ok(false) }
/// #         *last += 1;
/// #         match next {
/// #             Some(record) => drop(rows.insert(key.clone(), (*last, record.clone()))),
/// #             None => drop(rows.remove(key)),
/// #         }
/// #         Ok(true)
/// #     }
/// # }
///
/// fn backend() -> CasSubject {
///     let clock = VirtualClock::new();
///     CasSubject::new(Shelf::new(Arc::new(clock.clone()))).on_clock(clock)
/// }
///
/// fn store() -> Subject {
///     let clock = VirtualClock::new();
///     Subject::new(Cas(Shelf::new(Arc::new(clock.clone())))).on_clock(clock)
/// }
///
/// cas_conformance!(the_shelf_swaps_as_it_should, backend());
/// conformance!(
///     the_shelf_keeps_the_laws,
///     store(),
///     without: [second, clients, losing, planting, foreign, batch, watch, search, purge, journal, order]
/// );
/// // or: cas_conformance!(the_table_swaps_as_it_should, async { Table::connect().await });
/// # idempotent_testkit::conformance::hold_cas(
/// #     idempotent_testkit::conformance::Threads::One,
/// #     backend,
/// #     idempotent_testkit::conformance::laws::cas::versions::a_version_does_not_repeat_after_a_deletion,
/// # );
/// ```
#[macro_export]
macro_rules! cas_conformance {
    ($name:ident, $builder:expr $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[cfg(test)]
            fn __build() -> $crate::conformance::BuiltCas {
                ::std::boxed::Box::pin(async { $crate::conformance::CasSource::subject($builder).await })
            }
            $crate::__cas_laws! { __cas_law_tests [__build] }
        }
    };
}

/// Creates a test for each law.
#[doc(hidden)]
#[macro_export]
macro_rules! __cas_law_tests {
    ($build:tt $($threads:ident $group:ident: $($law:ident)+;)+) => {
        $($crate::__cas_law_tests! { @group $build $($law)+ })+
    };
    (@group $build:tt $($law:ident)+) => {
        $($crate::__cas_law_tests! { @law $build $law })+
    };
    (@law [$build:ident] $law:ident) => {
        #[test]
        fn $law() {
            $crate::conformance::hold_cas_listed(stringify!($law), $build);
        }
    };
}

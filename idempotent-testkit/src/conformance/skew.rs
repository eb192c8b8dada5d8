//! The laws of stores whose processes read different clocks. [`skew_conformance!`](crate::skew_conformance!) creates one
//! named test for each law.
use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::Store;

use super::{Threads, limit};
use crate::VirtualClock;

/// Two stores on the same records, whose clocks differ by the declared maximum.
///
/// The fields are dropped in this order: stores, clock, guard.
pub struct SkewedStores {
    /// The store whose clock is ahead, and the one whose clock is slow.
    pub(crate) stores: [Arc<dyn Store>; 2],
    pub(crate) clock: VirtualClock,
    pub(crate) max_skew: Duration,
    _guard: Box<dyn Any + Send>,
}

impl SkewedStores {
    /// Opens two stores on the same records, which must be empty. Each call of `open` gets the clock that its store must read.
    /// `max_skew` is the difference that both stores declare, for example by
    /// [`CasBackend::max_skew`](idempotent_core::CasBackend::max_skew).
    pub async fn open<S: Store>(max_skew: Duration, mut open: impl AsyncFnMut(VirtualClock) -> S) -> Self {
        let clock = VirtualClock::new();
        let half = i64::try_from(max_skew.as_micros() / 2).unwrap_or(i64::MAX);
        let ahead: Arc<dyn Store> = Arc::new(open(clock.skewed(half)).await);
        let behind: Arc<dyn Store> = Arc::new(open(clock.skewed(-half)).await);
        Self { stores: [ahead, behind], clock, max_skew, _guard: Box::new(()) }
    }

    /// Sets a guard that is dropped at the end of each test, after the stores: a temporary file, a server.
    #[must_use]
    pub fn guarded_by(mut self, guard: impl Any + Send) -> Self {
        self._guard = Box::new(guard);
        self
    }
}

/// Allows a builder that is not a future.
impl IntoFuture for SkewedStores {
    type Output = Self;
    type IntoFuture = Ready<Self>;

    fn into_future(self) -> Ready<Self> {
        ready(self)
    }
}

impl fmt::Debug for SkewedStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stores, max_skew, .. } = self;
        f.debug_struct("SkewedStores").field("stores", stores).field("max_skew", max_skew).finish_non_exhaustive()
    }
}

/// Lists every law of stores with different clocks.
#[doc(hidden)]
#[macro_export]
macro_rules! __skew_laws {
    ($callback:ident $($with:tt)*) => {
        $crate::$callback! { $($with)*
            no_lease_is_taken_over_early
            a_lease_may_be_taken_over_after_twice_the_difference
            a_settled_key_is_kept_for_its_retention
            an_owner_is_granted_the_lease_of_its_request
            fencing_rises_over_two_clocks
        }
    };
}

/// One law of stores with different clocks: its name, and the law itself.
#[derive(Clone, Copy)]
pub struct SkewLaw {
    name: &'static str,
    body: for<'a> fn(&'a SkewedStores) -> Body<'a>,
}

type Body<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl SkewLaw {
    /// Returns the name of the law: a statement that can be false.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the law with new stores, on a separate runtime.
    ///
    /// # Panics
    /// If the law is broken, or does not end within the limit of [`hold`](super::hold).
    pub fn hold<B: IntoFuture<Output = SkewedStores>>(&self, build: impl FnOnce() -> B) {
        let law = async {
            let stores = build().await;
            (self.body)(&stores).await;
        };
        limit::run(self.name, Threads::One, Box::pin(law));
    }
}

impl fmt::Debug for SkewLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SkewLaw").field("name", &self.name).finish_non_exhaustive()
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __skew_law_table {
    ($($law:ident)+) => {
        &[$(SkewLaw { name: stringify!($law), body: |stores| Box::pin($crate::conformance::laws::skew::$law(stores)) }),+]
    };
}

const LAWS: &[SkewLaw] = crate::__skew_laws! { __skew_law_table };

/// Returns every law of stores with different clocks, in the order of [`skew_conformance!`](crate::skew_conformance!).
pub fn all() -> impl Iterator<Item = &'static SkewLaw> {
    LAWS.iter()
}

/// The future of two stores.
#[doc(hidden)]
pub type BuiltSkewed = Pin<Box<dyn Future<Output = SkewedStores>>>;

/// Checks one law of [`all`] for a test of `skew_conformance!`.
#[doc(hidden)]
#[allow(clippy::panic, reason = "this is the body of a test")]
pub fn hold_skew_listed(law: &str, build: fn() -> BuiltSkewed) {
    let listed = all().find(|listed| listed.name() == law).unwrap_or_else(|| panic!("no law `{law}`"));
    listed.hold(build);
}

/// Creates a module of named tests for a store whose processes read different clocks, one for each guarantee of
/// [`CasBackend::max_skew`](idempotent_core::CasBackend::max_skew).
///
/// Verify the store with [`conformance!`](crate::conformance!) too, with one clock and a difference of zero. The expression is
/// evaluated for each test, inside a tokio runtime, and returns [`SkewedStores`] or a future of them.
///
/// ```
/// # use std::collections::HashMap;
/// # use std::sync::{Arc, Mutex};
/// # use std::time::Duration;
/// # use async_trait::async_trait;
/// # use idempotent_core::{Cas, CasBackend, Clock, Key, Record, StoreError, Version, VersionedRecord};
/// use idempotent_testkit::{SkewedStores, VirtualClock, skew_conformance};
///
/// # type Rows = Arc<Mutex<HashMap<Key, (Version, Record)>>>;
/// #[derive(Debug)]
/// struct Shelf { rows: Rows, clock: VirtualClock, max_skew: Duration }
///
/// #[async_trait]
/// impl CasBackend for Shelf {
///     fn max_skew(&self) -> Duration {
///         self.max_skew
///     }
/// #     async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
/// #         let row = self.rows.lock().unwrap().get(key).cloned();
/// #         let version = row.as_ref().map_or(0, |row| row.0);
/// #         Ok(VersionedRecord { record: row.map(|row| row.1), version, now: self.clock.wall() })
/// #     }
/// #     async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
/// #         let rows = &mut *self.rows.lock().unwrap();
/// #         if rows.get(key).map_or(0, |row| row.0) != seen { return Ok(false) }
/// #         let next = next.expect("`Cas` never deletes");
/// #         rows.insert(key.clone(), (seen + 1, next.clone()));
/// #         Ok(true)
/// #     }
///     // `read` returns the time of `self.clock`.
/// }
///
/// async fn stores() -> SkewedStores {
///     let (rows, max_skew) = (Rows::default(), Duration::from_secs(2));
///     SkewedStores::open(max_skew, async |clock| Cas(Shelf { rows: rows.clone(), clock, max_skew })).await
/// }
///
/// skew_conformance!(the_shelf_allows_for_different_clocks, stores());
/// # for law in idempotent_testkit::conformance::laws::skew::all() { law.hold(stores) }
/// ```
#[macro_export]
macro_rules! skew_conformance {
    ($name:ident, $builder:expr $(,)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[cfg(test)]
            fn __build() -> $crate::conformance::BuiltSkewed {
                ::std::boxed::Box::pin(async { ::std::future::IntoFuture::into_future($builder).await })
            }
            $crate::__skew_laws! { __skew_law_tests [__build] }
        }
    };
}

/// Creates a test for each law.
#[doc(hidden)]
#[macro_export]
macro_rules! __skew_law_tests {
    ($build:tt $($law:ident)+) => {
        $($crate::__skew_law_tests! { @law $build $law })+
    };
    (@law [$build:ident] $law:ident) => {
        #[test]
        fn $law() {
            $crate::conformance::hold_skew_listed(stringify!($law), $build);
        }
    };
}

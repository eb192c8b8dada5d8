//! Needs of laws beyond the six methods.
use std::fmt;

macro_rules! needs {
    ($($(#[$doc:meta])+ $need:ident $name:ident $remedy:literal,)+) => {
        /// A need of a law beyond the six methods of a store: a capability of the store, or a feature of the subject's
        /// builder. `conformance!(…, without: […])` takes these names in lower case.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Need {
            $($(#[$doc])+ $need,)+
        }

        impl Need {
            /// All needs.
            pub const ALL: &'static [Self] = &[$(Self::$need,)+];

            /// Returns the name in `without:`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$need => stringify!($name),)+
                }
            }

            /// Returns how a subject can offer this need.
            pub(crate) fn remedy(self) -> &'static str {
                match self {
                    $(Self::$need => $remedy,)+
                }
            }
        }
    };
}

needs! {
    /// A clock that a test can move: [`Subject::on_clock`](super::Subject::on_clock).
    Clock clock "give it by `on_clock`",
    /// A second connection to the same records: [`Subject::second`](super::Subject::second).
    Second second "give a second connection by `second`",
    /// Clients whose own clocks are wrong: [`Subject::clients`](super::Subject::clients).
    Clients clients "give connections of two processes with clocks 5 minutes ahead and behind by `clients`",
    /// A way to lose requests and replies: [`Subject::losing`](super::Subject::losing).
    Losing losing "give a way to lose requests and replies by `losing`",
    /// A way to damage records outside of the store: [`Subject::planting`](super::Subject::planting).
    Planting planting "give a way to damage records by `planting`",
    /// Storage that can hold values that are not records: [`DamageInjector::holds`](super::DamageInjector::holds).
    Foreign foreign "let `planting` plant `Damage::Foreign`",
    /// [`Batch`](idempotent_core::Batch).
    Batch batch "implement `Batch` and report it in `capabilities`",
    /// [`Watch`](idempotent_core::Watch).
    Watch watch "implement `Watch` and report it in `capabilities`",
    /// [`Search`](idempotent_core::Search).
    Search search "implement `Search` and report it in `capabilities`",
    /// [`Purge`](idempotent_core::Purge).
    Purge purge "implement `Purge` and report it in `capabilities`",
    /// [`Admin`](idempotent_core::Admin).
    Admin admin "implement `Admin` and report it in `capabilities`",
    /// [`StepStore`](idempotent_core::StepStore).
    Journal journal "implement `StepStore` and report it in `capabilities`",
    /// [`OrderStore`](idempotent_core::OrderStore).
    Order order "implement `OrderStore` and report it in `capabilities`",
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Expands to `#[test]`, or to `#[test] #[ignore = …]` if one of the law's needs is left out.
#[doc(hidden)]
#[macro_export]
macro_rules! __law_test {
    // No need is left.
    ([] $without:tt $($law:tt)+) => {
        $crate::__law_test! { @shown $($law)+ }
    };
    // Each need is searched among those that are left out.
    ([$need:ident $($more:ident)*] $without:tt $($law:tt)+) => {
        $crate::__law_test! { @among $need $without [$($more)*] $without $($law)+ }
    };
    (@among clock [clock $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without clock" $($law)+ }
    };
    (@among second [second $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without second" $($law)+ }
    };
    (@among clients [clients $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without clients" $($law)+ }
    };
    (@among losing [losing $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without losing" $($law)+ }
    };
    (@among planting [planting $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without planting" $($law)+ }
    };
    (@among foreign [foreign $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without foreign" $($law)+ }
    };
    (@among batch [batch $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without batch" $($law)+ }
    };
    (@among watch [watch $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without watch" $($law)+ }
    };
    (@among search [search $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without search" $($law)+ }
    };
    (@among purge [purge $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without purge" $($law)+ }
    };
    (@among admin [admin $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without admin" $($law)+ }
    };
    (@among journal [journal $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without journal" $($law)+ }
    };
    (@among order [order $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @left "not shown: without order" $($law)+ }
    };
    (@among $need:ident [$other:ident $($rest:ident)*] $($law:tt)+) => {
        $crate::__law_test! { @among $need [$($rest)*] $($law)+ }
    };
    (@among $need:ident [] [$($more:ident)*] $without:tt $($law:tt)+) => {
        $crate::__law_test! { [$($more)*] $without $($law)+ }
    };
    (@left $why:literal $more:tt $without:tt [$build:ident] $threads:ident $group:ident $law:ident) => {
        #[test]
        #[ignore = $why]
        fn $law() {
            $crate::conformance::hold_left_out(stringify!($group), stringify!($law), $build);
        }
    };
    (@shown [$build:ident] $threads:ident $group:ident $law:ident) => {
        #[test]
        fn $law() {
            $crate::conformance::hold_listed(stringify!($group), stringify!($law), $build);
        }
    };
}

/// Expands to the value of a name in `without:`.
#[doc(hidden)]
#[macro_export]
macro_rules! __need {
    (clock) => {
        $crate::conformance::Need::Clock
    };
    (second) => {
        $crate::conformance::Need::Second
    };
    (clients) => {
        $crate::conformance::Need::Clients
    };
    (losing) => {
        $crate::conformance::Need::Losing
    };
    (planting) => {
        $crate::conformance::Need::Planting
    };
    (foreign) => {
        $crate::conformance::Need::Foreign
    };
    (batch) => {
        $crate::conformance::Need::Batch
    };
    (watch) => {
        $crate::conformance::Need::Watch
    };
    (search) => {
        $crate::conformance::Need::Search
    };
    (purge) => {
        $crate::conformance::Need::Purge
    };
    (admin) => {
        $crate::conformance::Need::Admin
    };
    (journal) => {
        $crate::conformance::Need::Journal
    };
    (order) => {
        $crate::conformance::Need::Order
    };
    ($other:ident) => {
        compile_error!(concat!(
            "`",
            stringify!($other),
            "` is nothing a law needs; known are clock, second, clients, losing, planting, \
             foreign, batch, watch, search, purge, admin, journal, order"
        ))
    };
}

/// Generates a test that `without:` names every missing need, and one that each named need is missing.
#[doc(hidden)]
#[macro_export]
macro_rules! __left_out {
    (@missing [$build:ident] $($without:ident)*) => {
        #[test]
        fn a_missing_capability_excludes_its_laws() {
            $crate::conformance::left_out($build, &[$($crate::__need!($without)),*]);
        }
    };
    ([$build:ident]) => {
        $crate::__left_out! { @missing [$build] }
    };
    ([$build:ident] $($without:ident)+) => {
        $crate::__left_out! { @missing [$build] $($without)+ }
        // An unknown name is an error in every build, not only in one for tests.
        const _: &[$crate::conformance::Need] = &[$($crate::__need!($without)),+];
        #[test]
        fn an_excluded_capability_is_not_offered() {
            $crate::conformance::not_on_offer($build, &[$($crate::__need!($without)),+]);
        }
    };
}

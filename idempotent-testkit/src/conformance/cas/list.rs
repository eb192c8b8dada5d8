//! The list of a backend's laws, by name.
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::{CasSource, CasSubject, hold_cas_named};
use crate::conformance::Threads;

/// Lists every law of a backend.
#[doc(hidden)]
#[macro_export]
macro_rules! __cas_laws {
    ($callback:ident $($with:tt)*) => {
        $crate::$callback! { $($with)*
            One versions:
                the_version_is_zero_exactly_without_a_record
                each_write_changes_the_version_also_of_an_equal_record
                reading_changes_nothing
                a_version_does_not_repeat_after_a_deletion
                a_version_does_not_repeat_after_writes
                a_version_does_not_repeat_after_an_expiry
                a_swap_that_expects_no_record_is_refused_for_an_hour_after_an_expiry
                a_long_history_has_no_version_twice
                two_keys_share_neither_rows_nor_versions;
            One swaps:
                a_swap_with_the_version_just_read_writes
                a_swap_to_no_record_deletes
                a_swap_that_expects_no_record_does_not_replace_one
                a_swap_that_expects_a_record_does_not_create_one
                a_refused_swap_changes_nothing;
            One records:
                records_of_every_state_are_read_back_unchanged
                a_record_without_expiry_is_read_back_unchanged
                empty_hostile_and_large_values_are_read_back_unchanged
                a_record_stays_until_its_time
                time_never_decreases
                time_passes_in_microseconds;
            Many races:
                one_of_several_racing_swaps_with_one_version_wins
                one_of_several_racing_writes_and_deletions_with_one_version_wins
                no_update_is_lost_among_racing_ones
                a_read_gives_the_record_and_the_version_of_one_moment;
        }
    };
}

/// One law of a backend: its name, and the law itself.
#[derive(Clone, Copy)]
pub struct CasLaw {
    name: &'static str,
    threads: Threads,
    body: for<'a> fn(&'a CasSubject) -> Body<'a>,
}

type Body<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl CasLaw {
    /// Returns the name of the law: a statement that can be false.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the law with a new backend, on a separate runtime; see [`hold_cas`](super::hold_cas).
    ///
    /// # Panics
    /// If the law is broken or does not end.
    pub fn hold<B, Form: ?Sized>(&self, build: impl FnOnce() -> B)
    where
        B: CasSource<Form>,
    {
        hold_cas_named(self.name, self.threads, build, async |subject: &CasSubject| (self.body)(subject).await);
    }
}

impl fmt::Debug for CasLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasLaw").field("name", &self.name).finish_non_exhaustive()
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __cas_law_table {
    ($($threads:ident $group:ident: $($law:ident)+;)+) => {
        &[$($crate::__cas_law_table! { @each $threads $group $($law)+ }),+]
    };
    (@each $threads:ident $group:ident $($law:ident)+) => {
        &[$(CasLaw {
            name: stringify!($law),
            threads: Threads::$threads,
            body: |subject| Box::pin($crate::conformance::laws::cas::$group::$law(subject)),
        }),+]
    };
}

const GROUPS: &[&[CasLaw]] = crate::__cas_laws! { __cas_law_table };

/// Returns every law of a backend, in the order of [`cas_conformance!`](crate::cas_conformance!).
pub fn all() -> impl Iterator<Item = &'static CasLaw> {
    GROUPS.iter().copied().flatten()
}

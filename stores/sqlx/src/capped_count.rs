//! A number of rows that was counted up to a limit.
use std::fmt;

/// A number of rows that was counted up to a limit, so that a large table does not make the count slow.
///
/// ```
/// # use idempotent_sqlx::CappedCount;
/// # fn example(unsent: CappedCount) {
/// // `17`, or `10000+` if there are more than 10,000.
/// println!("{unsent}");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CappedCount {
    /// The number of rows, or a lower bound.
    pub at_least: u64,
    /// True if there are no more rows.
    pub is_exact: bool,
}

impl CappedCount {
    /// Returns the count of at most `cap` rows, of which one more was counted at most.
    pub(crate) fn new(counted: u64, cap: u32) -> Self {
        Self::of(counted, cap, counted <= u64::from(cap))
    }

    /// Returns the count of a part of rows that were counted up to `cap`.
    pub(crate) fn of(counted: u64, cap: u32, is_exact: bool) -> Self {
        Self { at_least: counted.min(cap.into()), is_exact }
    }
}

impl fmt::Display for CappedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at_least, if self.is_exact { "" } else { "+" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_limit_is_a_lower_bound() {
        let texts = [0, 9, 10, 11].map(|counted| CappedCount::new(counted, 10).to_string());
        assert_eq!(texts, ["0", "9", "10", "10+"]);
        assert_eq!(CappedCount::of(3, 10, false).to_string(), "3+");
    }
}

//! Errors of plans.

/// An error of a capacity plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A text is no quantity.
    #[error("`{text}` is no {kind}: expected {expected}")]
    Quantity {
        /// The text.
        text: String,
        /// The kind of quantity.
        kind: &'static str,
        /// The expected form, with examples.
        expected: &'static str,
    },
    /// A value of the workload is out of its range.
    #[error("{name} is {value}: expected {expected}")]
    OutOfRange {
        /// The name of the value.
        name: &'static str,
        /// The value.
        value: f64,
        /// The range.
        expected: &'static str,
    },
    /// A text is no condition.
    #[error("`{text}` is no condition: {rule}")]
    Condition {
        /// The text.
        text: String,
        /// The rule.
        rule: String,
    },
    /// The measured figures lack a constant.
    #[error("the measured figures lack `{row}`: run `cargo xtask bench scale --write`")]
    MissingConstant {
        /// The name of the figure.
        row: &'static str,
    },
    /// A line of the measured figures cannot be read.
    #[error("line {line} of the measured figures is invalid: {reason}")]
    InvalidConstant {
        /// The number of the line, from 1 on.
        line: usize,
        /// The reason.
        reason: String,
    },
}

//! The error of handlers in transactions.
use idempotent::Rejection;

/// A failure that is worth another run.
#[derive(Debug)]
pub(crate) struct Failed;

impl From<Rejection> for Failed {
    fn from(_: Rejection) -> Self {
        Self
    }
}

impl From<sqlx::Error> for Failed {
    fn from(_: sqlx::Error) -> Self {
        Self
    }
}

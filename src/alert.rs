//! Alerts for problems that need a person, and their senders. The guide is [`docs::alerts`](crate::docs::alerts).
#[cfg(feature = "alert")]
pub use idempotent_alert::*;
pub use idempotent_core::{
    Alert, AlertCounts, AlertError, AlertKind, AlertLog, AlertObserver, AlertSender, AlertSetupError, Alerts,
    AlertsBuilder, GivenUp,
};

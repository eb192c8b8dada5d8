//! Places at which a worker can be stopped, so that it can be killed there.
use clap::ValueEnum;

/// A place in the handling of a callback, in their order.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Place {
    /// The message is delivered, and the key is not claimed
    Received,
    /// The key is claimed
    Claimed,
    /// The order is paid in the transaction
    Paid,
    /// The ticket is issued
    Ticketed,
    /// The points are added
    Credited,
    /// The transaction is committed, and the message is not acknowledged
    Committed,
}

/// The place at which this process stops, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopPoint(Option<Place>);

impl StopPoint {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Self(place)
    }

    /// Waits for ever if the process stops at this place.
    pub(crate) async fn reach(self, place: Place, order: &str) {
        if self.0 == Some(place) {
            println!("{order}: stopped at {place:?}");
            std::future::pending::<()>().await;
        }
    }
}

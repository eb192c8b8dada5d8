//! The store for the test kit's laws.
use std::sync::Arc;

use idempotent_core::Clock;
use idempotent_testkit::{Subject, VirtualClock};

use super::fixture::Place;

/// Creates two stores with separate connections, on the test's clock or on the server's clock.
pub(crate) async fn subject(clock: Option<VirtualClock>) -> Subject {
    let place = Place::new();
    let open = async || {
        let builder = match &clock {
            Some(clock) => place.builder().clock(Arc::new(clock.clone()) as Arc<dyn Clock>),
            None => place.builder(),
        };
        builder.connect().await.unwrap()
    };
    let subject = Subject::new(open().await).second(open().await).planting(place.rows()).rounds(10);
    match clock {
        Some(clock) => subject.on_clock(clock),
        None => subject,
    }
}

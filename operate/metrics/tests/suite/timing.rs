//! Events that need a clock reading, for observers that want them.
use std::sync::{Arc, Mutex};

use idempotent_core::{Call, Event, Executor, MemoryStore, Observer, RunInfo, Tracing};

use crate::world::{identity, runs};

/// An observer that keeps the name of each event.
#[derive(Clone, Debug)]
struct Names {
    timed: bool,
    names: Arc<Mutex<Vec<&'static str>>>,
}

impl Observer for Names {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        self.names.lock().unwrap().push(match event {
            Event::Claimed { .. } => "claimed",
            Event::HandlerStarted => "started",
            Event::HandlerEnded { .. } => "handler ended",
            Event::StoreAnswered { step, .. } => step,
            Event::Ended { .. } => "ended",
            _ => "other",
        });
    }

    fn wants_timing(&self) -> bool {
        self.timed
    }
}

async fn names(timed: bool) -> Vec<&'static str> {
    let observer = Names { timed, names: Arc::default() };
    // A pair wants what one of both wants.
    let executor = Executor::builder(MemoryStore::new()).observer((Tracing, observer.clone())).build().unwrap();
    runs(&executor, Call::new(identity("1")), Ok(1)).await;
    observer.names.lock().unwrap().clone()
}

#[tokio::test]
async fn only_an_observer_that_wants_timing_gets_the_steps_of_a_run() {
    assert_eq!(names(false).await, ["claimed", "ended"]);
    assert_eq!(names(true).await, ["claim", "claimed", "started", "handler ended", "complete", "ended"]);
}

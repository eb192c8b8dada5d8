//! Runs that take over the lease of a run that was dropped.
use std::time::Duration;

use idempotent_core::{Outcome, Policy};
use idempotent_otel::RunTracer;
use idempotent_testkit::VirtualClock;
use tokio::sync::oneshot;

use crate::world::{Traces, attribute, executor, id, links, runs, store};

#[tokio::test]
async fn a_takeover_links_to_the_previous_owner_and_a_duplicate_to_the_new_one() {
    let (traces, clock) = (Traces::start(), VirtualClock::new());
    let executor = executor(store(&clock), &clock, Policy::new(), RunTracer::new());
    let (began, begins) = oneshot::channel();
    let hangs = async move {
        began.send(()).unwrap();
        std::future::pending().await
    };
    tokio::select! {
        _ = runs(&executor, "dropped", "k", hangs) => panic!("it hangs"),
        begun = begins => begun.unwrap(),
    }
    clock.advance(Duration::from_secs(3_600)).await;
    assert_eq!(runs(&executor, "takes over", "k", async { Ok(1) }).await, Outcome::Ran);
    assert_eq!(runs(&executor, "duplicate", "k", async { Ok(1) }).await, Outcome::Replayed);
    let in_span = |name| {
        let outer = id(&traces.one(name));
        traces.all("idempotent").into_iter().find(|run| run.parent_span_id == outer).unwrap()
    };
    let (dropped, owner) = (in_span("dropped"), in_span("takes over"));
    assert_eq!(attribute(&dropped, "idempotent.outcome").unwrap(), "abandoned");
    assert_eq!(links(&owner), [(id(&dropped), "previous_owner".to_owned())]);
    assert_eq!(links(&in_span("duplicate")), [(id(&owner), "first_run".to_owned())]);
}

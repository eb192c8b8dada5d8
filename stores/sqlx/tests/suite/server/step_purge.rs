//! Removal of steps together with their records.
use std::time::Duration;

use idempotent_core::{Claim, Settled, StepRecord, StepState, Store};

use super::fixture::{Place, sql};
use crate::support::{Manual, held, key, request};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_purge_takes_steps_of_no_more_records_than_it_was_asked_for() {
    let (place, clock) = (Place::new(), Manual::new());
    let store = place.builder().clock(clock.clone()).connect().await.unwrap();
    let step_store = store.capabilities().steps.unwrap();
    for n in 0..5 {
        let key = key(&n.to_string());
        assert!(matches!(store.claim(&request(&key, 1)).await.unwrap(), Claim::Acquired(_)));
        for at in 0..3 {
            let step = StepRecord { name: at.to_string().into(), place: at, state: StepState::Done, value: None };
            assert_eq!(step_store.note(&held(&key, 1), &step, HOUR).await.unwrap(), Settled::Done);
        }
    }
    sql(&format!("DELETE FROM {}", place.table));
    clock.advance(HOUR);
    for (at_most, left) in [(0, "15"), (2, "9"), (1, "6"), (usize::MAX, "0")] {
        assert_eq!(store.capabilities().purge.unwrap().purge(at_most).await.unwrap(), 0);
        assert_eq!(sql(&format!("SELECT count(*) FROM {}_steps", place.table)), left, "{at_most}");
    }
}

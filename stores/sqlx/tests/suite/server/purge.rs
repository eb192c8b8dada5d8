//! Pages of a listing, and the removal of steps together with their records.
use super::fixture::{Place, sql};
use crate::support::{pages_are_bounded, purges_steps_as_asked, stopped_clock};

#[tokio::test]
async fn a_page_of_a_billion_records_is_one_of_10_000() {
    pages_are_bounded(&Place::new().open().await).await;
}

#[tokio::test]
async fn a_purge_takes_steps_of_no_more_records_than_it_was_asked_for() {
    let (place, clock) = (Place::new(), stopped_clock());
    let store = place.builder().clock(clock.clone()).connect().await.unwrap();
    let delete = async || drop(sql(&format!("DELETE FROM {}", place.table)));
    let count = async || sql(&format!("SELECT count(*) FROM {}_steps", place.table));
    purges_steps_as_asked(&store, &clock, delete, count, ["15", "9", "6", "0"].map(str::to_owned)).await;
}

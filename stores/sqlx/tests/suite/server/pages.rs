//! The pages of a listing.
use super::fixture::Place;
use crate::support::pages_are_bounded;

#[tokio::test]
async fn a_page_of_a_billion_records_is_one_of_10_000() {
    pages_are_bounded(&Place::new().open().await).await;
}

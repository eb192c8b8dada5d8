//! Messages that are to be delivered later.
use std::time::Duration;

use idempotent_sqlx::OutboxStatus;

use super::world::{World, message, of};

#[tokio::test]
async fn a_message_with_a_time_goes_to_a_publisher_that_delays_and_is_not_sent_again_before_that_time() {
    let world = World::new().await;
    world.broker.delays();
    let at = idempotent_core::Timestamp(world.micros()) + Duration::from_secs(3_600);
    world.put(&[message("now"), message("later").deliver_at(at)]).await;
    // The first time is kept, and a different time is no other content.
    world.put(&[message("later").deliver_at(at + Duration::from_secs(1))]).await;
    assert_eq!(world.round().await.sent, 2);
    let times: Vec<_> = world.broker.messages().into_iter().map(|message| (message.id, message.deliver_at)).collect();
    assert_eq!(times, [("now".to_owned(), None), ("later".to_owned(), Some(at))]);
    let (now, later) = (world.due_in("now").await.unwrap(), world.due_in("later").await.unwrap());
    assert_eq!(later, now + 3_600);
}

#[tokio::test]
async fn a_message_with_a_time_is_refused_for_a_publisher_that_cannot_delay_and_is_given_up_with_an_alert() {
    let world = World::new().await;
    let at = idempotent_core::Timestamp(world.micros()) + Duration::from_secs(3_600);
    world.put(&[of("a1", "a"), of("later", "a").deliver_at(at), of("a2", "a"), message("other")]).await;
    let round = world.round().await;
    assert_eq!((round.sent, round.refused), (2, 1));
    let (later, behind) = (world.stub("later").await, world.stub("a2").await);
    assert!(later.last_error.unwrap().contains("deliver_at"));
    assert_eq!((later.sent_at, behind.sent_at, behind.failures), (None, None, 0));
    for _ in 0..10 {
        world.pass(3_600);
        world.round().await;
    }
    assert_eq!(world.status("later").await, OutboxStatus::Dead);
    assert!(world.broker.ids().iter().all(|id| id != "later" && id != "a2"), "{:?}", world.broker.ids());
    assert!(world.bell.alerts().iter().any(|alert| alert.given_up.is_some_and(|given_up| given_up.holds_back)));
}

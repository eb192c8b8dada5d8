//! The numbers of messages, for operators.
use idempotent_mq::{DeliveryResult, PublishErrorKind};
use idempotent_sqlx::OutboxStatus;

use super::world::{SECOND, World, message, of};
use crate::outbox::broker::Says;

#[tokio::test]
async fn an_empty_outbox_has_no_oldest_message() {
    let counts = World::new().await.outbox.counts().await.unwrap();
    assert_eq!((counts.unsent, counts.unconfirmed, counts.dead, counts.oldest_unsent), (0, 0, 0, None));
}

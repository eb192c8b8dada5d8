//! The parts of a lease: two thirds to send the messages, and a third to write the results.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertSender, Clock};
use idempotent_sqlx::OutboxErrorKind;
use idempotent_testkit::VirtualClock;

use super::world::{LEASE, Restless, SECOND, World, message};

/// A sender of alerts that takes some time.
#[derive(Debug)]
struct Slow(VirtualClock, Duration);

#[async_trait]
impl AlertSender for Slow {
    async fn send(&self, _: &Alert) -> Result<(), AlertError> {
        self.0.jump(self.1);
        Ok(())
    }
}

#[tokio::test]
async fn messages_are_sent_only_within_two_thirds_of_the_lease() {
    for (delay, sent, due_in) in [(LEASE * 2 / 3 - SECOND, 1, 15), (LEASE * 2 / 3, 0, 1)] {
        let (world, clock) = (World::new().await, VirtualClock::new());
        world.put(&[message("damaged"), message("a")]).await;
        let (damaged, junk) = (world.bytes("damaged"), world.hex("ffffffffff"));
        world.sql(&format!("UPDATE outbox SET headers = {junk} WHERE id = {damaged}")).await;
        let relay = world.relay().clock(Arc::new(clock.clone())).alerts(Arc::new(Slow(clock, delay)));
        let round = relay.round().await.unwrap();
        assert_eq!((round.given_up, round.sent, round.failed), (1, sent, 0));
        assert_eq!((world.broker.calls(), world.due_in("a").await), (sent, Some(due_in)));
    }
}

#[tokio::test]
async fn results_are_written_with_retries_for_a_third_of_the_lease() {
    for (failures, is_written) in [(4, true), (u32::MAX, false)] {
        let writes = AtomicU32::new(0);
        let world = World::with(move |name, text| match name {
            "record" => {
                let write = writes.fetch_add(1, SeqCst);
                assert!(write < 20, "no end of retries");
                if write < failures { text.replacen(" SET ", " SET missing=1,", 1) } else { text }
            }
            _ => text,
        })
        .await;
        world.put(&[message("a")]).await;
        let clock = Arc::new(Restless::default());
        let began = clock.now();
        let round = world.relay().lease(3 * SECOND).clock(clock.clone()).round().await;
        // The fifth write is the last one: another one would be at the end of the time.
        assert!(world.statements().contains(&("record", 5)));
        assert_eq!(clock.now() - began, Duration::from_millis(800));
        match round {
            Ok(round) => assert!(is_written && round.sent == 1),
            Err(error) => assert!(!is_written && error.kind() == OutboxErrorKind::Database, "{error}"),
        }
        let stub = world.stub("a").await;
        assert_eq!((stub.sends, stub.sent_at.is_some()), (u32::from(is_written), is_written));
        assert_eq!(world.rows("outbox WHERE lease_until > 0").await, i64::from(!is_written));
    }
}

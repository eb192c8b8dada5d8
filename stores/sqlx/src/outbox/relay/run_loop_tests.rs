//! Tests of the times at which a relay looks for messages.
use std::sync::Arc;

use idempotent_core::Clock;
use idempotent_mq::{OutboundMessage, Publish, PublishError, Published};
use idempotent_testkit::VirtualClock;
use sqlx::{Sqlite, SqlitePool};
use tokio::sync::Notify;

use super::*;
use crate::outbox::Outbox;
use crate::outbox::confirmation_queue::ConfirmationQueue;
use crate::outbox::database::SqlDialect;
use crate::outbox::handle::OutboxInner;
use crate::outbox::lease::LeaseOwner;
use crate::outbox::statements::OutboxStatements;
use crate::table::Table;

const POLL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct NoBroker;

#[async_trait::async_trait]
impl Publish for NoBroker {
    async fn publish(&self, _: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        Vec::new()
    }
}

fn relay(batch: u32) -> (Relay<Sqlite>, VirtualClock) {
    let table = Table::new("outbox").unwrap();
    let outbox = Outbox(Arc::new(OutboxInner {
        pool: SqlitePool::connect_lazy("sqlite::memory:").unwrap(),
        statements: OutboxStatements::new(SqlDialect::Sqlite, &table, None),
        table: "outbox".to_owned(),
        clock: None,
        written: Notify::new(),
        confirmations: ConfirmationQueue::default(),
    }));
    let clock = VirtualClock::new();
    let relay = Relay { clock: Arc::new(clock.clone()), batch, poll: POLL, ..Relay::new(&outbox, Arc::new(NoBroker)) };
    (relay, clock)
}

/// Returns the rest until the next look, or `None` if the relay looks at once.
fn rest(look: LookState, clock: &VirtualClock) -> Option<Duration> {
    match look {
        LookState::At(end) => Some(end - clock.now()),
        LookState::Now => None,
        LookState::Looking { .. } => panic!("the relay is looking"),
    }
}

fn round(sent: usize, failed: usize, refused: usize) -> Result<RelayRound, OutboxError> {
    Ok(RelayRound { sent, failed, refused, ..RelayRound::default() })
}

#[tokio::test]
async fn the_relay_looks_again_at_once_if_more_messages_may_be_due() {
    for (batch, again, failures, at_once) in
        [(0, false, 0, true), (1, true, 0, true), (1, false, 1, true), (1, false, 0, false)]
    {
        let (relay, clock) = relay(batch);
        let alone = Some(clock.now() + POLL);
        let mut schedule = LookSchedule { failures, alone, ..LookSchedule::default() };
        let taken = LeasedBatch { owner: LeaseOwner::default(), since: clock.now(), leased: Vec::new() };
        let (look, batch_to_send) =
            relay.after(RoundEvent::Taken(Ok(Some(taken))), LookState::Looking { again }, &mut schedule);
        assert_eq!(rest(look, &clock).is_none(), at_once, "{batch} {again} {failures}");
        assert_eq!((batch_to_send.is_some(), schedule.alone.is_some()), (true, batch == 0), "{batch}");
    }
}

#[tokio::test]
async fn only_a_round_without_an_answer_is_an_outage() {
    let (relay, clock) = relay(1);
    let ms = Duration::from_millis;
    for (worked, expected, failures) in [
        (round(0, 0, 0), None, 0),
        (round(1, 1, 0), None, 0),
        (round(1, 2, 1), None, 0),
        (round(0, 1, 1), Some(ms(100)..=ms(100)), 0),
        // Spread by a fifth.
        (round(0, 1, 0), Some(ms(80)..=ms(120)), 1),
        (round(0, 2, 1), Some(ms(80)..=ms(120)), 1),
    ] {
        let mut schedule = LookSchedule::default();
        let rest = rest(relay.worked(&worked, &mut schedule), &clock);
        let is_expected = match (&expected, rest) {
            (Some(range), Some(rest)) => range.contains(&rest),
            (None, None) => true,
            _ => false,
        };
        assert!(is_expected && schedule.failures == failures, "{worked:?}: {rest:?}, {schedule:?}");
    }
}

#[tokio::test]
async fn a_relay_looks_for_a_written_message_at_growing_intervals_up_to_its_poll() {
    let (relay, clock) = relay(1);
    let mut schedule = LookSchedule { eager: Some(EAGER_DELAY), ..LookSchedule::default() };
    for expected in [EAGER_DELAY, EAGER_DELAY * 2, EAGER_DELAY * 4] {
        assert_eq!(rest(relay.idle(&mut schedule), &clock), Some(expected));
    }
    schedule.eager = Some(POLL);
    let rest = rest(relay.idle(&mut schedule), &clock).unwrap();
    assert!(rest >= POLL * 4 / 5 && schedule.eager.is_none(), "{rest:?}");
}

//! Relays: leases, rounds, and the messages that a stopped relay leaves.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertSender};
use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_sqlx::{Outbox, Relay};
use idempotent_testkit::VirtualClock;
use tokio::sync::{Barrier, oneshot};

use super::world::{LEASE, Restless, World, message, of};
use crate::outbox::broker::Says;

#[tokio::test]
async fn two_relays_side_by_side_send_each_message_once() {
    let world = World::new().await;
    let many: Vec<_> = (0..200).map(|n| message(&n.to_string())).collect();
    world.put(&many).await;
    let relays: Vec<_> = (0..4).map(|_| world.relay().batch(7)).collect();
    let rounds = relays.iter().map(|relay| async {
        // The relays run until none finds a message. One relay may find that others hold all messages.
        for _ in 0..100 {
            relay.round().await.unwrap();
        }
    });
    futures_util::future::join_all(rounds).await;
    let mut ids = world.broker.ids();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!((all, ids.len()), (200, 200));
}

/// The lease lives in the row: a lock would end with the statement that took it, and leave the row as it was.
#[tokio::test]
async fn no_relay_leases_the_messages_of_another_live_lease() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.broker.gate.forget_permits(usize::MAX);
    let (one, two) = (world.relay(), world.relay());
    let sending = async {
        world.broker.called(1).await;
        for _ in 0..3 {
            assert_eq!(two.round().await.unwrap().looked_at, 0);
        }
        world.pass(LEASE.as_secs() - 1);
        assert_eq!(two.round().await.unwrap().looked_at, 0);
        world.broker.gate.add_permits(1);
    };
    let (round, ()) = futures_util::future::join(one.round(), sending).await;
    assert_eq!(round.unwrap().sent, 1);
    assert_eq!(world.broker.ids(), ["a"]);
}

#[tokio::test]
async fn a_relay_that_dies_while_it_sends_leaves_the_message_to_others_under_the_same_id() {
    let world = World::new().await;
    world.put(&[message("a"), message("b")]).await;
    // Dropped before the broker had it, and after.
    for (says, sent) in [(None, 0), (Some(Says::Nothing), 1)] {
        match says {
            None => drop(world.broker.gate.forget_permits(usize::MAX)),
            Some(says) => {
                world.broker.gate.add_permits(10);
                world.broker.say_of("a", says);
            }
        }
        let relay = world.relay();
        let calls = if sent == 0 { 1 } else { 2 };
        tokio::select! {
            biased;
            _ = relay.round() => panic!("it was not to end"),
            () = async {
                world.broker.called(calls).await;
                while world.broker.ids().len() < sent {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
        assert_eq!(world.round().await.looked_at, 0, "its lease lives");
        world.pass(LEASE.as_secs());
    }
    world.broker.say_of("a", Says::Somewhere);
    assert_eq!(world.round().await.sent, 2);
    assert_eq!(world.broker.ids(), ["a", "a", "b"]);
    assert_eq!(world.stub("a").await.sends, 1, "as far as anybody noted");
}

/// The message was sent, but recording this failed: the lease had expired, and another relay sends the message.
#[tokio::test]
async fn a_relay_with_an_expired_lease_does_not_write_to_the_messages_of_another_one() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.broker.gate.forget_permits(usize::MAX);
    let (one, two) = (world.relay(), world.relay());
    world.broker.say(Says::Lies(1));
    let second = async {
        world.broker.called(1).await;
        world.pass(LEASE.as_secs());
        let takes_over = async {
            world.broker.called(2).await;
            world.broker.gate.add_permits(2);
        };
        futures_util::future::join(two.round(), takes_over).await.0.unwrap();
    };
    let (first, ()) = futures_util::future::join(one.round(), second).await;
    first.unwrap();
    let stub = world.stub("a").await;
    assert_eq!((stub.sends, world.broker.ids().len()), (1, 2));
    assert!(stub.due_at.is_some());
}

#[tokio::test]
async fn an_unaccepted_message_stays_unconfirmed_and_is_sent_again_at_growing_intervals() {
    let world = World::new().await;
    world.put(&[message("down"), message("unsure"), message("refused")]).await;
    let kinds = [
        ("down", PublishErrorKind::Unsent, [0, 0, 0]),
        ("unsure", PublishErrorKind::Unconfirmed, [1, 2, 3]),
        ("refused", PublishErrorKind::Refused, [1, 2, 3]),
    ];
    for (id, kind, _) in kinds {
        world.broker.say_of(id, Says::Fails(kind));
    }
    for time in 0..3 {
        assert_eq!(world.round().await.failed, 3);
        for (id, _, sends) in kinds {
            let stub = world.stub(id).await;
            assert_eq!((stub.sends, stub.failures, stub.sent_at), (sends[time], time as u32 + 1, None), "{id}");
            assert!(stub.last_error.unwrap().contains("as told"));
            let rest = world.stub(id).await.due_at.unwrap() - idempotent_core::Timestamp(world.micros());
            let (least, most) = (Duration::from_millis(800 << time), Duration::from_millis(1_200 << time));
            assert!((least..=most).contains(&rest), "{rest:?}");
        }
        world.pass(10);
    }
    // An outage uses nothing up; what may have been sent is not sent for ever.
    let round = world.round().await;
    assert_eq!((round.failed, round.given_up, world.bell.alerts().len()), (1, 2, 2));
    world.broker.say_of("down", Says::Somewhere);
    world.pass(10);
    assert_eq!(world.round().await.sent, 1);
    let stub = world.stub("down").await;
    assert_eq!((stub.sends, stub.failures, stub.last_error), (1, 0, None));
}

#[tokio::test]
async fn no_answer_in_time_is_unconfirmed_and_it_is_sent_again_under_its_id() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a")]).await;
    world.broker.say(Says::Nothing);
    // The relay's clock does not move, so a slow database leaves time for a send.
    let relay = world.relay().lease(Duration::from_millis(500)).clock(Arc::new(VirtualClock::new()));
    assert_eq!(relay.round().await.unwrap().failed, 2);
    // The broker may have accepted the second message of the aggregate, too.
    for id in ["a1", "a2"] {
        let stub = world.stub(id).await;
        assert_eq!((stub.sends, stub.failures, stub.sent_at), (1, 1, None), "{id}");
        assert!(stub.last_error.unwrap().contains("no answer in time"));
    }
    world.broker.say(Says::Somewhere);
    world.pass(2);
    // A second message that is due before the first one waits for the next round.
    while world.round().await.sent > 0 {}
    assert_eq!(world.broker.ids(), ["a1", "a1", "a2"]);
}

/// Its poll is an hour away.
#[tokio::test]
async fn a_running_relay_sends_messages_of_its_process_and_ends_its_round_when_it_is_stopped() {
    let world = World::new().await;
    let relay = Arc::new(Relay::new(&world.outbox, world.broker.clone()).poll(Duration::from_secs(3_600)));
    let (counters, (stop, stopped)) = (relay.counters(), oneshot::channel::<()>());
    let running = tokio::spawn({
        let relay = relay.clone();
        async move { relay.run(async { drop(stopped.await) }).await }
    });
    for round in 1..=3 {
        let mut tx = world.begin().await;
        world.outbox.enqueue(&mut tx, &message(&round.to_string())).await.unwrap();
        // It has looked, and found nothing that is committed.
        tokio::task::yield_now().await;
        tx.commit().await.unwrap();
        world.broker.called(round).await;
    }
    // In the middle of a sending.
    world.broker.gate.forget_permits(usize::MAX);
    world.put(&[message("last")]).await;
    world.outbox.wake();
    world.broker.called(4).await;
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    assert!(!running.is_finished(), "it ends what it has begun");
    world.broker.gate.add_permits(1);
    let counts = running.await.unwrap();
    assert_eq!((counts.sent, counts.failed), (4, 0));
    assert_eq!(counters.counts(), counts);
    assert_eq!(world.broker.ids(), ["1", "2", "3", "last"]);
    assert_eq!(world.stub("last").await.sends, 1);
}

/// Its poll is an hour away: what looks again is the end of a round.
#[tokio::test]
async fn a_running_relay_leases_while_it_sends_and_messages_after_one_in_transit_wait() {
    let world = World::new().await;
    world.broker.gate.forget_permits(usize::MAX);
    world.put(&[of("a1", "a"), of("a2", "a"), message("b"), of("a3", "a")]).await;
    world.statements();
    let relay = world.relay().batch(1).poll(Duration::from_secs(3_600));
    let (stop, stopped) = oneshot::channel::<()>();
    let looks = AtomicU32::new(0);
    let sending = async {
        world.broker.called(2).await;
        // It has looked a third time, and found nothing that may go.
        while looks.load(SeqCst) < 3 {
            let plans = world.statements().into_iter().find(|(name, _)| *name == "plan").map_or(0, |(_, times)| times);
            looks.fetch_add(plans, SeqCst);
            tokio::task::yield_now().await;
        }
        assert_eq!(world.rows("outbox WHERE lease_until > 0").await, 2, "a1 and b are under way");
        world.broker.gate.add_permits(1_000);
        world.broker.called(4).await;
        stop.send(()).unwrap();
    };
    let (counts, ()) = tokio::join!(relay.run(async { drop(stopped.await) }), sending);
    assert_eq!((counts.sent, counts.failed), (4, 0));
    let ids = world.broker.ids();
    let place = |id: &str| ids.iter().position(|sent| sent == id).unwrap();
    assert!(place("a1") < place("a2") && place("a2") < place("a3"), "{ids:?}");
    for id in ["a1", "a2", "a3", "b"] {
        assert_eq!(world.stub(id).await.sends, 1);
    }
}

/// The minimum pause of a relay after a poll that found no message during a send.
const EAGER: Duration = Duration::from_millis(2);

/// The next poll is an hour away. Messages after a running send cost one more poll, however many there are.
#[tokio::test]
async fn a_relay_that_finds_no_messages_while_it_sends_rests_and_overlaps_again_later() {
    let world = World::new().await;
    world.broker.gate.forget_permits(usize::MAX);
    world.put(&[of("first", "a"), message("beside")]).await;
    world.put(&(0..10).map(|n| of(&format!("a{n}"), "a")).collect::<Vec<_>>()).await;
    world.statements();
    let (looks, rests) = (AtomicU32::new(0), VirtualClock::new());
    let looked = || {
        let plans = world.statements().into_iter().find(|(name, _)| *name == "plan").map_or(0, |(_, times)| times);
        looks.fetch_add(plans, SeqCst) + plans
    };
    // The commit wakes the relay. A relay that is woken earlier finds nothing and polls again.
    let elsewhere = Outbox::builder(world.pool.clone()).table(&world.table).clock(world.clock.clone());
    let elsewhere = elsewhere.open().await.unwrap();
    let put = async |messages: &[OutboundMessage]| {
        let mut tx = world.begin().await;
        elsewhere.enqueue_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
        world.outbox.wake();
    };
    let relay = world.relay().batch(2).poll(Duration::from_secs(3_600)).clock(Arc::new(rests.clone()));
    let (stop, stopped) = oneshot::channel::<()>();
    let sending = async {
        world.broker.called(1).await;
        while looked() < 2 {
            tokio::task::yield_now().await;
        }
        for n in 10..20 {
            put(&[of(&format!("a{n}"), "a")]).await;
        }
        assert_eq!(looked(), 2, "it rests");
        // What goes in no order with it does not wait for its end.
        put(&[message("meanwhile")]).await;
        while tokio::time::timeout(10 * EAGER, world.broker.called(2)).await.is_err() {
            rests.jump(EAGER);
        }
        world.broker.gate.add_permits(1_000);
        while world.broker.ids().len() < 23 {
            tokio::task::yield_now().await;
        }
        // Nothing is under way any more, and a look has found less than it may.
        while world.rows("outbox WHERE sent_at IS NULL").await > 0 {
            tokio::task::yield_now().await;
        }
        let so_far = looked();
        while looked() < so_far + 2 {
            world.outbox.wake();
            tokio::task::yield_now().await;
        }
        let calls = world.broker.calls();
        world.broker.gate.forget_permits(usize::MAX);
        put(&["x", "y", "z"].map(message)).await;
        let overlaps = tokio::time::timeout(LEASE / 2, world.broker.called(calls + 2));
        overlaps.await.expect("one is sent while those before it are");
        world.broker.gate.add_permits(1_000);
        stop.send(()).unwrap();
    };
    let (counts, ()) = tokio::join!(relay.run(async { drop(stopped.await) }), sending);
    assert_eq!((counts.sent, counts.failed), (26, 0));
}

#[tokio::test]
async fn messages_that_the_broker_refuses_delay_no_other_message() {
    let world = World::new().await;
    let refused: Vec<_> = (0..8).map(|n| format!("refused {n}")).collect();
    for id in &refused {
        world.broker.say_of(id, Says::Fails(PublishErrorKind::Refused));
    }
    world.put(&refused.iter().map(|id| message(id)).collect::<Vec<_>>()).await;
    world.put(&[message("sent")]).await;
    let clock = Arc::new(Restless::default());
    let poll = Duration::from_secs(1);
    let relay = world.relay().batch(1).poll(poll).clock(clock.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let sent = async {
        world.broker.called(9).await;
        stop.send(()).unwrap();
    };
    let (counts, ()) = tokio::join!(relay.run(async { drop(stopped.await) }), sent);
    assert_eq!((counts.sent, counts.failed), (1, 8));
    let longest = *clock.1.lock().unwrap();
    assert!(longest <= poll * 6 / 5, "it rested for {longest:?}");
}

/// A publisher that answers only after a number of concurrent calls.
#[derive(Debug)]
struct Meeting(Barrier, AtomicU32);

#[async_trait]
impl AlertSender for Meeting {
    async fn send(&self, _: &Alert) -> Result<(), AlertError> {
        self.0.wait().await;
        self.1.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// In sequence, the sends would take longer than the lease, and another round would start with all messages.
#[tokio::test]
async fn several_messages_given_up_at_once_give_one_alert() {
    let world = World::new().await;
    world.put(&["a", "b", "c"].map(message)).await;
    for id in ["a", "b", "c"] {
        world.broker.say_of(id, Says::Fails(PublishErrorKind::Refused));
    }
    for _ in 0..3 {
        assert_eq!(world.round().await.failed, 3);
        world.pass(10);
    }
    let meeting = Arc::new(Meeting(Barrier::new(3), AtomicU32::new(0)));
    let relay = world.relay().alerts(meeting.clone());
    assert_eq!(relay.round().await.unwrap().given_up, 3);
    // Ends once the alerts are sent.
    relay.run(async {}).await;
    assert_eq!(meeting.1.load(SeqCst), 3);
}

#[tokio::test]
async fn a_damaged_row_is_given_up_with_an_alert_and_delays_no_message() {
    let world = World::new().await;
    world.put(&[message("a"), message("b")]).await;
    let (a, junk) = (world.bytes("'a'"), world.hex("ffffffffff"));
    world.sql(&format!("UPDATE outbox SET headers = {junk} WHERE id = {a}")).await;
    let round = world.round().await;
    assert_eq!((round.sent, round.given_up), (1, 1));
    assert!(world.stub("a").await.last_error.unwrap().contains("headers"));
    assert_eq!(world.broker.ids(), ["b"]);
}

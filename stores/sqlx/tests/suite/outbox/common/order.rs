//! Messages of one aggregate are sent in the order they were written.
use idempotent_mq::PublishErrorKind;
use idempotent_sqlx::OutboxStatus;

use super::world::{World, message, of};
use crate::outbox::broker::Says;

#[tokio::test]
async fn a_later_message_of_an_aggregate_waits_for_an_earlier_one_that_is_not_sent() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("b1", "b"), of("a2", "a"), message("free"), of("a3", "a")]).await;
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Unsent));
    let round = world.round().await;
    assert_eq!((round.sent, round.failed), (2, 1));
    assert_eq!(world.stub("a2").await.failures, 0, "kept back is no failure");
    world.put(&[of("a4", "a")]).await;
    assert_eq!(world.round().await.looked_at, 0, "behind the one that comes again");
    world.broker.say_of("a1", Says::Somewhere);
    world.pass(10);
    while world.round().await.sent > 0 {}
    assert_eq!(world.broker.ids(), ["b1", "free", "a1", "a2", "a3", "a4"]);
}

#[tokio::test]
async fn messages_after_a_leased_one_of_their_aggregate_are_not_leased() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a"), of("a3", "a")]).await;
    world.broker.gate.forget_permits(usize::MAX);
    let (one, two) = (world.relay().batch(1), world.relay());
    let beside = async {
        world.broker.called(1).await;
        assert_eq!(two.round().await.unwrap().looked_at, 0);
        world.broker.gate.add_permits(9);
    };
    futures_util::future::join(one.round(), beside).await.0.unwrap();
    assert_eq!(two.round().await.unwrap().sent, 2);
    assert_eq!(world.broker.ids(), ["a1", "a2", "a3"]);
}

#[tokio::test]
async fn many_relays_keep_the_order_of_each_aggregate() {
    let world = World::new().await;
    let many: Vec<_> = (0..120).map(|n| of(&format!("{n:03}"), &(n % 5).to_string())).collect();
    world.put(&many).await;
    let relays: Vec<_> = (0..4).map(|at| world.relay().batch(3 + at)).collect();
    let rounds = relays.iter().map(|relay| async {
        for _ in 0..80 {
            relay.round().await.unwrap();
        }
    });
    futures_util::future::join_all(rounds).await;
    let sent = world.broker.messages();
    assert_eq!(sent.len(), 120);
    for aggregate in 0..5 {
        let of_it = sent.iter().filter(|message| message.aggregate.as_deref() == Some(&aggregate.to_string()));
        let ids: Vec<_> = of_it.map(|message| message.id.clone()).collect();
        assert!(ids.is_sorted() && ids.len() == 24, "{ids:?}");
    }
}

#[tokio::test]
async fn a_message_given_up_unsent_blocks_its_aggregate_until_an_operator_releases_it() {
    for (sends_it, order) in [(true, vec!["a1", "a2"]), (false, vec!["a2"])] {
        let world = World::new().await;
        world.put(&[of("a1", "a"), of("a2", "a")]).await;
        world.broker.say_of("a1", Says::Fails(PublishErrorKind::Refused));
        for _ in 0..3 {
            assert_eq!(world.round().await.sent, 0);
            world.pass(20);
        }
        assert_eq!(world.round().await.given_up, 1);
        assert!(world.bell.alerts()[0].given_up.unwrap().holds_back);
        assert_eq!(world.status("a1").await, OutboxStatus::Dead);
        world.pass(10_000);
        assert_eq!(world.round().await.looked_at, 0);
        world.broker.say_of("a1", Says::Somewhere);
        let before = world.broker.ids().len();
        let mut tx = world.begin().await;
        match sends_it {
            true => world.outbox.resend(&mut tx, "a1", "anna", "the queue is bound now").await.unwrap(),
            false => world.outbox.void(&mut tx, "a1", "anna", "no longer of use").await.unwrap(),
        }
        tx.commit().await.unwrap();
        while world.round().await.sent > 0 {}
        assert_eq!(world.broker.ids().split_off(before), order);
    }
}

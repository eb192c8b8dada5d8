//! Committing and taking in one call, and settling many deliveries at once.
use idempotent_mq::{DeadLetter, Received, Redrive, Settlement, Source};
use idempotent_redis::{DelayDeadLetters, DelayMessage, DelayQueue, DelaySource, RetryDelay, SettleResult};
use tokio::time::timeout;

use crate::delay_queue::world::{World, bodies, due, ms, new, only, time};
use crate::support::until;

/// Sends `count` messages that are due.
async fn some(queue: &DelayQueue, count: usize) {
    let message = |number: usize| DelayMessage::after(ms(0), number.to_string()).id(format!("id-{number}"));
    let messages: Vec<_> = (0..count).map(message).collect();
    for sent in queue.send_all(&messages).await {
        new(sent.unwrap());
    }
}

pub(crate) async fn one_call_commits_deliveries_and_takes_the_next(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    some(&queue, 5).await;
    let first = receiver.receive(2).await.unwrap();
    let steps = world.place.calls("evalsha");
    let next = receiver.commit_and_receive(&first, 2).await.unwrap();
    assert_eq!(world.place.calls("evalsha"), steps + 1);
    assert_eq!(
        (next.committed.unwrap(), bodies(&next.taken)),
        (vec![SettleResult::Done; 2], vec!["2".into(), "3".into()])
    );
    let last = receiver.commit_and_receive_now(&next.taken, 10).await.unwrap();
    assert_eq!(world.place.calls("evalsha"), steps + 2);
    assert_eq!((last.committed.unwrap(), bodies(&last.taken)), (vec![SettleResult::Done; 2], vec!["4".to_owned()]));
    let none = receiver.commit_and_receive_now(&last.taken, 10).await.unwrap();
    assert_eq!((none.committed.unwrap(), none.taken.len()), (vec![SettleResult::Done], 0));
    for part in ["due", "rank", "held", "msg", "state", "ids"] {
        assert_eq!(world.look("EXISTS", part, &[]).integer(), Some(0), "{part} is left behind");
    }
}

pub(crate) async fn a_late_commit_is_lost_and_the_next_messages_are_taken(world: &World) {
    let queue = world.queue().await;
    let (mut receiver, mut other) = (queue.receiver(), queue.receiver());
    some(&queue, 3).await;
    let both = receiver.receive_now(2).await.unwrap();
    world.at(60_000);
    assert_eq!(queue.extend(&both[1]).await.unwrap(), SettleResult::Done);
    let others = other.receive_now(10).await.unwrap();
    assert_eq!(bodies(&others), ["2", "0"], "what is late comes to somebody else");
    new(queue.send(&DelayMessage::after(ms(0), "new")).await.unwrap());
    let next = receiver.commit_and_receive_now(&both, 10).await.unwrap();
    assert_eq!(next.committed.unwrap(), [SettleResult::Lost, SettleResult::Done]);
    assert_eq!(bodies(&next.taken), ["new"]);
    let none = other.commit_and_receive_now(&others, 10).await.unwrap();
    assert_eq!((none.committed.unwrap(), none.taken.len()), (vec![SettleResult::Done; 2], 0));
    assert_eq!(queue.counts().await.unwrap().in_flight, 1, "the one that was taken last");
}

pub(crate) async fn an_expired_delivery_is_committed_before_its_redelivery(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    some(&queue, 1).await;
    let late = receiver.receive_now(1).await.unwrap();
    world.at(70_000);
    let next = receiver.commit_and_receive_now(&late, 10).await.unwrap();
    assert_eq!((next.committed.unwrap(), next.taken.len()), (vec![SettleResult::Done], 0));
}

pub(crate) async fn an_expired_delivery_with_lost_state_is_lost_and_redelivered(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    some(&queue, 1).await;
    queue.rollback(&only(receiver.receive_now(1).await.unwrap()), RetryDelay::Immediate, "").await.unwrap();
    let second = receiver.receive_now(1).await.unwrap();
    world.look("DEL", "state", &[]);
    assert_eq!(queue.commit_all(&second).await.unwrap(), [SettleResult::Lost]);
    world.at(70_000);
    assert_eq!(bodies(&receiver.receive_now(1).await.unwrap()), ["0"]);
}

pub(crate) async fn a_committed_extended_delivery_leaves_nothing_on_the_server(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    some(&queue, 1).await;
    let taken = receiver.receive_now(1).await.unwrap();
    assert_eq!(queue.extend(&taken[0]).await.unwrap(), SettleResult::Done);
    assert_eq!(queue.commit_all(&taken).await.unwrap(), [SettleResult::Done]);
    assert_eq!(world.look("EXISTS", "state", &[]).integer(), Some(0));
}

pub(crate) async fn a_duplicate_with_a_priority_is_due_now(world: &World) {
    let queue = world.queue().await;
    world.at(5);
    let urgent = DelayMessage::priority(100, "x").id("urgent");
    new(queue.send(&urgent).await.unwrap());
    world.at(9);
    let again = queue.send(&urgent).await.unwrap();
    assert_eq!((again.is_new, again.at), (false, time(9)));
}

pub(crate) async fn commits_do_not_wait_for_later_messages(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    for round in ["the slot is asked", "it is known that nothing is due"] {
        some(&queue, 1).await;
        let taken = receiver.receive(1).await.unwrap();
        if round.starts_with("it") {
            assert!(timeout(ms(100), receiver.receive(1)).await.is_err());
        }
        let mut next = Box::pin(receiver.commit_and_receive(&taken, 1));
        let committed = async || queue.counts().await.unwrap().in_flight == 0;
        let waiting = until("it is committed", committed);
        tokio::select! {
            next = &mut next => panic!("{round}: nothing is due: {next:?}"),
            () = waiting => {}
        }
        let message = DelayMessage::after(ms(0), round);
        let (next, _) = tokio::join!(next, queue.send(&message));
        let next = next.unwrap();
        assert_eq!((next.committed.unwrap(), bodies(&next.taken)), (vec![SettleResult::Done], vec![round.to_owned()]));
        queue.commit_all(&next.taken).await.unwrap();
    }
    // A cancelled call takes nothing.
    assert!(timeout(ms(100), receiver.commit_and_receive(&[], 1)).await.is_err());
    some(&queue, 1).await;
    assert_eq!(due(&mut receiver).await, ["0"]);
}

pub(crate) async fn a_delivery_named_twice_is_committed_once(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    some(&queue, 2).await;
    let taken = receiver.receive_now(2).await.unwrap();
    let twice = [taken[0].clone(), taken[0].clone()];
    assert_eq!(queue.commit_all(&twice).await.unwrap(), [SettleResult::Done, SettleResult::Lost]);
    let twice = [taken[1].clone(), taken[1].clone(), taken[0].clone()];
    let next = receiver.commit_and_receive_now(&twice, 1).await.unwrap();
    assert_eq!(next.committed.unwrap(), [SettleResult::Done, SettleResult::Lost, SettleResult::Lost]);
}

pub(crate) async fn commits_for_all_slots_are_sent_with_a_take_from_one(world: &World) {
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let mut receiver = queue.receiver();
    some(&queue, 40).await;
    let (mut all, mut held) = (Vec::new(), Vec::new());
    loop {
        let next = receiver.commit_and_receive_now(&held, 7).await.unwrap();
        assert_eq!(next.committed.unwrap(), vec![SettleResult::Done; held.len()]);
        if next.taken.is_empty() {
            break;
        }
        assert!(next.taken.len() <= 7);
        all.extend(bodies(&next.taken));
        held = next.taken;
    }
    all.sort_by_key(|body| body.parse::<u32>().unwrap());
    assert!(all.into_iter().eq((0..40).map(|number| number.to_string())), "each once");
    let counts = queue.counts().await.unwrap();
    assert_eq!((counts.ready, counts.in_flight), (0, 0));
}

pub(crate) async fn many_messages_are_sent_taken_and_committed_in_order_with_few_calls(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let steps = world.place.calls("evalsha");
    some(&queue, 600).await;
    assert_eq!(world.place.calls("evalsha"), steps + 3, "256 by one step");
    let mut taken = Vec::new();
    for room in [256, 1_000, 88] {
        taken.extend(receiver.receive_now(room).await.unwrap());
    }
    assert!(bodies(&taken).into_iter().eq((0..600).map(|number| number.to_string())));
    queue.commit(&taken[300]).await.unwrap();
    let next = receiver.commit_and_receive_now(&taken, 1).await.unwrap();
    let lost: Vec<_> = next.committed.unwrap().iter().map(|closing| *closing == SettleResult::Lost).collect();
    assert!((0..600).all(|at| lost[at] == (at == 300)));
    assert_eq!(queue.counts().await.unwrap().in_flight, 0);
    assert!(queue.send_all(&[]).await.is_empty() && queue.commit_all(&[]).await.unwrap().is_empty());
}

pub(crate) async fn each_of_many_sent_messages_has_its_own_result(world: &World) {
    let queue = world.queue_with(|builder| builder.slots(4)).await;
    let timed = |body: &str, id: &str| DelayMessage::at(time(500), body).id(id).slot_basis("b");
    let messages = [
        timed("first", "a"),
        DelayMessage::priority(16, "no priority"),
        timed("same id", "a"),
        DelayMessage::at(time(0), "past").slot_basis("b"),
        DelayMessage::merged("k", ms(9), "merged"),
        DelayMessage::merged("k", ms(99), "into it"),
        DelayMessage::due(time(0), "past will do"),
        timed("", ""),
        DelayMessage::priority(17, "ranked"),
    ];
    let sent = queue.send_all(&messages).await;
    let told: Vec<_> = sent.iter().map(|sent| sent.as_ref().map(|sent| (sent.is_new, sent.at))).collect();
    let refused = |at: usize| told[at].unwrap_err().to_string();
    assert_eq!(told.len(), 9);
    assert_eq!(told[0].unwrap(), (true, time(500)));
    assert!(refused(1).contains("priority is 16"), "{}", refused(1));
    assert_eq!(told[2].unwrap(), (false, time(500)));
    assert!(refused(3).contains("fixed_time is 0 µs after the server's"), "{}", refused(3));
    assert_eq!((told[4].unwrap(), told[5].unwrap()), ((true, time(9)), (false, time(9))));
    assert_eq!(told[6].unwrap(), (true, time(0)));
    assert!(refused(7).contains("the id has 0 bytes"), "{}", refused(7));
    assert_eq!(told[8].unwrap(), (true, time(0)));
    world.at(501);
    let mut all = due(&mut queue.receiver()).await;
    all.sort();
    assert_eq!(all, ["first", "merged", "past will do", "ranked"]);
}

pub(crate) async fn a_waiting_receiver_is_woken_once_by_the_earliest_of_many_messages(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    let mut take = Box::pin(receiver.receive(10));
    assert!(timeout(ms(150), &mut take).await.is_err());
    until("it waits", async || world.look("HEXISTS", "meta", &["waits"]).integer() == Some(1)).await;
    let told = world.place.calls("publish");
    let messages = [100, 0, 50].map(|later| DelayMessage::after(ms(later * 60_000), later.to_string()));
    let (taken, _) = tokio::join!(timeout(ms(4_000), take), queue.send_all(&messages));
    assert_eq!(bodies(&taken.expect("it was not woken").unwrap()), ["0"]);
    assert_eq!(world.place.calls("publish"), told + 1);
}

pub(crate) async fn retries_and_new_messages_are_taken_together(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::priority(99, "urgent")).await.unwrap());
    queue.rollback(&only(receiver.receive_now(1).await.unwrap()), RetryDelay::After(ms(5)), "again").await.unwrap();
    some(&queue, 3).await;
    for taken in receiver.receive_now(10).await.unwrap().iter().take(2) {
        queue.rollback(taken, RetryDelay::After(ms(5)), "again").await.unwrap();
    }
    world.at(5);
    new(queue.send(&DelayMessage::merged("k", ms(1), "merged")).await.unwrap());
    new(queue.send(&DelayMessage::priority(20, "ranked")).await.unwrap());
    world.at(6);
    let taken = receiver.receive_now(10).await.unwrap();
    assert_eq!(
        bodies(&taken),
        ["0", "1", "merged", "ranked", "urgent"],
        "what came back behind what is new of its kind"
    );
    let seen: Vec<_> = taken.iter().map(|one| (one.attempt, one.delivered, one.first_at)).collect();
    let (again, first) = ((2, 2, time(0)), (1, 1, time(6)));
    assert_eq!(seen, [again, again, first, first, again]);
    // Only the delivery of the merged message frees its key.
    new(queue.send(&DelayMessage::merged("k", ms(1), "next")).await.unwrap());
    let same = queue.send(&DelayMessage::after(ms(0), "0").id("id-0")).await.unwrap();
    assert!(!same.is_new, "{same:?}");
    // Committing all of them does not free a key that another message uses by now.
    assert_eq!(queue.commit_all(&taken).await.unwrap(), [SettleResult::Done; 5]);
    let into = queue.send(&DelayMessage::merged("k", ms(1), "into it")).await.unwrap();
    assert!(!into.is_new, "{into:?}");
}

pub(crate) async fn a_lost_first_delivery_time_is_replaced_by_the_next_delivery(world: &World) {
    let queue = world.queue().await;
    let mut source = DelaySource::new(&queue);
    some(&queue, 1).await;
    let Received::Deliveries(some) = source.receive(1).await.unwrap() else { panic!("nothing came") };
    let (delivery, tag) = only(some);
    let mut letter = DeadLetter::because("by hand", time(0));
    letter.first_at = idempotent_core::Timestamp(0);
    source.settler().settle(&delivery, &tag, &Settlement::DeadLetter(letter)).await.unwrap();
    let redriven = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
    assert_eq!(redriven.put_back, 1);
    world.at(7);
    assert_eq!(only(queue.receiver().receive_now(1).await.unwrap()).first_at, time(7));
}

pub(crate) async fn a_late_commit_keeps_a_name_that_another_message_uses(world: &World) {
    let queue = world.queue_with(|builder| builder.max_retries(0)).await;
    let mut receiver = queue.receiver();
    some(&queue, 1).await;
    let dead = only(receiver.receive_now(1).await.unwrap());
    queue.rollback(&dead, RetryDelay::Immediate, "").await.unwrap();
    let again = DelayMessage::after(ms(60_000), "again").id("id-0");
    new(queue.send(&again).await.unwrap());
    let _ = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
    let back = only(receiver.receive_now(1).await.unwrap());
    assert_eq!(queue.commit(&dead).await.unwrap(), SettleResult::Lost, "that was the delivery before");
    assert_eq!(queue.commit(&back).await.unwrap(), SettleResult::Done);
    assert!(!queue.send(&again).await.unwrap().is_new, "the second one goes by it still");
    queue.purge().await.unwrap();
    // The body was lost during delivery, and another message was sent.
    let queue = world.queue().await;
    new(queue.send(&DelayMessage::after(ms(0), "lost").id("l")).await.unwrap());
    let lost = only(receiver.receive_now(1).await.unwrap());
    let member = world.look("ZRANGE", "held", &["0", "0"]).items()[0].text();
    world.look("HDEL", "msg", &[&member]);
    let again = DelayMessage::after(ms(60_000), "again").id("l");
    new(queue.send(&again).await.unwrap());
    assert_eq!(queue.commit(&lost).await.unwrap(), SettleResult::Done);
    assert!(!queue.send(&again).await.unwrap().is_new);
}

pub(crate) async fn the_first_delivery_time_is_known_for_any_visibility_timeout(world: &World) {
    let queue = world.queue().await;
    let hurried = world.queue_with(|builder| builder.visibility(ms(2_000))).await;
    let (mut receiver, mut other) = (queue.receiver(), hurried.receiver());
    some(&queue, 3).await;
    world.at(10);
    let extended = only(receiver.receive_now(1).await.unwrap());
    world.at(20);
    assert_eq!(other.receive_now(1).await.unwrap().len(), 1);
    world.at(30);
    assert_eq!(receiver.receive_now(1).await.unwrap().len(), 1);
    world.at(40);
    assert_eq!(queue.extend(&extended).await.unwrap(), SettleResult::Done);
    world.at(60_040);
    let again = receiver.receive_now(10).await.unwrap();
    let firsts: Vec<_> = again.iter().map(|taken| (taken.first_at, taken.delivered)).collect();
    assert_eq!(
        (bodies(&again), firsts),
        (vec!["1".into(), "2".into(), "0".into()], [20, 30, 10].map(|at| (time(at), 2)).to_vec())
    );
    queue.commit_all(&again).await.unwrap();
    // No message is in delivery, so the new timeout applies to all from now on.
    some(&queue, 1).await;
    world.at(60_050);
    other.receive_now(1).await.unwrap();
    assert_eq!(world.look("EXISTS", "state", &[]).integer(), Some(0));
    world.at(62_050);
    assert_eq!(only(receiver.receive_now(1).await.unwrap()).first_at, time(60_050));
}

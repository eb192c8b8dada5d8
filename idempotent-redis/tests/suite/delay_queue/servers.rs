//! Effects of servers on a queue: sentinels, permissions, clocks, script caches and invalid settings.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{RedisSentinels, RedisServer};
use idempotent_mq::{DeadLetter, DelayErrorKind, Received, Redrive, Settlement, Source};
use idempotent_redis::{
    DelayDeadLetters, DelayDelivery, DelayMessage, DelayQueue, DelayQueueBuilder, DelayReceiver, DelaySource,
    RetryDelay, RollbackResult, SettleResult,
};

use crate::delay_queue::world::{MINUTE, Place, World, bodies, due, letters, ms, new, time};
use crate::support::until;

/// Uses every operation of a queue.
async fn goes_round(queue: &DelayQueue) {
    let mut receiver = queue.receiver();
    for message in [DelayMessage::after(ms(1), "a").id("i"), DelayMessage::priority(20, "b")] {
        new(queue.send(&message).await.unwrap());
    }
    let mut settled = 0;
    while settled < 2 {
        let taken = tokio::time::timeout(MINUTE, receiver.receive(1)).await.unwrap().unwrap().remove(0);
        if taken.deaths > 0 {
            assert_eq!(queue.commit(&taken).await.unwrap(), SettleResult::Done);
            settled += 1;
        } else {
            assert_eq!(queue.extend(&taken).await.unwrap(), SettleResult::Done);
            queue.rollback(&taken, RetryDelay::Immediate, "").await.unwrap();
            let redriven = Redrive::new().run(&mut DelayDeadLetters::new(queue)).await;
            assert!(redriven.failed.is_none(), "{redriven:?}");
        }
    }
    queue.cancel("i").await.unwrap();
    queue.purge_dead(10).await.unwrap();
    queue.purge().await.unwrap();
    assert_eq!(queue.counts().await.unwrap(), idempotent_redis::DelayCounts::default());
}

async fn mortal(url: String) -> DelayQueue {
    DelayQueue::builder(url, "orders").max_retries(0).connect().await.unwrap()
}

#[tokio::test]
async fn a_user_with_the_documented_permissions_can_use_every_operation() {
    let server = RedisServer::start();
    let docs = include_str!("../../../src/delay_queue/queue.rs");
    let rule: String = docs.split("An ACL user needs `").nth(1).unwrap().split('`').next().unwrap().replace("///", " ");
    let rule = rule.replace("<namespace>", "idempotent");
    let mut command = vec!["ACL", "SETUSER", "worker", "reset", "on", ">hunter2"];
    command.extend(rule.split_whitespace());
    assert!(!server.command(&command).is_error(), "{command:?}");
    let queue = mortal(format!("redis://worker:hunter2@{}", server.address())).await;
    goes_round(&queue).await;
    server.command(&["ACL", "SETUSER", "worker", "-zadd"]);
    let refused = queue.send(&DelayMessage::priority(20, "secret")).await.unwrap_err();
    assert_eq!(refused.kind(), DelayErrorKind::Refused, "{refused}");
    assert!(!refused.to_string().contains("secret") && !refused.to_string().contains("hunter2"));
}

/// Takes a message, once a server answers.
async fn taken_again(receiver: &mut DelayReceiver) -> Vec<DelayDelivery> {
    let mut taken = Vec::new();
    until("a message is taken", async || {
        taken.extend(receiver.receive_now(1).await.unwrap_or_default());
        !taken.is_empty()
    })
    .await;
    taken
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The queue drains, because consumers are unaffected; the server rejects only producers.
#[tokio::test]
async fn a_queue_on_a_full_server_drains_and_rejects_new_messages() {
    let server = RedisServer::builder().args(["--maxmemory-policy", "noeviction"]).start();
    let world = World::new(Arc::new(Place::Single(server)), str::to_owned);
    let queue = world.queue_with(|builder| builder.visibility(MINUTE).max_retries(1).slots(1)).await;
    let memory = |bytes: &str| drop(world.place.nodes()[0].command(&["CONFIG", "SET", "maxmemory", bytes]));
    // The test's clock is a key of its own.
    let at = |ms| {
        memory("0");
        world.at(ms);
        memory("1");
    };
    let all = ["done", "extended", "at once", "later", "held", "buried", "left"];
    for name in all {
        new(queue.send(&DelayMessage::priority(100, name).id(name)).await.unwrap());
    }
    // Deliveries taken before and after memory is full, settled by a committing take and by a plain commit.
    let mut receiver = queue.receiver();
    let early = receiver.receive_now(2).await.unwrap();
    memory("1");
    let refused = queue.send(&DelayMessage::priority(100, "new")).await.unwrap_err();
    assert_eq!(refused.kind(), DelayErrorKind::NotApplied, "{refused}");
    assert!(refused.to_string().contains("the server's memory is full"), "{refused}");
    let taken = receiver.receive_now(3).await.unwrap();
    assert_eq!((bodies(&early), bodies(&taken)), (owned(&all[..2]), owned(&all[2..5])));
    let mut source = DelaySource::new(&queue);
    let Received::Deliveries(received) = source.receive(1).await.unwrap() else { panic!("nothing is revoked") };

    assert_eq!(queue.commit(&early[0]).await.unwrap(), SettleResult::Done);
    at(30_000);
    assert_eq!(queue.extend(&early[1]).await.unwrap(), SettleResult::Done);
    assert_eq!(queue.rollback(&taken[0], RetryDelay::Immediate, "no").await.unwrap(), RollbackResult::Again);
    assert_eq!(queue.rollback(&taken[1], RetryDelay::After(ms(1_000)), "no").await.unwrap(), RollbackResult::Again);
    let (delivery, tag) = &received[0];
    let letter = DeadLetter::because("never", time(30_000));
    source.settler().settle(delivery, tag, &Settlement::DeadLetter(letter)).await.unwrap();
    assert_eq!(letters(&queue).await.len(), 1);

    // Some messages are redelivered, and some have no retries left.
    at(70_000);
    let again = receiver.receive_now(100).await.unwrap();
    let names: BTreeSet<_> = bodies(&again).into_iter().collect();
    assert_eq!(names, ["at once", "held", "later", "left"].map(str::to_owned).into());
    for taken in &again {
        let back = queue.rollback(taken, RetryDelay::Immediate, "no").await.unwrap();
        assert_eq!(back, if taken.body == b"left" { RollbackResult::Again } else { RollbackResult::Dead });
    }
    assert_eq!(due(&mut receiver).await, ["left"]);
    assert_eq!(letters(&queue).await.len(), 4);
    memory("0");
    new(queue.send(&DelayMessage::priority(100, "new")).await.unwrap());
}

#[tokio::test]
async fn flushed_scripts_are_resent() {
    let server = RedisServer::start();
    let queue = mortal(server.url()).await;
    goes_round(&queue).await;
    server.command(&["SCRIPT", "FLUSH"]);
    goes_round(&queue).await;
}

#[tokio::test]
async fn messages_sent_through_sentinels_survive_a_failover() {
    let group = RedisSentinels::start();
    let queue = mortal(group.url()).await;
    goes_round(&queue).await;
    new(queue.send(&DelayMessage::priority(20, "kept")).await.unwrap());
    let copied = async || {
        group.replica().info("db0").starts_with("keys=")
            && group.primary().command(&["WAIT", "1", "1000"]).integer() == Some(1)
    };
    until("the replica has it", copied).await;
    let old = group.kill_primary();
    group.wait_for_failover(old);
    let mut receiver = queue.receiver();
    let taken = taken_again(&mut receiver).await;
    assert_eq!(bodies(&taken), ["kept"]);
    until("it is committed", async || queue.commit(&taken[0]).await.is_ok_and(|closing| closing == SettleResult::Done))
        .await;
}

#[tokio::test]
async fn a_waiting_receiver_notices_a_server_clock_that_is_set_forward() {
    let server = RedisServer::builder().faketime().start();
    let queue = DelayQueue::builder(server.url(), "orders").visibility(MINUTE).connect().await.unwrap();
    let mut receiver = queue.receiver();
    new(queue.send(&DelayMessage::after(MINUTE * 60, "m")).await.unwrap());
    let mut take = Box::pin(receiver.receive(1));
    assert!(tokio::time::timeout(ms(200), &mut take).await.is_err(), "not before its time");
    server.shift_clock(3_601.0);
    let taken = tokio::time::timeout(MINUTE, take).await.expect("nobody looked").unwrap();
    assert_eq!(bodies(&taken), ["m"]);
    // Held by the server's clock for a full minute.
    let mut other = queue.receiver();
    server.shift_clock(3_601.0 + 50.0);
    assert!(other.receive_now(1).await.unwrap().is_empty());
    server.shift_clock(3_601.0 + 61.0);
    assert_eq!(bodies(&other.receive_now(1).await.unwrap()), ["m"]);
}

#[tokio::test]
async fn a_waiting_receiver_survives_a_server_restart() {
    let server = RedisServer::builder().aof().start();
    let queue = DelayQueue::connect(server.url(), "orders").await.unwrap();
    new(queue.send(&DelayMessage::after(ms(1), "m")).await.unwrap());
    let mut receiver = queue.receiver();
    server.kill();
    let down = receiver.receive(1).await.unwrap_err();
    assert!(matches!(down.kind(), DelayErrorKind::NotApplied | DelayErrorKind::Ambiguous), "{down}");
    server.restart();
    assert_eq!(bodies(&taken_again(&mut receiver).await), ["m"]);
}

#[tokio::test]
async fn a_lost_reply_keeps_the_commits_and_redelivers_the_messages() {
    let server = RedisServer::start();
    for (fault, is_applied) in [(Fault::CutBeforeSend, false), (Fault::CutAfterApply, true), (Fault::CutMidReply, true)]
    {
        let between = Proxy::start(&server.address()).await;
        let queue = DelayQueue::builder(between.url(), "orders").visibility(ms(1_000)).connect().await.unwrap();
        let mut receiver = queue.receiver();
        for sent in queue.send_all(&["first", "next"].map(|body| DelayMessage::after(ms(0), body))).await {
            new(sent.unwrap());
        }
        let first = receiver.receive(1).await.unwrap();
        between.fail_next_with("EVALSHA", fault);
        let lost = receiver.commit_and_receive(&first, 1).await.unwrap_err();
        assert_eq!((lost.kind(), between.met()), (DelayErrorKind::Ambiguous, 1), "{lost}");
        let closing = if is_applied { SettleResult::Lost } else { SettleResult::Done };
        assert_eq!(queue.commit(&first[0]).await.unwrap(), closing, "{fault:?}");
        let next = tokio::time::timeout(MINUTE, receiver.receive(1)).await.unwrap().unwrap();
        assert_eq!(
            (bodies(&next), next[0].delivered),
            (vec!["next".to_owned()], 1 + u32::from(is_applied)),
            "{fault:?}"
        );
        queue.purge().await.unwrap();
    }
}

#[tokio::test]
async fn no_messages_are_sent_to_a_slot_after_a_failed_batch() {
    let server = RedisServer::start();
    let between = Proxy::start(&server.address()).await;
    let queue = DelayQueue::builder(between.url(), "orders").connect().await.unwrap();
    new(queue.send(&DelayMessage::after(ms(0), "so that the script is known")).await.unwrap());
    let messages: Vec<_> = (0..300).map(|number| DelayMessage::after(ms(0), number.to_string())).collect();
    between.fail_next_with("EVALSHA", Fault::CutAfterApply);
    let kinds: Vec<_> = queue.send_all(&messages).await.into_iter().map(|sent| sent.unwrap_err().kind()).collect();
    assert_eq!(kinds[..256], [DelayErrorKind::Ambiguous; 256]);
    assert_eq!(kinds[256..], [DelayErrorKind::NotApplied; 44]);
    assert_eq!(queue.counts().await.unwrap().ready, 257);
}

#[tokio::test]
async fn invalid_settings_and_evicting_servers_are_refused_with_a_remedy() {
    let server = RedisServer::start();
    let refused = async |topic: &str, set: fn(DelayQueueBuilder) -> DelayQueueBuilder| {
        let refused = set(DelayQueue::builder(server.url(), topic)).connect().await.unwrap_err();
        assert_eq!(refused.kind(), DelayErrorKind::Refused, "{refused}");
        refused.to_string()
    };
    assert!(refused("t", |builder| builder.slots(0)).await.contains("slots is 0; set it to 1 to 1024"));
    assert!(refused("t", |builder| builder.slots(1_025)).await.contains("1025"));
    assert!(refused("t", |builder| builder.visibility(Duration::ZERO)).await.contains("1 ms to 7 days"));
    assert!(refused("t", |builder| builder.visibility(MINUTE * 60 * 24 * 8)).await.contains("1 ms to 7 days"));
    assert!(refused("t", |builder| builder.namespace("a{b}")).await.contains("a brace"));
    assert!(refused("t", |builder| builder.namespace("")).await.contains("empty"));
    assert!(refused("", |builder| builder).await.contains("1 to 1024 bytes"));
    server.command(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    assert!(refused("t", |builder| builder).await.contains("noeviction"));
    DelayQueue::builder(server.url(), "t").allow_eviction(true).connect().await.unwrap();
    let strange = DelayQueue::connect("amqp://localhost", "t").await.unwrap_err();
    assert_eq!(strange.kind(), DelayErrorKind::Refused, "{strange}");
}

#[tokio::test]
async fn an_error_of_connecting_names_the_address_the_cause_and_the_remedy() {
    use DelayErrorKind::{NotApplied, Refused};
    let servers = [RedisServer::start(), RedisServer::builder().password("right").start()];
    let [plain, secured] = servers.each_ref().map(RedisServer::address);
    for (address, path, kind, words) in [
        ("127.0.0.1:1", "", NotApplied, ["refused", "check that the server is running, and the port"]),
        ("no.such.host.invalid:7", "", NotApplied, ["lookup", "check the host name"]),
        (&secured, "", Refused, ["WRONGPASS", "check user and password in the URL"]),
        (&plain, "/99", Refused, ["DB index is out of range", "database 99 does not exist; raise `databases`"]),
    ] {
        let login = if path.is_empty() { ":hunter2@" } else { "" };
        let error = DelayQueue::connect(format!("redis://{login}{address}{path}"), "t").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for word in [&words[..], &[address]].concat() {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

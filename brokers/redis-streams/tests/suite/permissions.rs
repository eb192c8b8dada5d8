//! The permissions of a user.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Settlement, Source, SourceErrorKind};
use idempotent_redis_streams::{StreamsSource, StreamsSourceBuilder, TrimPolicy};

use crate::world::{World, ms, nothing_until, one, retry, settle};

fn rule() -> Vec<&'static str> {
    let docs = include_str!("../../src/docs/streams.md");
    let (_, rule) = docs.split_once("```text\n").unwrap();
    rule.split_once("\n```").unwrap().0.split_whitespace().collect()
}

fn builder(world: &World, rule: &[&str]) -> StreamsSourceBuilder {
    let user = [&["ACL", "SETUSER", "reader", "on", ">secret"], rule].concat();
    assert_eq!(world.server.command(&user).text(), "OK");
    let url = format!("redis://reader:secret@{}", world.server.address());
    StreamsSource::builder(url, "orders", "billing")
        .min_idle(ms(200))
        .declare(idempotent_redis_streams::StartPosition::New)
}

#[tokio::test]
async fn the_documented_rule_is_sufficient() {
    for keep in [TrimPolicy::Everything, TrimPolicy::Unfinished, TrimPolicy::Unacknowledged] {
        let world = World::new();
        let mut source = builder(&world, &rule()).keep(keep).connect().await.unwrap();
        let settler = source.settler();
        world.send("1");
        let held = one(&mut source).await;
        settler.keep_alive(&[&held.1]).await.unwrap();
        settle(&settler, &held, retry(ms(10))).await;
        let held = one(&mut source).await;
        settle(&settler, &held, Settlement::GiveBack).await;
        let held = one(&mut source).await;
        settle(&settler, &held, Settlement::DeadLetter(DeadLetter::because("no", Timestamp(1)))).await;
        world.send("2");
        let held = one(&mut source).await;
        settle(&settler, &held, Settlement::Ack).await;
        let searches = world.calls("xautoclaim");
        nothing_until(&mut source, || world.calls("xautoclaim") > searches + 2).await;
        // No command was denied in the process.
        assert_eq!(world.server.command(&["ACL", "LOG"]), idempotent_harness::servers::Value::Array(Vec::new()));
    }
}

#[tokio::test]
async fn a_missing_permission_ends_the_consumer_with_a_remedy() {
    let world = World::new();
    let rule: Vec<_> = rule().into_iter().chain(["-xclaim"]).collect();
    let mut source = builder(&world, &rule).connect().await.unwrap();
    world.send("1");
    let held = one(&mut source).await;
    let refused = source.settler().settle(&held.0, &held.1, &retry(ms(10))).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal, "{refused}");
    assert!(refused.to_string().contains("list the commands"), "{refused}");
}

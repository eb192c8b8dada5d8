//! Stored items: the TTL, the size, items of other programs, and duplicates of several processes.
use idempotent_core::{
    Call, Cas, CasBackend, DefaultReply, Executor, FencingToken, Handler, Identity, Json, Outcome, OwnerToken, Record,
    Rejection, Scene, State, StoreErrorKind, Timestamp,
};
use idempotent_dynamodb::aws_sdk_dynamodb::primitives::Blob;
use idempotent_dynamodb::aws_sdk_dynamodb::types::AttributeValue;
use idempotent_testkit::VirtualClock;

use crate::world::{World, key, record, secs};

async fn outcome(executor: &Executor, part: &str) -> Outcome {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(42) });
    let call = Call::new(Identity::new(Scene::Mq, "orders", part));
    Outcome::capture(executor.run(call, handler)).await.1.unwrap()
}

#[tokio::test]
async fn a_duplicate_of_another_backend_gets_the_result_from_the_table() {
    let world = World::new().await;
    let executors = [(); 2].map(|()| world.backend());
    let [first, second] = executors;
    let (first, second) = (Executor::new(Cas(first.await)), Executor::new(Cas(second.await)));
    assert_eq!(outcome(&first, "1").await, Outcome::Ran);
    assert_eq!(outcome(&second, "1").await, Outcome::Replayed);
    let item = world.item(&key("1")).await.unwrap();
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["id", "record", "ttl", "version"]);
}

#[tokio::test]
async fn an_item_may_be_deleted_an_hour_after_the_end_of_its_record() {
    let world = World::new().await;
    let backend = world.backend().await;
    let now = VirtualClock::START;
    let second = now.0 / 1_000_000;
    let fenced = FencingToken((now + secs(600)).0);
    let fraction = Timestamp((now + secs(60)).0 + 1);
    for (part, record, ttl) in [
        ("1", record(now, now + secs(60)), Some(second + 3_660)),
        ("2", record(now, fraction), Some(second + 3_661)),
        ("3", Record { fencing: fenced, ..record(now, now + secs(60)) }, Some(second + 4_200)),
        ("4", record(now, Timestamp::FOREVER), None),
    ] {
        assert!(backend.swap(&key(part), 0, Some(&record)).await.unwrap());
        let item = world.item(&key(part)).await.unwrap();
        let stored = item.get("ttl").map(|ttl| ttl.as_n().unwrap().parse::<u64>().unwrap());
        assert_eq!(stored, ttl, "record {part}");
        assert_eq!(backend.read(&key(part)).await.unwrap().record, Some(record));
    }
}

#[tokio::test]
async fn a_result_without_room_in_an_item_is_not_kept_and_the_key_is_consumed() {
    let world = World::new().await;
    let backend = world.backend().await;
    let now = VirtualClock::START;
    let with = |bytes: usize| Record {
        state: State::Consumed { owner: OwnerToken(7), value: Some(vec![7; bytes].into()) },
        ..record(now, now + secs(60))
    };
    let envelope = with(0).to_bytes().len();
    let largest = with(399_000 - envelope);
    assert_eq!(largest.to_bytes().len(), 399_000);
    for (part, next, expected) in
        [("1", largest.clone(), largest), ("2", with(399_000 - envelope + 1), record(now, now + secs(60)))]
    {
        assert!(backend.swap(&key(part), 0, Some(&next)).await.unwrap());
        assert!(backend.read(&key(part)).await.unwrap().record == Some(expected), "record {part}");
    }
}

#[tokio::test]
async fn an_item_of_another_program_is_left_unchanged() {
    let world = World::new().await;
    let backend = world.backend().await;
    let id = AttributeValue::S(key("1").as_str().to_owned());
    let bytes = record(VirtualClock::START, Timestamp::FOREVER).to_bytes();
    let (bytes, text) = (AttributeValue::B(Blob::new(bytes)), AttributeValue::S("paid".to_owned()));
    for (stored, version) in [(&text, "7"), (&bytes, "0"), (&bytes, "-1"), (&bytes, "1.5")] {
        let put =
            world.client.put_item().table_name(&world.table).item("id", id.clone()).item("record", stored.clone());
        put.item("version", AttributeValue::N(version.to_owned())).send().await.unwrap();
        let before = world.item(&key("1")).await;
        let error = backend.read(&key("1")).await.unwrap_err();
        assert!(
            error.kind() == StoreErrorKind::Foreign && error.to_string().contains("without other items"),
            "{error}"
        );
        let now = VirtualClock::START;
        assert!(!backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await.unwrap());
        assert_eq!(world.item(&key("1")).await, before);
    }
}

#[tokio::test]
async fn the_longest_key_fits_into_a_partition_key() {
    let world = World::new().await;
    let backend = world.backend().await;
    let longest = Identity::new(Scene::Mq, "\u{10400}".repeat(4_000), "7").key(&"n".repeat(40)).unwrap();
    assert!(longest.as_str().len() <= 145, "{} bytes", longest.as_str().len());
    let now = VirtualClock::START;
    assert!(backend.swap(&longest, 0, Some(&record(now, now + secs(60)))).await.unwrap());
    assert!(backend.read(&longest).await.unwrap().record.is_some());
}

#[tokio::test]
async fn a_difference_of_clocks_above_10_minutes_is_refused() {
    let world = World::new().await;
    assert!(world.builder().max_skew(secs(600)).open().await.is_ok());
    let error = world.builder().max_skew(secs(601)).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("at most 600s"), "{error}");
}

#[tokio::test]
async fn no_text_contains_the_credentials_or_the_endpoint() {
    let world = World::new().await;
    let backend = world.backend().await;
    let missing = idempotent_dynamodb::DynamoBackend::builder(&world.client, "absent").open().await.unwrap_err();
    // A port on which no server listens.
    let closed = crate::world::client("127.0.0.1:1");
    let unreachable = idempotent_dynamodb::DynamoBackend::builder(&closed, "absent").open().await.unwrap_err();
    let errors = [format!("{missing:?}"), missing.to_string(), format!("{unreachable:?}"), unreachable.to_string()];
    for text in [format!("{backend:?}"), format!("{:?}", world.builder())].into_iter().chain(errors) {
        assert!(!text.contains("secret-of-test") && !text.contains(&world.address), "{text}");
    }
    assert!(format!("{backend:?}").contains(&world.table));
}

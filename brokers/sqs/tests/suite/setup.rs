//! Opening a source: what is created, what is refused, and by which error.
use idempotent_core::{Executor, MemoryStore, Policy, Scene};
use idempotent_harness::servers::unusable_endpoints;
use idempotent_mq::{Consumer, Source, SourceError, SourceErrorKind};
use idempotent_sqs::aws_sdk_sqs::Client;
use idempotent_sqs::aws_sdk_sqs::config::{BehaviorVersion, Config, Region};
use idempotent_sqs::aws_sdk_sqs::types::QueueAttributeName;
use idempotent_sqs::{SqsSource, SqsSourceBuilder};

use crate::world::{World, client, client_in, counting, ms, server};

/// Checks a part of the text of a permanent error.
#[track_caller]
fn refused(opened: Result<SqsSource, SourceError>, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(part), "{error}");
}

impl World {
    /// Sets the number of receives in the redrive policy of the queue.
    async fn limit_receives(&self, number: u32) {
        let dead = self.client.get_queue_attributes().queue_url(self.url(&self.dead()).await);
        let dead = dead.attribute_names(QueueAttributeName::QueueArn).send().await.unwrap();
        let arn = &dead.attributes().unwrap()[&QueueAttributeName::QueueArn];
        let policy = format!(r#"{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": {number}}}"#);
        let set = self.client.set_queue_attributes().queue_url(self.url(&self.name).await);
        set.attributes(QueueAttributeName::RedrivePolicy, policy).send().await.unwrap();
    }
}

#[tokio::test]
async fn queues_that_do_not_exist_are_named_with_their_remedy_and_created_on_request() {
    let client = client_in(&server().await, "eu-north-1");
    for name in ["orders", "orders.fifo"] {
        let builder = || SqsSource::builder(client.clone(), name);
        refused(builder().connect().await, &format!("`{name}`: "));
        refused(builder().connect().await, "create the queue, by `declare`");
        builder().declare().connect().await.unwrap();
        builder().declare().connect().await.unwrap();
        builder().connect().await.unwrap();
        refused(builder().dead_letters(name.replace("orders", "buried")).connect().await, "opening the queue `buried");
    }
    let dead = client.get_queue_url().queue_name("orders-dead.fifo").send().await.unwrap().queue_url.unwrap();
    let dead = client.get_queue_attributes().queue_url(&dead).attribute_names(QueueAttributeName::All).send().await;
    let attributes = dead.unwrap().attributes.unwrap();
    assert_eq!(attributes[&QueueAttributeName::MessageRetentionPeriod], "1209600", "14 days");
    assert_eq!(attributes[&QueueAttributeName::FifoQueue], "true");
}

#[tokio::test]
async fn a_queue_is_opened_by_its_url() {
    let world = World::new().await;
    let (url, dead) = (world.url(&world.name).await, world.url(&world.dead()).await);
    SqsSource::connect(world.client.clone(), &*url).await.unwrap();
    SqsSource::builder(world.client.clone(), &*url).dead_letters(dead).connect().await.unwrap();
    let nowhere = |url: &str| SqsSource::builder(world.client.clone(), url.replace("/orders", "/new-orders"));
    refused(nowhere(&url).connect().await, "create the queue");
    nowhere(&url).declare().connect().await.unwrap();
    let other_account = url.rsplit_once('/').unwrap().0.rsplit_once('/').unwrap().0.to_owned() + "/999999999999/orders";
    refused(nowhere(&other_account).declare().connect().await, "use its account and region");
}

#[tokio::test]
async fn bad_settings_are_refused() {
    let builder = |queue: &str| SqsSource::builder(client("127.0.0.1:1"), queue);
    let of_orders = |set: fn(SqsSourceBuilder) -> SqsSourceBuilder| set(builder("orders")).connect();
    refused(builder("or ders").connect().await, "`queue` is `or ders`; use a name of 1 to 80 letters");
    refused(builder("arn:aws:sqs:eu-west-1:1:orders").connect().await, "or the URL of a queue");
    refused(builder("orders").dead_letters("x/y").connect().await, "`dead_letters` is `x/y`");
    refused(of_orders(|builder| builder.dead_letters("orders")).await, "`dead_letters` is the queue itself");
    refused(of_orders(|builder| builder.dead_letters("dead.fifo")).await, "use a standard queue");
    refused(builder("orders.fifo").dead_letters("dead").connect().await, "use a FIFO queue");
    refused(of_orders(|builder| builder.visibility_timeout(ms(0))).await, "`visibility_timeout` is 0ns");
    refused(of_orders(|builder| builder.visibility_timeout(ms(43_200_001))).await, "set it to 1 s to 12 h");
    refused(of_orders(|builder| builder.long_poll(ms(20_001))).await, "`long_poll` is 20.001s");
    let url = |account: u32| format!("http://127.0.0.1:1/{account}/orders");
    for (queue, dead) in [("orders".to_owned(), url(1)), (url(1), "orders".to_owned()), (url(1), url(1))] {
        refused(builder(&queue).dead_letters(dead).connect().await, "`dead_letters` is the queue itself");
    }
    for good in [
        builder("orders").visibility_timeout(ms(43_200_000)).long_poll(ms(20_000)),
        builder(&url(1)).dead_letters(url(2)),
    ] {
        let error = good.connect().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Transient, "no server answers: {error}");
    }
    let url = "https://sqs.us-east-1.amazonaws.com/123456789012/orders";
    refused(builder(url).connect().await, "in the region `us-east-1`, and the client in `eu-west-1`");
}

#[tokio::test]
async fn a_client_without_a_server_region_or_credentials_is_an_error_with_the_remedy() {
    let closed = SqsSource::connect(client("127.0.0.1:1"), "orders").await.map(drop).unwrap_err();
    assert_eq!(closed.kind(), SourceErrorKind::Transient, "{closed}");
    assert!(closed.to_string().contains("check the region and the endpoint"), "{closed}");
    let declaring = SqsSource::builder(client("127.0.0.1:1"), "orders").declare().connect().await.map(drop);
    assert!(declaring.unwrap_err().to_string().contains("opening the queue `orders`"), "nothing is created");
    let config = || Config::builder().behavior_version(BehaviorVersion::latest());
    let nowhere = Client::from_conf(config().build());
    let error = SqsSource::connect(nowhere, "orders").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("set the region and the credentials"), "{error}");
    let config = config().region(Region::new("eu-west-1")).endpoint_url(format!("http://{}", server().await));
    let error = SqsSource::connect(Client::from_conf(config.build()), "orders").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("set the region and the credentials"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_refuses_the_credentials_is_an_error_with_cause_and_remedy() {
    let started = tokio::task::spawn_blocking(|| unusable_endpoints("SQS"));
    let (endpoints, _servers) = started.await.unwrap();
    for (endpoint, cause, remedy) in endpoints {
        let config = client("127.0.0.1:1").config().to_builder().endpoint_url(&endpoint);
        let client = Client::from_conf(config.build());
        let error = SqsSource::connect(client, "orders").await.map(drop).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Transient, "{endpoint}: {error}");
        for word in [cause, &remedy, "`orders`: "] {
            assert!(error.to_string().contains(word), "{word:?} is not in the error of {endpoint}: {error}");
        }
    }
}

#[tokio::test]
async fn dead_letters_that_reads_would_move_are_refused() {
    let world = World::new().await;
    world.limit_receives(1_000).await;
    let builder = world.builder().dead_letters(&*world.name);
    let other = World::new().await;
    refused(
        SqsSource::builder(world.client.clone(), &*other.name).dead_letters(&*world.name).connect().await,
        "after 1000 reads",
    );
    refused(builder.connect().await, "`dead_letters` is the queue itself");
}

#[tokio::test]
async fn a_queue_that_gives_up_early_is_refused_unless_that_is_accepted() {
    let world = World::new().await;
    world.limit_receives(5).await;
    refused(world.builder().connect().await, "after 5 receives");
    refused(world.builder().connect().await, "call `accept_max_receives(5)`");
    let source = world.builder().accept_max_receives(5).connect().await.unwrap();
    let policy = Policy::new().lease(ms(60_000));
    let executor = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).build().unwrap();
    let error = Consumer::builder(source, "billing", &executor).build(counting().0).map(drop).unwrap_err();
    assert!(error.to_string().contains("the broker gives up 8s after the first delivery"), "{error}");
    world.limit_receives(99).await;
    let source = world.builder().accept_max_receives(99).connect().await.unwrap();
    assert!(source.capabilities().redelivery.is_some());
    world.limit_receives(100).await;
    let source = world.builder().connect().await.unwrap();
    assert!(source.capabilities().redelivery.is_none(), "like a queue without a policy");
    Consumer::builder(source, "billing", &executor).build(counting().0).unwrap();
}

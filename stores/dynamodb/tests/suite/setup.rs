//! Opening a table: what is created, what is refused, and by which error.
use idempotent_core::store::Severity;
use idempotent_core::{CasBackend, StoreError, StoreErrorKind};
use idempotent_dynamodb::DynamoBackend;
use idempotent_dynamodb::aws_sdk_dynamodb::Client;
use idempotent_dynamodb::aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent_dynamodb::aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use idempotent_harness::servers::unusable_endpoints;

use crate::world::{World, client, server, unused};

/// Checks the kind of an error, and a part of its text.
#[track_caller]
pub(crate) fn refused(opened: Result<DynamoBackend, StoreError>, kind: StoreErrorKind, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
}

async fn table(client: &Client, name: &str, key: &[(&str, KeyType, ScalarAttributeType)]) {
    let mut create = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    for (name, role, kind) in key {
        let definition = AttributeDefinition::builder().attribute_name(*name).attribute_type(kind.clone()).build();
        let part = KeySchemaElement::builder().attribute_name(*name).key_type(role.clone()).build();
        create = create.attribute_definitions(definition.unwrap()).key_schema(part.unwrap());
    }
    create.send().await.unwrap();
}

#[tokio::test]
async fn a_missing_table_is_named_with_its_remedy_and_created_on_request() {
    let (client, name) = (client(&server().await), unused());
    let builder = || DynamoBackend::builder(&client, &name);
    refused(builder().open().await, StoreErrorKind::Schema, "by `create(true)` on the builder");
    refused(builder().open().await, StoreErrorKind::Schema, &format!("table `{name}`"));
    let (one, other) = tokio::join!(builder().create(true).open(), builder().create(true).open());
    one.unwrap();
    other.unwrap();
    builder().create(true).open().await.unwrap();
    let backend = builder().open().await.unwrap();
    let table = client.describe_table().table_name(&name).send().await.unwrap().table.unwrap();
    assert_eq!(table.billing_mode_summary().unwrap().billing_mode(), Some(&BillingMode::PayPerRequest));
    let report = backend.capabilities().health.unwrap().check().await.unwrap();
    assert_eq!(report.severity(), Severity::Ok, "{report}");
    assert!(report.to_string().contains("deletes old records by `ttl`"), "{report}");
    client.delete_table().table_name(&name).send().await.unwrap();
    let report = backend.capabilities().health.unwrap().check().await.unwrap();
    assert_eq!(report.severity(), Severity::Refuse, "{report}");
}

#[tokio::test]
async fn a_table_with_another_key_is_refused_with_the_key_and_the_remedy() {
    use KeyType::{Hash, Range};
    use ScalarAttributeType::{N, S};
    let client = client(&server().await);
    for (key, part) in [
        (vec![("pk", Hash, S)], "its key is `pk` (HASH, S)"),
        (vec![("id", Hash, N)], "its key is `id` (HASH, N)"),
        (vec![("id", Hash, S), ("sk", Range, S)], "its key is `id` (HASH, S) and `sk` (RANGE, S)"),
    ] {
        let name = unused();
        table(&client, &name, &key).await;
        let builder = || DynamoBackend::builder(&client, &name);
        refused(builder().open().await, StoreErrorKind::Schema, part);
        refused(builder().open().await, StoreErrorKind::Schema, "the partition key `id` of type S");
        refused(builder().create(true).open().await, StoreErrorKind::Schema, part);
        let ttl = client.describe_time_to_live().table_name(&name).send().await.unwrap().time_to_live_description;
        assert_eq!(
            ttl.unwrap().time_to_live_status(),
            Some(&TimeToLiveStatus::Disabled),
            "the table of another program"
        );
    }
}

#[tokio::test]
async fn a_table_without_a_ttl_opens_with_a_warning_and_gets_the_ttl_on_request() {
    let (client, name) = (client(&server().await), unused());
    table(&client, &name, &[("id", KeyType::Hash, ScalarAttributeType::S)]).await;
    let report = async |create: bool| {
        let backend = DynamoBackend::builder(&client, &name).create(create).open().await.unwrap();
        backend.capabilities().health.unwrap().check().await.unwrap()
    };
    let without = report(false).await;
    assert_eq!(without.severity(), Severity::Warn, "{without}");
    assert!(without.to_string().contains("enable the TTL of the attribute `ttl`"), "{without}");
    assert_eq!(report(true).await.severity(), Severity::Ok);
}

#[tokio::test]
async fn a_ttl_of_another_attribute_is_a_warning_and_is_not_changed() {
    let (client, name) = (client(&server().await), unused());
    table(&client, &name, &[("id", KeyType::Hash, ScalarAttributeType::S)]).await;
    let other = TimeToLiveSpecification::builder().attribute_name("expires").enabled(true).build().unwrap();
    client.update_time_to_live().table_name(&name).time_to_live_specification(other).send().await.unwrap();
    let backend = DynamoBackend::builder(&client, &name).create(true).open().await.unwrap();
    let report = backend.capabilities().health.unwrap().check().await.unwrap();
    assert_eq!(report.severity(), Severity::Warn, "{report}");
    assert!(report.to_string().contains("the TTL is that of the attribute `expires`"), "{report}");
}

#[tokio::test]
async fn a_client_without_a_server_region_or_credentials_is_an_error_with_the_remedy() {
    let open = async |client: &Client| DynamoBackend::builder(client, "records").open().await;
    let closed = client("127.0.0.1:1");
    refused(open(&closed).await, StoreErrorKind::NotApplied, "check the region and the endpoint");
    let config = || Config::builder().behavior_version(BehaviorVersion::latest());
    let nowhere = config().credentials_provider(Credentials::new("test", "test", None, None, "test"));
    let nowhere = Client::from_conf(nowhere.build());
    refused(open(&nowhere).await, StoreErrorKind::NotApplied, "set the region and the credentials");
    let world = World::new().await;
    let anonymous = config().region(Region::new("eu-west-1")).endpoint_url(format!("http://{}", world.address));
    let anonymous = Client::from_conf(anonymous.build());
    refused(open(&anonymous).await, StoreErrorKind::NotApplied, "set the region and the credentials");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_refuses_the_credentials_is_an_error_with_cause_and_remedy() {
    let started = tokio::task::spawn_blocking(|| unusable_endpoints("DynamoDB"));
    let (endpoints, _servers) = started.await.unwrap();
    for (endpoint, cause, remedy) in endpoints {
        let config = client("127.0.0.1:1").config().to_builder().endpoint_url(&endpoint);
        let client = Client::from_conf(config.build());
        let error = DynamoBackend::builder(&client, "records").open().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{endpoint}: {error}");
        for word in [cause, &remedy, "`records`: "] {
            assert!(error.to_string().contains(word), "{word:?} is not in the error of {endpoint}: {error}");
        }
    }
}

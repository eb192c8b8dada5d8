//! Answers that moto does not give: refusals, failures, and descriptions of global tables.
use std::sync::Arc;

use idempotent_core::store::{HealthReport, Severity};
use idempotent_core::{CasBackend, Entropy, EntropyError, StoreErrorKind, Timestamp};
use idempotent_dynamodb::DynamoBackend;
use idempotent_dynamodb::aws_sdk_dynamodb::Client;
use idempotent_dynamodb::aws_sdk_dynamodb::config::retry::RetryConfig;

use crate::scripted::{Answer, Scripted, refusal, table};
use crate::setup::refused;
use crate::world::{client, config, key, record, secs};

/// A source of one number.
#[derive(Debug)]
struct Fixed(u128);

impl Entropy for Fixed {
    fn bits(&self) -> Result<u128, EntropyError> {
        Ok(self.0)
    }
}

/// Opens a backend on a server that gives this answer to reads and writes of items. The client of the user retries.
async fn answered(answer: impl Fn() -> Answer + Send + Sync + 'static) -> (Scripted, DynamoBackend) {
    let server = Scripted::start(move |operation| match operation {
        "getitem" | "putitem" | "deleteitem" => answer(),
        other => table(other, ""),
    });
    let server = server.await;
    let retrying = config(&server.address).retry_config(RetryConfig::standard().with_max_attempts(5));
    let backend = DynamoBackend::builder(&Client::from_conf(retrying.build()), "records");
    let backend = backend.entropy(Arc::new(Fixed(7 << 64 | 7))).open().await.unwrap();
    (server, backend)
}

#[tokio::test]
async fn a_refused_request_is_not_applied_and_is_sent_once() {
    use StoreErrorKind::{Denied, NotApplied, Schema};
    let now = Timestamp(1_767_225_600_000_000);
    for (code, kind, remedy) in [
        ("ProvisionedThroughputExceededException", NotApplied, "raise the capacity"),
        ("ThrottlingException", NotApplied, "raise the capacity"),
        ("RequestLimitExceeded", NotApplied, "raise the capacity"),
        ("ReplicatedWriteConflictException", NotApplied, "retry"),
        ("ValidationException", NotApplied, "the reason"),
        ("ExpiredTokenException", NotApplied, "check the credentials"),
        ("AccessDeniedException", Denied, "dynamodb:PutItem"),
        ("UnrecognizedClientException", Denied, "check the credentials"),
        ("ResourceNotFoundException", Schema, "create the table"),
    ] {
        let (server, backend) = answered(move || refusal(code)).await;
        let read = backend.read(&key("1")).await.unwrap_err();
        let written = backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await.unwrap_err();
        let deleted = backend.swap(&key("1"), 7, None).await.unwrap_err();
        for error in [read, written, deleted] {
            let text = error.to_string();
            assert!(error.kind() == kind && text.contains(remedy) && text.contains("`records`"), "{code}: {text}");
        }
        assert_eq!(["getitem", "putitem", "deleteitem"].map(|operation| server.count(operation)), [1, 1, 1], "{code}");
    }
}

#[tokio::test]
async fn a_failure_of_the_server_leaves_a_read_undone_and_a_write_unknown() {
    let now = Timestamp(1_767_225_600_000_000);
    let answers = [
        (500, refusal("InternalServerError").1),
        (503, String::new()),
        (200, "}".to_owned()),
        (408, String::new()),
        (301, refusal("ThrottlingException").1),
    ];
    for (status, body) in answers {
        let (server, backend) = answered(move || (status, body.clone())).await;
        let read = backend.read(&key("1")).await.unwrap_err();
        let written = backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await.unwrap_err();
        let deleted = backend.swap(&key("1"), 7, None).await.unwrap_err();
        let texts = [&read, &written, &deleted].map(ToString::to_string);
        let kinds = [read, written, deleted].map(|error| error.kind());
        let expected = [StoreErrorKind::NotApplied, StoreErrorKind::Ambiguous, StoreErrorKind::Ambiguous];
        assert_eq!((kinds, server.count("putitem")), (expected, 1), "{status}: {texts:?}");
    }
}

#[tokio::test]
async fn a_write_whose_second_copy_finds_the_first_one_is_applied() {
    let now = Timestamp(1_767_225_600_000_000);
    for (version, expected) in [("7", true), ("8", false)] {
        let (_server, backend) = answered(move || {
            let (status, body) = refusal("ConditionalCheckFailedException");
            (status, body.replace("}", &format!(r#", "Item": {{"version": {{"N": "{version}"}}}}}}"#)))
        })
        .await;
        let written = backend.swap(&key("1"), 0, Some(&record(now, now + secs(60)))).await;
        assert_eq!(written.unwrap(), expected, "the item has the version {version}");
    }
}

#[tokio::test]
async fn reads_are_consistent_and_each_write_has_a_condition() {
    let now = Timestamp(1_767_225_600_000_000);
    let (server, backend) = answered(|| (200, "{}".to_owned())).await;
    assert_eq!(backend.read(&key("1")).await.unwrap().version, 0);
    for (seen, condition, value) in [(0, "attribute_not_exists(#c)", None), (9, "#c=:seen", Some(r#""N":"9""#))] {
        assert!(backend.swap(&key("1"), seen, Some(&record(now, now + secs(60)))).await.unwrap());
        assert!(backend.swap(&key("1"), seen, None).await.unwrap());
        for operation in ["putitem", "deleteitem"] {
            let body = server.bodies(operation).pop().unwrap();
            assert!(body.contains(&format!(r#""ConditionExpression":"{condition}""#)), "{body}");
            assert!(value.is_none_or(|value| body.contains(value)), "{body}");
        }
        let body = server.bodies("putitem").pop().unwrap();
        assert!(body.contains(r#""ReturnValuesOnConditionCheckFailure":"ALL_OLD""#), "{body}");
        assert!(body.contains(r#""version":{"N":"7"}"#), "{body}");
    }
    let bodies = server.bodies("getitem");
    assert!(bodies.len() == 1 && bodies[0].contains(r#""ConsistentRead":true"#), "{bodies:?}");
}

/// Opens a backend on a table with these other members of its description.
async fn described(members: &'static str) -> Result<DynamoBackend, idempotent_core::StoreError> {
    let server = Scripted::start(move |operation| table(operation, members)).await;
    DynamoBackend::builder(&client(&server.address), "records").open().await
}

fn finding(report: &HealthReport, subject: &str) -> (Severity, String) {
    let found =
        report.findings().iter().find(|finding| finding.subject() == subject && finding.severity() != Severity::Ok);
    found.map_or((Severity::Ok, String::new()), |finding| (finding.severity(), finding.text().to_owned()))
}

#[tokio::test]
async fn a_global_table_is_refused_unless_its_regions_are_strongly_consistent() {
    const EVENTUAL: &str = r#", "MultiRegionConsistency": "EVENTUAL", "Replicas": [{"RegionName": "us-east-1"}]"#;
    const OLDER: &str = r#", "Replicas": [{"RegionName": "us-east-1"}]"#;
    const STRONG: &str = r#", "MultiRegionConsistency": "STRONG", "Replicas": [{"RegionName": "us-east-1"}]"#;
    refused(described(EVENTUAL).await, StoreErrorKind::Schema, "two regions could grant one key");
    refused(described(OLDER).await, StoreErrorKind::Schema, "with strong consistency (MRSC)");
    let server = Scripted::start(|operation| match operation {
        "describetimetolive" => (200, r#"{"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}"#.to_owned()),
        "updatetimetolive" => refusal("ValidationException"),
        other => table(other, STRONG),
    });
    let server = server.await;
    let backend = DynamoBackend::builder(&client(&server.address), "records").create(true).open().await.unwrap();
    let report = backend.capabilities().health.unwrap().check().await.unwrap();
    assert_eq!(finding(&report, "regions").0, Severity::Ok, "{report}");
    assert_eq!(finding(&report, "ttl").0, Severity::Warn, "{report}");
}

#[tokio::test]
async fn a_table_that_cannot_be_used_is_refused_by_its_state() {
    refused(described(r#", "TableStatus": "ARCHIVED""#).await, StoreErrorKind::Schema, "its state is ARCHIVED");
    refused(described(r#", "TableStatus": "CREATING""#).await, StoreErrorKind::NotApplied, "being created; retry");
    refused(described(r#", "TableStatus": "DELETING""#).await, StoreErrorKind::NotApplied, "being deleted; retry");
    described(r#", "TableStatus": "UPDATING""#).await.unwrap();
}

#[tokio::test]
async fn the_errors_of_an_opening_name_the_missing_permission() {
    for (code, kind, part) in [
        ("AccessDeniedException", StoreErrorKind::Denied, "dynamodb:DescribeTable"),
        ("UnrecognizedClientException", StoreErrorKind::Denied, "check the credentials and the region"),
        ("ExpiredTokenException", StoreErrorKind::NotApplied, "check the credentials"),
    ] {
        let server = Scripted::start(move |_| refusal(code)).await;
        let builder = || DynamoBackend::builder(&client(&server.address), "records");
        refused(builder().open().await, kind, part);
        refused(builder().create(true).open().await, kind, part);
    }
}

#[tokio::test]
async fn a_role_that_may_not_read_the_ttl_opens_the_table_with_a_warning() {
    let server = Scripted::start(|operation| match operation {
        "describetimetolive" => refusal("AccessDeniedException"),
        other => table(other, ""),
    });
    let server = server.await;
    for creates in [false, true] {
        let builder = DynamoBackend::builder(&client(&server.address), "records");
        let backend = builder.create(creates).open().await.unwrap();
        let report = backend.capabilities().health.unwrap().check().await.unwrap();
        let (severity, text) = finding(&report, "ttl");
        assert_eq!(severity, Severity::Warn, "{text}");
        assert!(text.contains("not checked") && text.contains("dynamodb:DescribeTimeToLive"), "{text}");
    }
}

#[tokio::test]
async fn a_creation_waits_until_the_table_is_active() {
    let looks = std::sync::atomic::AtomicU32::new(0);
    let server = Scripted::start(move |operation| match operation {
        "describetable" => match looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 | 1 => refusal("ResourceNotFoundException"),
            2 => table(operation, r#", "TableStatus": "CREATING""#),
            _ => table(operation, ""),
        },
        // Another process sent its request first.
        "createtable" => refusal("ResourceInUseException"),
        other => table(other, ""),
    });
    let server = server.await;
    DynamoBackend::builder(&client(&server.address), "records").create(true).open().await.unwrap();
    assert_eq!((server.count("createtable"), server.count("describetable")), (1, 5));
}

//! Creation and checks of a table.
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, MultiRegionConsistency, ScalarAttributeType,
    TableDescription, TableStatus, TimeToLiveDescription, TimeToLiveSpecification, TimeToLiveStatus,
};
use idempotent_core::store::{HealthFinding, HealthReport, Severity};
use idempotent_core::{StoreError, StoreErrorKind};

use crate::failure::{Effect, Failure, answered};
use crate::item::{ID, TTL};

/// The time between two looks at a table that is created.
const LOOK: Duration = Duration::from_millis(500);
/// The number of looks: 2 minutes.
const LOOKS: u32 = 240;

/// Checks a table: its key and state, the consistency of a global table, and the TTL.
///
/// # Errors
/// DynamoDB cannot be reached or fails, the credentials have expired, or the table is being created.
pub(crate) async fn check(client: &Client, table: &str) -> Result<HealthReport, StoreError> {
    let found = match describe(client, table).await {
        Ok(found) => found,
        Err(failure) => return unseen(table, &failure).map(|finding| HealthReport::new(vec![finding])),
    };
    let passing = match found.table_status() {
        Some(TableStatus::Creating) => Some("created"),
        Some(TableStatus::Deleting) => Some("deleted"),
        _ => None,
    };
    if let Some(passing) = passing {
        return Err(StoreError::new(StoreErrorKind::NotApplied)
            .because(format!("{}: the table is being {passing}; retry", opening(table))));
    }
    let ttl = ttl(client, table).await?;
    let finding =
        |(severity, subject, text): Finding| HealthFinding::new(severity, subject, format!("table `{table}`"), text);
    Ok(HealthReport::new(structure(&found).into_iter().chain([ttl]).map(finding).collect()))
}

/// Creates the table unless it exists, waits until it is active, and enables its TTL. An unsuitable table stays unchanged.
///
/// # Errors
/// DynamoDB refuses a request or cannot be reached, or the table is not active in time.
pub(crate) async fn create(client: &Client, table: &str) -> Result<(), StoreError> {
    let found = match describe(client, table).await {
        Ok(found) => Some(found),
        Err(failure) if is_missing(&failure) => {
            request_table(client, table).await?;
            None
        }
        Err(failure) => return Err(failure.store_error(&opening(table), Effect::Read)),
    };
    let found = active(client, table, found).await?;
    // A TTL could delete the items of another program. The check refuses such a table later.
    let is_refused = structure(&found).iter().any(|(severity, ..)| *severity == Severity::Refuse);
    // DynamoDB refuses a TTL for a global table with strong consistency.
    if is_refused || found.multi_region_consistency() == Some(&MultiRegionConsistency::Strong) {
        return Ok(());
    }
    enable_ttl(client, table).await
}

/// Sends the request that creates the table. Another process may have sent the same request.
async fn request_table(client: &Client, table: &str) -> Result<(), StoreError> {
    let creating = format!("creating the table `{table}`");
    let incomplete = |error| StoreError::new(StoreErrorKind::Schema).because(format!("{creating}: {error}"));
    let definition = AttributeDefinition::builder().attribute_name(ID).attribute_type(ScalarAttributeType::S).build();
    let key = KeySchemaElement::builder().attribute_name(ID).key_type(KeyType::Hash).build();
    let create = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(definition.map_err(incomplete)?).key_schema(key.map_err(incomplete)?);
    match answered(create.send()).await {
        Err(failure) if !failure.refusal().is_some_and(|refusal| refusal.is_resource_in_use_exception()) => {
            Err(failure.store_error(&creating, Effect::Write))
        }
        _ => Ok(()),
    }
}

/// Waits until the table is active.
async fn active(
    client: &Client,
    table: &str,
    mut found: Option<TableDescription>,
) -> Result<TableDescription, StoreError> {
    for _ in 0..LOOKS {
        // A new table may be unknown for a moment.
        match found {
            Some(found) if found.table_status() != Some(&TableStatus::Creating) => return Ok(found),
            _ => tokio::time::sleep(LOOK).await,
        }
        found = match describe(client, table).await {
            Ok(found) => Some(found),
            Err(failure) if is_missing(&failure) => None,
            Err(failure) => return Err(failure.store_error(&opening(table), Effect::Read)),
        };
    }
    Err(StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("creating the table `{table}`: it is not active after 2 minutes; retry")))
}

/// Enables the TTL if it is disabled.
async fn enable_ttl(client: &Client, table: &str) -> Result<(), StoreError> {
    let enabling = format!("enabling the TTL of the table `{table}`");
    let seen = async || {
        let seen = answered(client.describe_time_to_live().table_name(table).send()).await;
        seen.map_err(|failure| failure.store_error(&enabling, Effect::Read))
    };
    let is_disabled = |seen: Option<&TimeToLiveDescription>| {
        seen.and_then(TimeToLiveDescription::time_to_live_status).is_none_or(|now| *now == TimeToLiveStatus::Disabled)
    };
    let found = match seen().await {
        // The check reports the missing permission as a warning.
        Err(error) if error.kind() == StoreErrorKind::Denied => return Ok(()),
        found => found?,
    };
    if !is_disabled(found.time_to_live_description()) {
        return Ok(());
    }
    let setting = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build();
    let setting =
        setting.map_err(|error| StoreError::new(StoreErrorKind::Schema).because(format!("{enabling}: {error}")))?;
    let update = client.update_time_to_live().table_name(table).time_to_live_specification(setting);
    match answered(update.send()).await {
        // Another process may have enabled the TTL in the meantime.
        Err(failure) if is_disabled(seen().await?.time_to_live_description()) => {
            Err(failure.store_error(&enabling, Effect::Write))
        }
        _ => Ok(()),
    }
}

async fn describe(client: &Client, table: &str) -> Result<TableDescription, Failure<DescribeTableError>> {
    let answer = answered(client.describe_table().table_name(table).send()).await?;
    Ok(answer.table.unwrap_or_else(|| TableDescription::builder().build()))
}

fn is_missing(failure: &Failure<DescribeTableError>) -> bool {
    failure.refusal().is_some_and(DescribeTableError::is_resource_not_found_exception)
}

fn opening(table: &str) -> String {
    format!("opening the table `{table}`")
}

/// A severity, a subject and a text.
type Finding = (Severity, &'static str, String);

/// Returns the finding about a table that DynamoDB does not describe, or the error if there is no answer.
fn unseen(table: &str, failure: &Failure<DescribeTableError>) -> Result<HealthFinding, StoreError> {
    let (kind, text) = failure.explained(Effect::Read);
    let place = format!("table `{table}`");
    match kind {
        StoreErrorKind::Schema => Ok(HealthFinding::new(Severity::Refuse, "table", place, text)),
        StoreErrorKind::Denied => Ok(HealthFinding::denied("table", place, text)),
        _ => Err(failure.store_error(&opening(table), Effect::Read)),
    }
}

/// Returns the findings about the description of a table.
fn structure(table: &TableDescription) -> [Finding; 3] {
    [key(table), state(table), regions(table)]
}

fn key(table: &TableDescription) -> Finding {
    let kind = |name: &str| {
        let definition = table.attribute_definitions().iter().find(|definition| definition.attribute_name() == name);
        definition.map_or("?", |definition| definition.attribute_type().as_str())
    };
    let part = |part: &KeySchemaElement| {
        let name = part.attribute_name();
        format!("`{name}` ({}, {})", part.key_type().as_str(), kind(name))
    };
    let parts: Vec<_> = table.key_schema().iter().map(part).collect();
    match parts.as_slice() {
        [only] if only == "`id` (HASH, S)" => (Severity::Ok, "table", "its key is the string `id`".to_owned()),
        _ => {
            let remedy = "use a table whose only key is the partition key `id` of type S";
            (Severity::Refuse, "table", format!("its key is {}; {remedy}", parts.join(" and ")))
        }
    }
}

fn state(table: &TableDescription) -> Finding {
    match table.table_status() {
        None | Some(TableStatus::Active | TableStatus::Updating) => (Severity::Ok, "table", "active".to_owned()),
        Some(other) => {
            let text = format!("its state is {}; restore the table, or use another one", other.as_str());
            (Severity::Refuse, "table", text)
        }
    }
}

/// Refuses a global table in which two regions accept writes of one item at the same time.
fn regions(table: &TableDescription) -> Finding {
    match (table.replicas().is_empty(), table.multi_region_consistency()) {
        (true, _) => (Severity::Ok, "regions", "one region".to_owned()),
        (false, Some(MultiRegionConsistency::Strong)) => {
            (Severity::Ok, "regions", "several regions with strong consistency".to_owned())
        }
        (false, _) => {
            let text = "its regions are eventually consistent (MREC), so two regions could grant one key; use a table in one \
                        region, or a global table with strong consistency (MRSC)";
            (Severity::Refuse, "regions", text.to_owned())
        }
    }
}

/// Checks that DynamoDB deletes old records. The TTL is not a guarantee, so a missing TTL is a warning.
async fn ttl(client: &Client, table: &str) -> Result<Finding, StoreError> {
    let remedy = format!("enable the TTL of the attribute `{TTL}`, or remove old items yourself");
    let warning = |text: &str| Ok((Severity::Warn, "ttl", format!("{text}, so the table only grows; {remedy}")));
    let seen = match answered(client.describe_time_to_live().table_name(table).send()).await {
        Ok(seen) => seen,
        Err(failure) => match failure.explained(Effect::Read) {
            (StoreErrorKind::Denied, text) => return Ok((Severity::Warn, "ttl", format!("not checked: {text}"))),
            _ => return Err(failure.store_error(&opening(table), Effect::Read)),
        },
    };
    let seen = seen.time_to_live_description();
    match seen.and_then(TimeToLiveDescription::time_to_live_status) {
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
            match seen.and_then(TimeToLiveDescription::attribute_name) {
                Some(TTL) => Ok((Severity::Ok, "ttl", format!("DynamoDB deletes old records by `{TTL}`"))),
                other => warning(&format!("the TTL is that of the attribute `{}`", other.unwrap_or_default())),
            }
        }
        _ => warning("the TTL is disabled"),
    }
}

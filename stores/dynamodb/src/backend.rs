//! A table of DynamoDB as the backend of a store.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use idempotent_core::store::{Health, HealthReport};
use idempotent_core::{
    CasBackend, Clock, Entropy, Key, Record, StoreCapabilities, StoreError, StoreErrorKind, Timestamp, Version,
    VersionedRecord,
};

use crate::DynamoBackendBuilder;
use crate::failure::{Effect, answered};
use crate::item::{self, ID, VERSION};
use crate::table;
use crate::wall_clock::WallClock;

/// A table of Amazon DynamoDB as the backend of a store.
///
/// [`Cas`](idempotent_core::Cas) turns the backend into a [`Store`](idempotent_core::Store). [`builder`](Self::builder) opens the backend.
///
/// Clones share the client and its connections.
#[derive(Clone)]
pub struct DynamoBackend {
    pub(crate) client: Client,
    pub(crate) table: Arc<str>,
    pub(crate) max_skew: Duration,
    pub(crate) clock: BackendClock,
    pub(crate) entropy: Arc<dyn Entropy>,
}

#[derive(Clone)]
pub(crate) enum BackendClock {
    System(Arc<WallClock>),
    /// The clock of the user.
    Custom(Arc<dyn Clock>),
}

impl BackendClock {
    /// Returns the time.
    ///
    /// # Errors
    /// The system's clock was set back by more than `max_skew`. Until it catches up, the time is that of before, at which the leases of
    /// other processes seem to have expired.
    fn time(&self, max_skew: Duration) -> Result<Timestamp, StoreError> {
        match self {
            Self::Custom(clock) => Ok(clock.wall()),
            Self::System(clock) => match clock.set_back_by() {
                back if back > max_skew => Err(StoreError::new(StoreErrorKind::NotApplied).because(format!(
                    "the system's clock was set back by {back:?}; if it is right now, restart the process"
                ))),
                _ => Ok(clock.wall()),
            },
        }
    }
}

impl DynamoBackend {
    /// Returns a builder for a backend in the table with this name or ARN.
    ///
    /// The backend uses the credentials, the region, the endpoint and the HTTP client of `client`. The backend disables the retries of
    /// the SDK, because a retry of a lost write would hide that the write may have been applied.
    pub fn builder(client: &Client, table: impl Into<String>) -> DynamoBackendBuilder {
        DynamoBackendBuilder::new(client, table.into())
    }

    /// Writes a record with this version if the condition holds.
    async fn put(&self, key: &Key, seen: Version, version: Version, next: &Record) -> Result<bool, StoreError> {
        let condition = Condition::of(seen);
        let put = self.client.put_item().table_name(&*self.table).set_item(Some(item::of(key, version, next)));
        let put = put.condition_expression(condition.expression).expression_attribute_names("#c", condition.attribute);
        let put = put.set_expression_attribute_values(condition.values());
        let put = put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let failure = match answered(put.send()).await {
            Ok(_) => return Ok(true),
            Err(failure) => failure,
        };
        match failure.refusal() {
            // A transport that sends a request twice gets this refusal for the second copy.
            Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                Ok(failed.item().and_then(item::version) == Some(version))
            }
            _ => Err(failure.store_error(&self.doing("writing to"), Effect::Write)),
        }
    }

    /// Deletes a record if the condition holds.
    async fn delete(&self, key: &Key, seen: Version) -> Result<bool, StoreError> {
        let condition = Condition::of(seen);
        let delete = self.client.delete_item().table_name(&*self.table).key(ID, item::id(key));
        let delete = delete.condition_expression(condition.expression);
        let delete = delete.expression_attribute_names("#c", condition.attribute);
        let delete = delete.set_expression_attribute_values(condition.values());
        let failure = match answered(delete.send()).await {
            Ok(_) => return Ok(true),
            Err(failure) => failure,
        };
        match failure.refusal() {
            Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(false),
            _ => Err(failure.store_error(&self.doing("deleting from"), Effect::Write)),
        }
    }

    /// Returns a random version, which is not zero.
    fn version(&self) -> Result<Version, StoreError> {
        let bits = self.entropy.bits().map_err(|error| {
            StoreError::new(StoreErrorKind::NotApplied).because(format!("creating a version: {error}"))
        })?;
        // The lower half of the bits.
        Ok(Version::try_from(bits & u128::from(u64::MAX)).unwrap_or_default().max(1))
    }

    fn doing(&self, verb: &str) -> String {
        format!("{verb} the table `{}`", self.table)
    }
}

/// The condition of a write: the item has this version, or there is no item.
struct Condition {
    expression: &'static str,
    attribute: &'static str,
    seen: Version,
}

impl Condition {
    fn of(seen: Version) -> Self {
        match seen {
            0 => Self { expression: "attribute_not_exists(#c)", attribute: ID, seen },
            _ => Self { expression: "#c = :seen", attribute: VERSION, seen },
        }
    }

    fn values(&self) -> Option<std::collections::HashMap<String, AttributeValue>> {
        (self.seen != 0).then(|| [(":seen".to_owned(), AttributeValue::N(self.seen.to_string()))].into())
    }
}

#[async_trait]
impl CasBackend for DynamoBackend {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let get = self.client.get_item().table_name(&*self.table).key(ID, item::id(key)).consistent_read(true);
        let answer = answered(get.send()).await;
        let answer = answer.map_err(|failure| failure.store_error(&self.doing("reading"), Effect::Read))?;
        let (record, version) = match answer.item() {
            Some(found) => {
                let (record, version) = item::parse(found, &self.table)?;
                (Some(record), version)
            }
            None => (None, 0),
        };
        Ok(VersionedRecord { record, version, now: self.clock.time(self.max_skew)? })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        match next {
            Some(record) => self.put(key, seen, self.version()?, record).await,
            None => self.delete(key, seen).await,
        }
    }

    fn max_skew(&self) -> Duration {
        self.max_skew
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_health(self)
    }
}

/// Checks the table: `table` (the key and the state), `regions` (the consistency of a global table) and `ttl`.
#[async_trait]
impl Health for DynamoBackend {
    async fn check(&self) -> Result<HealthReport, StoreError> {
        table::check(&self.client, &self.table).await
    }
}

/// Shows neither the credentials nor the endpoint of the client.
impl fmt::Debug for DynamoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoBackend")
            .field("table", &self.table)
            .field("max_skew", &self.max_skew)
            .finish_non_exhaustive()
    }
}

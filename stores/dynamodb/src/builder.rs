//! Builder of a [`DynamoBackend`].
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use idempotent_core::{Clock, Entropy, OsEntropy, StoreError, StoreErrorKind};

use crate::DynamoBackend;
use crate::backend::BackendClock;
use crate::table;
use crate::wall_clock::WallClock;

/// The longest difference that [`Cas`](idempotent_core::Cas) accepts.
const LONGEST_SKEW: Duration = Duration::from_secs(600);

/// A builder for a [`DynamoBackend`].
#[derive(Clone)]
#[must_use]
pub struct DynamoBackendBuilder {
    client: Client,
    table: String,
    creates: bool,
    max_skew: Duration,
    clock: Option<Arc<dyn Clock>>,
    entropy: Arc<dyn Entropy>,
}

impl DynamoBackendBuilder {
    pub(crate) fn new(client: &Client, table: String) -> Self {
        Self {
            client: client.clone(),
            table,
            creates: false,
            max_skew: Duration::from_secs(2),
            clock: None,
            entropy: Arc::new(OsEntropy),
        }
    }

    /// Sets whether [`open`](Self::open) creates a missing table, with on-demand capacity, and enables the TTL if it is disabled. Other
    /// settings of an existing table stay unchanged.
    ///
    /// # Default
    /// false: the table must exist
    pub fn create(mut self, create: bool) -> Self {
        self.creates = create;
        self
    }

    /// Sets the largest difference between the clocks of two processes that use the table, at most 10 minutes.
    ///
    /// Leases and retentions are extended by this difference. If two clocks differ by more, two owners may hold a key at the same time.
    /// All processes must use the same setting.
    ///
    /// # Default
    /// 2 s
    pub fn max_skew(mut self, difference: Duration) -> Self {
        self.max_skew = difference;
        self
    }

    /// Sets the clock that supplies the [time](Clock::wall) of the backend.
    ///
    /// # Default
    /// The wall clock of the system, read for each operation. It follows corrections of the system's time, and never goes back. After a
    /// correction backwards by more than [`max_skew`](Self::max_skew), operations fail until the system's time has caught up.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the source of the random versions of records.
    ///
    /// # Default
    /// [`OsEntropy`]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Checks the table, and creates it first on request.
    ///
    /// # Errors
    /// - [`Schema`](idempotent_core::StoreErrorKind::Schema): the table is missing, has another key, cannot be used, or is a global table
    ///   without strong consistency; or `max_skew` is longer than 10 minutes.
    /// - [`Denied`](idempotent_core::StoreErrorKind::Denied): DynamoDB refuses the credentials, or the role lacks a permission.
    /// - [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): DynamoDB cannot be reached, the credentials cannot be loaded or have
    ///   expired, or the table is not active within 2 minutes.
    /// - [`Ambiguous`](idempotent_core::StoreErrorKind::Ambiguous): DynamoDB does not answer a request that creates the table or enables its
    ///   TTL. Another call completes it.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// The table may have been created, with or without its TTL. Another call completes it.
    pub async fn open(self) -> Result<DynamoBackend, StoreError> {
        if self.max_skew > LONGEST_SKEW {
            return Err(StoreError::new(StoreErrorKind::Schema).because(format!(
                "opening the table `{}`: `max_skew` is {:?}, and clocks may differ by at most {LONGEST_SKEW:?}; synchronize the clocks",
                self.table, self.max_skew
            )));
        }
        let config = self.client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        let client = Client::from_conf(config);
        if self.creates {
            table::create(&client, &self.table).await?;
        }
        table::check(&client, &self.table).await?.judge()?;
        Ok(DynamoBackend {
            client,
            table: self.table.into(),
            max_skew: self.max_skew,
            clock: self.clock.map_or_else(|| BackendClock::System(Arc::new(WallClock::new())), BackendClock::Custom),
            entropy: self.entropy,
        })
    }
}

/// Shows neither the credentials nor the endpoint of the client.
impl fmt::Debug for DynamoBackendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoBackendBuilder")
            .field("table", &self.table)
            .field("create", &self.creates)
            .field("max_skew", &self.max_skew)
            .finish_non_exhaustive()
    }
}

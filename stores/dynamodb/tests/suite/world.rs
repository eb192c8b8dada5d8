//! A table per test, and helpers.
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use idempotent_core::{FencingToken, Identity, Key, OwnerToken, Record, Scene, State, Timestamp};
use idempotent_dynamodb::aws_sdk_dynamodb::Client;
use idempotent_dynamodb::aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent_dynamodb::aws_sdk_dynamodb::types::AttributeValue;
use idempotent_dynamodb::{DynamoBackend, DynamoBackendBuilder};
use idempotent_harness::servers::MotoServer;

static SERVER: LazyLock<MotoServer> = LazyLock::new(MotoServer::start);

/// Returns the address of the emulator that all tests share.
pub(crate) async fn server() -> String {
    // Starting the emulator blocks the thread.
    tokio::task::spawn_blocking(|| SERVER.address()).await.unwrap()
}

/// Returns the settings of a client of the server at this address.
pub(crate) fn config(address: &str) -> idempotent_dynamodb::aws_sdk_dynamodb::config::Builder {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "secret-of-test", None, None, "test"))
        .endpoint_url(format!("http://{address}"))
}

/// Returns a client of the server at this address.
pub(crate) fn client(address: &str) -> Client {
    Client::from_conf(config(address).build())
}

/// Returns an unused name of a table.
pub(crate) fn unused() -> String {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    format!("records-{}", TABLES.fetch_add(1, Relaxed))
}

/// A new table, and a client to inspect it.
pub(crate) struct World {
    /// The host and the port of the emulator.
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) table: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        let address = server().await;
        let (client, table) = (client(&address), unused());
        DynamoBackend::builder(&client, &table).create(true).open().await.unwrap();
        Self { address, client, table }
    }

    pub(crate) fn builder(&self) -> DynamoBackendBuilder {
        DynamoBackend::builder(&self.client, &self.table)
    }

    pub(crate) async fn backend(&self) -> DynamoBackend {
        self.builder().open().await.unwrap()
    }

    /// Returns the item of a key, if there is one.
    pub(crate) async fn item(&self, key: &Key) -> Option<HashMap<String, AttributeValue>> {
        let get = self.client.get_item().table_name(&self.table).key("id", AttributeValue::S(key.as_str().to_owned()));
        get.consistent_read(true).send().await.unwrap().item
    }
}

pub(crate) fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "orders", part).key("idempotent").unwrap()
}

/// Returns a consumed record that expires at this time.
pub(crate) fn record(now: Timestamp, expires_at: Timestamp) -> Record {
    Record {
        fencing: FencingToken(now.0),
        attempt: 1,
        fingerprint: None,
        state: State::Consumed { owner: OwnerToken(7), value: None },
        expires_at,
        first_seen: now,
        updated_at: now,
        display: None,
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

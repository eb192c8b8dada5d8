//! Stores records in a table of Amazon DynamoDB: each order is charged once, whichever process receives it.
//!
//! ```text
//! eval "$(aws configure export-credentials --format env)"
//! cargo run -p idempotent-examples --features dynamodb --example dynamodb -- eu-west-1 o-17 o-18
//! cargo run -p idempotent-examples --features dynamodb --example dynamodb -- eu-west-1 o-18    # a duplicate
//! aws dynamodb scan --table-name idempotent --projection-expression id
//! ```
//!
//! The option `--endpoint=URL` after the region names an emulator, such as `moto_server`, which accepts any credentials.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use idempotent::dynamodb::DynamoBackend;
use idempotent::dynamodb::aws_sdk_dynamodb::Client;
use idempotent::dynamodb::aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent::store::Cas;
use idempotent::{Executor, Outcome, Rejection, idempotent};

#[idempotent(key = order, with = executor, scope = "charge")]
async fn charge(executor: &Executor, order: &str) -> Result<String, Rejection> {
    Ok(format!("receipt {order}-{}", std::process::id()))
}

/// Creates a client with the credentials in the environment. A service uses the crate `aws-config` instead:
/// `Client::new(&aws_config::load_from_env().await)`.
fn client(region: String, endpoint: Option<&str>) -> Client {
    let variable = |name| std::env::var(name).ok();
    let (key, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
    let (key, secret) = key.zip(secret).unwrap_or_else(|| ("test".to_owned(), "test".to_owned()));
    let credentials = Credentials::new(key, secret, variable("AWS_SESSION_TOKEN"), None, "environment");
    let config = Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new(region));
    let mut config = config.credentials_provider(credentials);
    config.set_endpoint_url(endpoint.map(str::to_owned));
    Client::from_conf(config.build())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let region = arguments.next().unwrap_or_else(|| "eu-west-1".to_owned());
    let endpoint = arguments.next_if(|argument| argument.starts_with("--endpoint="));
    let client = client(region, endpoint.as_deref().and_then(|endpoint| endpoint.strip_prefix("--endpoint=")));
    // An administrator may create the table instead: a partition key `id` of type S, and the TTL of the attribute `ttl`.
    let backend = DynamoBackend::builder(&client, "idempotent").create(true).open().await?;
    let executor = Executor::new(Cas(backend));
    for order in arguments {
        let (receipt, outcome) = Outcome::capture(charge(&executor, &order)).await;
        println!("{} ({})", receipt?, outcome.map_or("no run", |outcome| outcome.name()));
    }
    Ok(())
}

//! The check whether a broker lets a group consume a topic. The client only logs each refused request of a consumer, and continues.
use std::sync::Arc;

use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::{ClientInstanceHandle, ClientRuntime};
use rocketmq_protocol::protocol::header::query_consumer_offset_request_header::QueryConsumerOffsetRequestHeader;

use crate::client::client_config;
use crate::error::{QUERY_NOT_FOUND, failure, is_denied, transient};
use crate::name_servers::NoAnswer;
use crate::producer::SEND_TIMEOUT_MS;
use crate::settings::SourceSettings;

/// The id of the broker that accepts writes, among the brokers of one name.
pub(crate) const MASTER: u64 = 0;

/// Asks the brokers of the topic for the offset of the group, until one of them answers. Must be called on the client's runtime.
///
/// # Errors
/// - `Fatal`: a broker denies access.
/// - `Transient`: no broker answers.
pub(crate) async fn check_access(runtime: &Arc<ClientRuntime>, settings: &SourceSettings) -> Result<(), SourceError> {
    let config = client_config(&settings.client);
    let signer = settings.client.signer().map(|signer| signer as _);
    let not_started = |error| failure("connecting: the client could not be started", error);
    let client = ClientInstanceHandle::get_or_create(runtime, 0, config, signer).map_err(not_started)?;
    let asked = match client.start().await {
        Ok(()) => ask(&client, settings).await,
        Err(error) => Err(not_started(error)),
    };
    client.shutdown_owned().await;
    asked
}

async fn ask(client: &ClientInstanceHandle, settings: &SourceSettings) -> Result<(), SourceError> {
    let SourceSettings { client: servers, topic, group, .. } = settings;
    let route = match client.topic_route(topic, SEND_TIMEOUT_MS).await {
        Ok(route) => route.map(|route| route.broker_datas).unwrap_or_default(),
        Err(error) => return Err(NoAnswer::of(servers, Some(error)).await.into()),
    };
    let mut last = transient(&format!("connecting: no broker of the topic `{topic}` is running; start it"));
    for broker in &route {
        let Some(address) = broker.broker_addrs().get(&MASTER) else { continue };
        let of = QueryConsumerOffsetRequestHeader::new(group.as_str(), topic.as_str(), 0);
        let error = match client.query_consumer_offset(address, of, SEND_TIMEOUT_MS).await {
            Ok(_) => return Ok(()),
            Err(error) if error.broker_response_code() == Some(QUERY_NOT_FOUND) => return Ok(()),
            Err(error) => error,
        };
        if is_denied(&error) {
            let text = format!(
                "connecting: the broker {address} denies reading `{topic}` for the group `{group}`; check the access key and the \
                 secret key in the URL, or grant the permissions"
            );
            return Err(SourceError::new(SourceErrorKind::Fatal, text).with_cause(error));
        }
        let text = format!(
            "connecting: no answer of the broker {address} of the topic `{topic}`; check that it is running, and that this machine \
             reaches the address, which the broker tells to its clients (`brokerIP1`)"
        );
        last = SourceError::new(SourceErrorKind::Transient, text).with_cause(error);
    }
    Err(last)
}

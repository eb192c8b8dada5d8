//! Queries to one sentinel, and its announcements.
use std::sync::{Arc, Weak};

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value};

use super::SentinelInner;
use crate::connection::address::ServerAddress;
use crate::connection::{field, text};
use crate::failure::CallFailure;

const SWITCH: &str = "+switch-master";

/// The primary and the other sentinels, as one sentinel reports them.
pub(super) struct PrimaryReport {
    pub(super) by: ServerAddress,
    pub(super) primary: ServerAddress,
    pub(super) epoch: u64,
    pub(super) others: Vec<ServerAddress>,
    /// Connection on which the sentinel announces failovers, if it allows subscriptions.
    pub(super) subscription: Option<MultiplexedConnection>,
}

/// Returns the report of a sentinel. `number` identifies the new connection.
pub(super) async fn ask(
    inner: &Arc<SentinelInner>,
    number: u64,
    sentinel: &ServerAddress,
) -> Result<PrimaryReport, CallFailure> {
    let reply = tokio::time::timeout(inner.connect, query_sentinel(inner, number, sentinel)).await;
    reply.unwrap_or_else(|_| Err(CallFailure::unreachable(format!("the sentinel at {sentinel} did not answer"))))
}

async fn query_sentinel(
    inner: &Arc<SentinelInner>,
    number: u64,
    sentinel: &ServerAddress,
) -> Result<PrimaryReport, CallFailure> {
    let why = |error: &redis::RedisError| {
        let asks = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
        let remedy =
            if asks { " (set its user and password with `RedisStoreBuilder::sentinel_credentials`)" } else { "" };
        CallFailure::from_connecting(error).because(&format!("the sentinel at {sentinel}{remedy}"))
    };
    let switches = SwitchListener { inner: Arc::downgrade(inner), number };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(inner.connect))
        .set_response_timeout(None)
        .set_push_sender(switches);
    let client = inner.sentinels.client(sentinel)?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    let mut subscription = connection.map_err(|error| why(&error))?;
    // Subscribes first, so that no failover between the query and the subscription is missed.
    let listens = subscription.subscribe(SWITCH).await.is_ok();
    let mut questions = Pipeline::new();
    for question in ["get-master-addr-by-name", "master", "sentinels"] {
        let mut cmd = Cmd::new();
        cmd.arg("SENTINEL").arg(question).arg(&inner.name);
        questions.add_command(cmd);
    }
    let reply = subscription.send_packed_commands(&questions, 0, questions.len()).await.map_err(|error| why(&error))?;
    let unknown = || CallFailure::unreachable(format!("the sentinel at {sentinel} knows no primary {:?}", inner.name));
    let [address, about, others] = &reply[..] else { return Err(unknown()) };
    let Value::Array(address) = address else { return Err(unknown()) };
    let host = address.first().and_then(text).ok_or_else(unknown)?;
    let port = address.get(1).and_then(text).and_then(|port| port.parse().ok()).ok_or_else(unknown)?;
    let epoch = field(about, "config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let others = if let Value::Array(others) = others {
        others.iter().filter_map(sentinel_address).collect()
    } else {
        Vec::new()
    };
    let subscription = listens.then_some(subscription);
    Ok(PrimaryReport { by: sentinel.clone(), primary: ServerAddress::new(host, port), epoch, others, subscription })
}

fn sentinel_address(sentinel: &Value) -> Option<ServerAddress> {
    Some(ServerAddress::new(field(sentinel, "ip")?, field(sentinel, "port")?.parse().ok().filter(|port| *port > 0)?))
}

/// A listener for the sentinel's announcements.
struct SwitchListener {
    inner: Weak<SentinelInner>,
    number: u64,
}

impl AsyncPushSender for SwitchListener {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let Some(inner) = self.inner.upgrade() else { return Ok(()) };
        match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => inner.subscription_lost(self.number),
            (PushKind::Message, [_, message]) => {
                if let Some(switch) = text(message).and_then(|message| PrimarySwitch::read(message, &inner.name)) {
                    inner.on_switch(switch);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The address of the primary before and after a failover.
#[derive(Debug, PartialEq)]
pub(super) struct PrimarySwitch {
    pub(super) old: ServerAddress,
    pub(super) new: ServerAddress,
}

impl PrimarySwitch {
    /// Parses "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT" if the name matches.
    fn read(message: &str, name: &str) -> Option<Self> {
        let mut parts = message.strip_prefix(name)?.strip_prefix(' ')?.split(' ');
        let mut next = || Some(ServerAddress::new(parts.next()?, parts.next()?.parse().ok()?));
        Some(Self { old: next()?, new: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_switches_of_the_named_primary_are_parsed() {
        let (old, new) = (ServerAddress::new("10.0.0.1", 6379), ServerAddress::new("10.0.0.2", 6380));
        assert_eq!(PrimarySwitch::read("main 10.0.0.1 6379 10.0.0.2 6380", "main"), Some(PrimarySwitch { old, new }));
        for message in ["mainly 10.0.0.1 6379 10.0.0.2 6380", "other 1 2 3 4", "main 10.0.0.1", "main", ""] {
            assert_eq!(PrimarySwitch::read(message, "main"), None, "{message}");
        }
    }

    #[test]
    fn a_named_field_is_found_in_maps_and_flat_lists() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let flat = Value::Array(vec![bulk("ip"), bulk("a"), bulk("port"), bulk("7")]);
        let map = Value::Map(vec![(bulk("ip"), bulk("a")), (bulk("port"), bulk("7"))]);
        for reply in [flat, map] {
            assert_eq!(sentinel_address(&reply), Some(ServerAddress::new("a", 7)));
        }
        assert_eq!(sentinel_address(&Value::Nil), None);
    }
}

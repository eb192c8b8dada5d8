//! The primary that sentinels report. Sentinels are queried before each connection and announce failovers.
//!
//! Once a sentinel has announced a new primary, the store stops writing to the old one, even if the old one does not
//! know yet and would accept writes. If the store can reach neither a sentinel nor the new primary, it cannot notice
//! the failover, and writes to the old primary are lost.
mod query;

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::StoreErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, Value};

use self::query::{PrimaryReport, PrimarySwitch};
use crate::connection::address::ServerAddress;
use crate::connection::client::ClientFactory;
use crate::connection::{ConnectTarget, ConnectionCloser, text};
use crate::failure::{CallFailure, FailureKind};
use crate::lock;
use crate::topology::staggered;

/// Pause between queries while no sentinel answers and no call waits for the result.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time after a failover during which a report of the old primary counts as outdated. Sentinels inform each other every
/// two seconds. After this time, lower epochs mean that the sentinels were set up again and count from zero.
const PROPAGATION: Duration = Duration::from_secs(60);

/// A connection target that follows the primary reported by sentinels.
pub(crate) struct SentinelTarget(Arc<SentinelInner>);

struct SentinelInner {
    name: String,
    sentinels: ClientFactory,
    servers: ClientFactory,
    connect: Duration,
    state: Mutex<SentinelState>,
}

struct SentinelState {
    /// Known sentinels. The one that answered last is first.
    known: Vec<ServerAddress>,
    /// Highest reported epoch. A sentinel with a lower epoch has not heard of the last failover.
    epoch: u64,
    /// Connection on which a sentinel announces failovers, and its number.
    subscription: Option<(u64, MultiplexedConnection)>,
    subscriptions: u64,
    /// Address of the connected server, and the handle that closes the connection.
    connected: Option<(ServerAddress, ConnectionCloser)>,
    /// Primary that the sentinels reported last.
    named: Option<ServerAddress>,
    /// Primary that the current one replaced, and when the replacement was announced.
    replaced: Option<(ServerAddress, Instant)>,
}

impl SentinelState {
    /// Sets the primary of a higher epoch.
    fn replace(&mut self, primary: ServerAddress) {
        if let Some(old) = self.named.replace(primary.clone()).filter(|old| *old != primary) {
            self.replaced = Some((old, Instant::now()));
        }
    }

    fn was_replaced(&self, primary: &ServerAddress) -> bool {
        self.replaced.as_ref().is_some_and(|(old, since)| old == primary && since.elapsed() < PROPAGATION)
    }
}

impl SentinelTarget {
    pub(crate) fn new(
        at: Vec<ServerAddress>,
        name: String,
        sentinels: ClientFactory,
        servers: ClientFactory,
        connect: Duration,
    ) -> Self {
        let (epoch, subscription, subscriptions, connected, named, replaced) = (0, None, 0, None, None, None);
        let state =
            Mutex::new(SentinelState { known: at, epoch, subscription, subscriptions, connected, named, replaced });
        Self(Arc::new(SentinelInner { name, sentinels, servers, connect, state }))
    }
}

#[async_trait]
impl ConnectTarget for SentinelTarget {
    async fn client(&self) -> Result<redis::Client, CallFailure> {
        let primary = self.0.primary().await?;
        self.0.servers.client(&primary)
    }

    /// Checks the role of a new connection. Only the server knows its role: the sentinels may be ahead or outdated.
    async fn accept(
        &self,
        client: &redis::Client,
        connection: &mut MultiplexedConnection,
        closer: ConnectionCloser,
    ) -> Result<(), CallFailure> {
        let role = connection.send_packed_command(Cmd::new().arg("ROLE")).await;
        let role = role.map_err(|e| match CallFailure::from_client(&e) {
            denied if denied.kind == FailureKind::Store(StoreErrorKind::Denied) => denied,
            other => CallFailure::unreachable(format!("the server did not report its role: {}", other.text())),
        })?;
        let is_primary = matches!(&role, Value::Array(parts) if parts.first().and_then(text) == Some("master"));
        if !is_primary {
            return Err(CallFailure::transient("the server that the sentinels report is not a primary"));
        }
        let mut state = lock(&self.0.state);
        let connected = address(client).filter(|connected| state.named.as_ref() == Some(connected));
        // From now on, a failover closes the connection.
        let connected =
            connected.ok_or_else(|| CallFailure::transient("the sentinels have reported another primary"))?;
        state.connected = Some((connected, closer));
        Ok(())
    }

    fn name(&self) -> String {
        match &lock(&self.0.state).named {
            Some(named) => format!("{named} (the primary {:?} of the sentinels)", self.0.name),
            None => format!("the primary {:?} of the sentinels", self.0.name),
        }
    }
}

fn address(client: &redis::Client) -> Option<ServerAddress> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(ServerAddress::new(host.as_str(), *port))
        }
        _ => None,
    }
}

impl SentinelInner {
    /// Requests the primary from the sentinels and subscribes to the one that answered.
    async fn primary(self: &Arc<Self>) -> Result<ServerAddress, CallFailure> {
        let (known, epoch, number) = {
            let mut state = lock(&self.state);
            state.subscriptions += 1;
            (state.known.clone(), state.epoch, state.subscriptions)
        };
        let tries = known.into_iter().map(|sentinel| {
            let inner = self.clone();
            async move { query::ask(&inner, number, &sentinel).await }
        });
        let (good, better) = (
            |named: &PrimaryReport| named.epoch >= epoch,
            |one: &PrimaryReport, other: &PrimaryReport| one.epoch > other.epoch,
        );
        let named = staggered::first(tries, good, better, self.connect / 2).await;
        let named = named.map_err(|why| why.because("no sentinel reported the primary"))?;
        Ok(self.record_report(named, number))
    }

    fn record_report(&self, named: PrimaryReport, number: u64) -> ServerAddress {
        let mut state = lock(&self.state);
        state.known.retain(|known| *known != named.by);
        state.known.insert(0, named.by);
        for other in named.others {
            if !state.known.contains(&other) {
                state.known.push(other);
            }
        }
        state.subscription = named.subscription.map(|subscription| (number, subscription));
        let is_behind = named.epoch < state.epoch;
        match state.named.clone().filter(|_| is_behind && state.was_replaced(&named.primary)) {
            // The announced primary takes precedence over an outdated report.
            Some(known) => return known,
            // No sentinel reports more: they count from zero again.
            None if is_behind => state.named = Some(named.primary.clone()),
            None => state.replace(named.primary.clone()),
        }
        state.epoch = named.epoch;
        named.primary
    }

    /// Handles a failover that a sentinel announced.
    fn on_switch(&self, switch: PrimarySwitch) {
        {
            let mut state = lock(&self.state);
            if state.named.as_ref() == Some(&switch.old) && switch.old != switch.new {
                // Each failover raises the epoch. A sentinel with a lower one has not heard of this failover.
                state.epoch += 1;
                state.replace(switch.new.clone());
            }
        }
        self.set_primary(&switch.new);
    }

    /// Sets the primary, and closes a connection to another server.
    fn set_primary(&self, primary: &ServerAddress) {
        let mut state = lock(&self.state);
        state.named = Some(primary.clone());
        if let Some((_, closer)) = state.connected.take_if(|(connected, _)| connected != primary) {
            closer.close();
        }
    }

    /// Handles the loss of the subscription. A task subscribes to the next sentinel that answers and catches up.
    fn subscription_lost(self: &Arc<Self>, number: u64) {
        if lock(&self.state).subscription.take_if(|(subscription, _)| *subscription == number).is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(resubscribe(Arc::downgrade(self)));
        }
    }
}

async fn resubscribe(inner: Weak<SentinelInner>) {
    loop {
        tokio::time::sleep(RETRY_PAUSE).await;
        let Some(inner) = inner.upgrade() else { return };
        // A new connection has subscribed in the meantime.
        if lock(&inner.state).subscription.is_some() {
            return;
        }
        if let Ok(primary) = inner.primary().await {
            inner.set_primary(&primary);
            return;
        }
    }
}

impl fmt::Debug for SentinelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelTarget").field("name", &self.0.name).field("known", &lock(&self.0.state).known).finish()
    }
}

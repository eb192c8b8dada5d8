//! The primary that sentinels name. They are asked before each connection, and tell when they have made another.
//!
//! A server that they have replaced is not written to any more once a sentinel has said so, though it may not know of
//! it yet and would take the writes. Where neither it nor a sentinel can be heard, nobody can tell: what it takes then is
//! lost with it.
mod query;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::StoreErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, Value};

use self::query::{PrimaryReport, PrimarySwitch};
use crate::connection::address::ServerAddress;
use crate::connection::client::ClientFactory;
use crate::connection::{ConnectTarget, ConnectionCloser};
use crate::failure::{CallFailure, FailureKind};
use crate::topology::staggered;

/// Between two rounds of asking sentinels that do not answer, while nobody waits for it.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Who names a server that has been replaced no longer ago has not heard of it: sentinels tell each other every two
/// seconds. After that they may have been set up anew, and count from nothing again.
const PROPAGATION: Duration = Duration::from_secs(60);

/// Who knows the primary.
pub(crate) struct SentinelTarget(Arc<SentinelInner>);

struct SentinelInner {
    /// Of the primary.
    name: String,
    sentinels: ClientFactory,
    servers: ClientFactory,
    connect: Duration,
    state: Mutex<SentinelState>,
}

struct SentinelState {
    /// The one that answered last comes first.
    known: Vec<ServerAddress>,
    /// The one that has been told: a sentinel that tells less has not heard of the last failover.
    epoch: u64,
    /// The connection over which a sentinel tells of a failover, and its number.
    subscription: Option<(u64, MultiplexedConnection)>,
    subscriptions: u64,
    /// Whom we are connected to, and the end of that.
    connected: Option<(ServerAddress, ConnectionCloser)>,
    /// Whom the sentinels named last.
    named: Option<ServerAddress>,
    /// Whom that one took the place of, and when we heard of it.
    replaced: Option<(ServerAddress, Instant)>,
}

impl SentinelState {
    /// This is the primary, of a higher epoch.
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

    /// A server says itself whether it is a primary: the sentinels may be ahead of it, or behind.
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
        let is_primary = matches!(&role, Value::Array(parts) if parts.first().and_then(query::text) == Some("master"));
        if !is_primary {
            return Err(CallFailure::transient("the server that the sentinels report is not a primary"));
        }
        let mut state = self.0.lock();
        let connected = address(client).filter(|connected| state.named.as_ref() == Some(connected));
        // From here on a switch closes it.
        let connected =
            connected.ok_or_else(|| CallFailure::transient("the sentinels have reported another primary"))?;
        state.connected = Some((connected, closer));
        Ok(())
    }

    fn name(&self) -> String {
        match &self.0.lock().named {
            Some(named) => format!("{named} (the primary {:?} of the sentinels)", self.0.name),
            None => format!("the primary {:?} of the sentinels", self.0.name),
        }
    }
}

/// Where it connects to.
fn address(client: &redis::Client) -> Option<ServerAddress> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(ServerAddress::new(host.as_str(), *port))
        }
        _ => None,
    }
}

impl SentinelInner {
    /// Asks the sentinels, and listens to the one that answered.
    async fn primary(self: &Arc<Self>) -> Result<ServerAddress, CallFailure> {
        let (known, epoch, number) = {
            let mut state = self.lock();
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
        let mut state = self.lock();
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
            // Whom we were told of stands.
            Some(known) => return known,
            // Nobody tells more: they count from nothing again.
            None if is_behind => state.named = Some(named.primary.clone()),
            None => state.replace(named.primary.clone()),
        }
        state.epoch = named.epoch;
        named.primary
    }

    /// A sentinel tells it.
    fn on_switch(&self, switch: PrimarySwitch) {
        {
            let mut state = self.lock();
            if state.named.as_ref() == Some(&switch.old) && switch.old != switch.new {
                // With each switch it rises: who tells less than that has not heard of this one.
                state.epoch += 1;
                state.replace(switch.new.clone());
            }
        }
        self.set_primary(&switch.new);
    }

    /// Somebody said that this is the primary now.
    fn set_primary(&self, primary: &ServerAddress) {
        let mut state = self.lock();
        state.named = Some(primary.clone());
        if let Some((_, closer)) = state.connected.take_if(|(connected, _)| connected != primary) {
            closer.close();
        }
    }

    /// Nobody tells any more. Another is listened to as soon as one answers, and what was missed is asked for.
    fn subscription_lost(self: &Arc<Self>, number: u64) {
        if self.lock().subscription.take_if(|(subscription, _)| *subscription == number).is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(resubscribe(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SentinelState> {
        // Nothing under this lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn resubscribe(inner: Weak<SentinelInner>) {
    loop {
        tokio::time::sleep(RETRY_PAUSE).await;
        let Some(inner) = inner.upgrade() else { return };
        // A new connection to a primary has asked meanwhile.
        if inner.lock().subscription.is_some() {
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
        f.debug_struct("SentinelTarget").field("name", &self.0.name).field("known", &self.0.lock().known).finish()
    }
}

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

use self::query::{Named, Switch};
use crate::connection::address::Address;
use crate::connection::client::Access;
use crate::connection::{Closer, Target};
use crate::failure::{Failure, FailureKind};
use crate::topology::staggered;

/// Between two rounds of asking sentinels that do not answer, while nobody waits for it.
const ROUND: Duration = Duration::from_secs(1);
/// Who names a server that has been replaced no longer ago has not heard of it: sentinels tell each other every two
/// seconds. After that they may have been set up anew, and count from nothing again.
const NEWS: Duration = Duration::from_secs(60);

/// Who knows the primary.
pub(crate) struct Sentinels(Arc<Inner>);

struct Inner {
    /// Of the primary.
    name: String,
    sentinels: Access,
    servers: Access,
    connect: Duration,
    state: Mutex<State>,
}

struct State {
    /// The one that answered last comes first.
    known: Vec<Address>,
    /// The one that has been told: a sentinel that tells less has not heard of the last failover.
    epoch: u64,
    /// The connection over which a sentinel tells of a failover, and its number.
    ear: Option<(u64, MultiplexedConnection)>,
    ears: u64,
    /// Whom we are connected to, and the end of that.
    linked: Option<(Address, Closer)>,
    /// Whom the sentinels named last.
    named: Option<Address>,
    /// Whom that one took the place of, and when we heard of it.
    replaced: Option<(Address, Instant)>,
}

impl State {
    /// This is the primary, of a higher epoch.
    fn replace(&mut self, primary: Address) {
        if let Some(old) = self.named.replace(primary.clone()).filter(|old| *old != primary) {
            self.replaced = Some((old, Instant::now()));
        }
    }

    fn was_replaced(&self, primary: &Address) -> bool {
        self.replaced.as_ref().is_some_and(|(old, since)| old == primary && since.elapsed() < NEWS)
    }
}

impl Sentinels {
    pub(crate) fn new(at: Vec<Address>, name: String, sentinels: Access, servers: Access, connect: Duration) -> Self {
        let (epoch, ear, ears, linked, named, replaced) = (0, None, 0, None, None, None);
        let state = Mutex::new(State { known: at, epoch, ear, ears, linked, named, replaced });
        Self(Arc::new(Inner { name, sentinels, servers, connect, state }))
    }
}

#[async_trait]
impl Target for Sentinels {
    async fn client(&self) -> Result<redis::Client, Failure> {
        let primary = self.0.primary().await?;
        self.0.servers.client(&primary)
    }

    /// A server says itself whether it is a primary: the sentinels may be ahead of it, or behind.
    async fn accept(
        &self,
        client: &redis::Client,
        connection: &mut MultiplexedConnection,
        closer: Closer,
    ) -> Result<(), Failure> {
        let role = connection.send_packed_command(Cmd::new().arg("ROLE")).await;
        let role = role.map_err(|e| match Failure::of_client(&e) {
            denied if denied.kind == FailureKind::Store(StoreErrorKind::Denied) => denied,
            other => Failure::unreachable(format!("the server did not say its role: {}", other.text())),
        })?;
        let is_primary = matches!(&role, Value::Array(parts) if parts.first().and_then(query::text) == Some("master"));
        if !is_primary {
            return Err(Failure::soon("the server that the sentinels name is not a primary (yet, or any more)"));
        }
        let mut state = self.0.lock();
        let linked = address(client).filter(|linked| state.named.as_ref() == Some(linked));
        // From here on a switch closes it.
        let linked = linked.ok_or_else(|| Failure::soon("meanwhile the sentinels have named another primary"))?;
        state.linked = Some((linked, closer));
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
fn address(client: &redis::Client) -> Option<Address> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Address::new(host.as_str(), *port))
        }
        _ => None,
    }
}

impl Inner {
    /// Asks the sentinels, and listens to the one that answered.
    async fn primary(self: &Arc<Self>) -> Result<Address, Failure> {
        let (known, epoch, number) = {
            let mut state = self.lock();
            state.ears += 1;
            (state.known.clone(), state.epoch, state.ears)
        };
        let tries = known.into_iter().map(|sentinel| {
            let inner = self.clone();
            async move { query::ask(&inner, number, &sentinel).await }
        });
        let (good, better) =
            (|named: &Named| named.epoch >= epoch, |one: &Named, other: &Named| one.epoch > other.epoch);
        let named = staggered::first(tries, good, better, self.connect / 2).await;
        let named = named.map_err(|why| why.because("no sentinel says which server is the primary"))?;
        Ok(self.learn(named, number))
    }

    fn learn(&self, named: Named, number: u64) -> Address {
        let mut state = self.lock();
        state.known.retain(|known| *known != named.by);
        state.known.insert(0, named.by);
        for other in named.others {
            if !state.known.contains(&other) {
                state.known.push(other);
            }
        }
        state.ear = named.ear.map(|ear| (number, ear));
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
    fn told(&self, switch: Switch) {
        {
            let mut state = self.lock();
            if state.named.as_ref() == Some(&switch.old) && switch.old != switch.new {
                // With each switch it rises: who tells less than that has not heard of this one.
                state.epoch += 1;
                state.replace(switch.new.clone());
            }
        }
        self.switched(&switch.new);
    }

    /// Somebody said that this is the primary now.
    fn switched(&self, primary: &Address) {
        let mut state = self.lock();
        state.named = Some(primary.clone());
        if let Some((_, closer)) = state.linked.take_if(|(linked, _)| linked != primary) {
            closer.close();
        }
    }

    /// Nobody tells any more. Another is listened to as soon as one answers, and what was missed is asked for.
    fn deaf(self: &Arc<Self>, number: u64) {
        if self.lock().ear.take_if(|(ear, _)| *ear == number).is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(listen(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(inner) = inner.upgrade() else { return };
        // A new connection to a primary has asked meanwhile.
        if inner.lock().ear.is_some() {
            return;
        }
        if let Ok(primary) = inner.primary().await {
            inner.switched(&primary);
            return;
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("name", &self.0.name).field("known", &self.0.lock().known).finish()
    }
}

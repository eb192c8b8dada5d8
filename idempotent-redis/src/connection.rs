//! A connection to one server, which is reopened when it breaks.
pub(crate) mod address;
pub(crate) mod client;
mod diagnosis;
mod lifetime;
pub(crate) mod notifications;
pub(crate) mod single_flight;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
pub(crate) mod tls;
pub(crate) mod url;
mod watchdog;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent_core::__private::url::unreached;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, Value};

pub(crate) use self::lifetime::ConnectionCloser;
use self::lifetime::{ConnectionState, PushHandler};
use crate::connection::notifications::NotificationHub;
use crate::connection::single_flight::SingleFlight;
use crate::failure::{CallFailure, FailureKind};
use crate::lock;

/// The server that a connection leads to. The target is resolved before each connection attempt.
#[async_trait]
pub(crate) trait ConnectTarget: fmt::Debug + Send + Sync {
    /// Returns a client for the server that currently accepts writes.
    async fn client(&self) -> Result<redis::Client, CallFailure>;

    /// Checks a new connection, opened by `client`, before the first use. `closer` can close the connection then or
    /// later.
    async fn accept(
        &self,
        _client: &redis::Client,
        _connection: &mut MultiplexedConnection,
        _closer: ConnectionCloser,
    ) -> Result<(), CallFailure> {
        Ok(())
    }

    /// Returns the name for error texts, without credentials.
    fn name(&self) -> String;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// A multiplexed connection: concurrent calls share one socket.
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    target: Box<dyn ConnectTarget>,
    timeouts: ConnectionTimeouts,
    hub: Arc<NotificationHub>,
    current: Mutex<Option<OpenConnection>>,
    /// Number of the latest connection.
    number: AtomicU64,
    connecting: SingleFlight,
    failed: Mutex<FailedAttempts>,
}

/// Connection attempts that failed since the last success.
#[derive(Clone, Copy, Debug, Default)]
struct FailedAttempts {
    times: u32,
    since: Option<Instant>,
    /// True if a connection has succeeded before. If so, a wrong address is not the cause of a failure.
    connected_before: bool,
}

#[derive(Clone)]
struct OpenConnection {
    number: u64,
    connection: MultiplexedConnection,
    state: Arc<ConnectionState>,
    /// The runtime that drives the connection.
    runtime: tokio::runtime::Id,
}

impl Connection {
    pub(crate) fn new(target: Box<dyn ConnectTarget>, timeouts: ConnectionTimeouts, hub: Arc<NotificationHub>) -> Self {
        let (current, connecting, failed) = (Mutex::default(), SingleFlight::default(), Mutex::default());
        Self(Arc::new(ConnectionInner {
            target,
            timeouts,
            hub,
            current,
            number: AtomicU64::new(0),
            connecting,
            failed,
        }))
    }

    /// Sends one command.
    ///
    /// # Errors
    /// `NotApplied` if the command was certainly not sent, the server's error, or `Ambiguous`.
    ///
    /// # Cancellation
    /// The command may or may not have been applied.
    pub(crate) async fn send(&self, cmd: &Cmd) -> Result<Value, CallFailure> {
        let mut open = self.open_connection().await?;
        let reply =
            self.0.await_reply(&open.state.clone(), open.runtime, open.connection.send_packed_command(cmd)).await?;
        refused(reply)
    }

    /// Sends several commands in one write and returns a value or an error for each.
    ///
    /// # Errors
    /// The same as [`send`](Self::send), for all commands.
    pub(crate) async fn send_pipeline(&self, pipeline: &Pipeline) -> Result<Vec<Value>, CallFailure> {
        let mut open = self.open_connection().await?;
        let sent = open.connection.send_packed_commands(pipeline, 0, pipeline.len());
        self.0.await_reply(&open.state.clone(), open.runtime, sent).await
    }

    async fn open_connection(&self) -> Result<OpenConnection, CallFailure> {
        match self.0.open() {
            Some(open) => Ok(open),
            None => Box::pin(self.connect_in_task()).await,
        }
    }

    /// Connects in a task of its own. Callers may all give up before a connection is established, and then none would
    /// ever be.
    async fn connect_in_task(&self) -> Result<OpenConnection, CallFailure> {
        let inner = self.0.clone();
        let connecting = tokio::spawn(async move { inner.connect_shared().await });
        connecting.await.unwrap_or_else(|_| {
            Err(CallFailure::not_applied("not connected: the runtime that was connecting has shut down"))
        })
    }

    /// Returns the number of the latest connection. It rises with each new connection.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// Closes the current connection if its number is at most `number`, because another server may accept the writes
    /// now. A newer connection stays open.
    pub(crate) fn reconnect(&self, number: u64) {
        self.0.reconnect(number);
    }

    /// Returns the name for error texts, without credentials.
    pub(crate) fn name(&self) -> String {
        self.0.target.name()
    }

    /// Returns whether the connection, if there is one, receives notifications of other processes.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.open().is_none_or(|open| open.state.is_listening.load(Ordering::Acquire))
    }
}

impl ConnectionInner {
    async fn await_reply<T>(
        &self,
        state: &Arc<ConnectionState>,
        runtime: tokio::runtime::Id,
        sent: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, CallFailure> {
        let (mut pending, timed_out) = (state.watchdog.register(), state.watchdog.timed_out());
        if state.watchdog.has_ended() {
            return Err(CallFailure::not_applied(format!(
                "call not sent: the connection to {} was closed",
                self.target.name()
            )));
        }
        let sent = async {
            tokio::select! {
                biased;
                sent = sent => Some(sent),
                () = timed_out => None,
            }
        };
        let outcome = if tokio::runtime::Handle::current().id() == runtime {
            sent.await
        } else {
            // The watchdog runs on the connection's runtime, which may be blocked.
            tokio::time::timeout(self.timeouts.response * 2, sent).await.unwrap_or_default()
        };
        pending.is_answered = true;
        match outcome {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if error.is_unrecoverable_error() {
                    self.discard(state);
                }
                Err(CallFailure::from_client(&error))
            }
            // The other calls on this connection will not get a reply either.
            None => {
                self.discard(state);
                let after = self.timeouts.response;
                Err(CallFailure::ambiguous(format!(
                    "{} did not answer within the response timeout of {after:?}",
                    self.target.name()
                )))
            }
        }
    }

    /// Closes a connection and stops using it.
    fn discard(&self, state: &Arc<ConnectionState>) {
        state.close();
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(&open.state, state)) {
            *current = None;
        }
    }

    fn reconnect(&self, number: u64) {
        let open = lock(&self.current).clone();
        if let Some(open) = open.filter(|open| open.number <= number) {
            self.discard(&open.state);
        }
    }

    fn open(&self) -> Option<OpenConnection> {
        let open = lock(&self.current).as_ref()?.clone();
        (!open.state.is_closed()).then_some(open)
    }

    async fn connect_shared(&self) -> Result<OpenConnection, CallFailure> {
        let connecting = async {
            let open = self.connect().await.map_err(|failure| self.count_failure(failure))?;
            *lock(&self.failed) = FailedAttempts { connected_before: true, ..FailedAttempts::default() };
            *lock(&self.current) = Some(open.clone());
            Ok(open)
        };
        self.connecting.share(|| self.open(), connecting).await
    }

    async fn connect(&self) -> Result<OpenConnection, CallFailure> {
        let state = Arc::new(ConnectionState::new(self.hub.clone()));
        let mut connection = match tokio::time::timeout(self.timeouts.connect, self.open_client(&state)).await {
            Ok(reached) => reached?,
            Err(_) => {
                let remedy = self.after_silence().await;
                return Err(CallFailure::unreachable(format!(
                    "no answer within the connect timeout of {:?}{remedy}",
                    self.timeouts.connect
                )));
            }
        };
        // If the server denies the subscription, waiters poll.
        let listening = tokio::time::timeout(self.timeouts.connect, connection.subscribe(self.hub.channels)).await;
        if matches!(listening, Ok(Ok(()))) {
            state.set_listening();
        }
        self.start_watchdog(&connection, &state);
        let runtime = tokio::runtime::Handle::current().id();
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(OpenConnection { number, connection, state, runtime })
    }

    /// Starts the watchdog, which closes the connection when a call gets no reply in time.
    fn start_watchdog(&self, connection: &MultiplexedConnection, state: &Arc<ConnectionState>) {
        let (asked, watched) = (connection.clone(), Arc::downgrade(state));
        let ping = move || {
            let mut asked = asked.clone();
            // Any reply shows that the server is alive.
            async move { asked.send_packed_command(Cmd::new().arg("PING")).await.is_ok() }
        };
        let on_timeout = move || {
            if let Some(state) = watched.upgrade() {
                state.close();
            }
        };
        tokio::spawn(state.watchdog.clone().watch(self.timeouts.response, ping, on_timeout));
    }

    async fn open_client(&self, state: &Arc<ConnectionState>) -> Result<MultiplexedConnection, CallFailure> {
        let client = self.target.client().await?;
        let pushes = PushHandler { state: state.clone(), hub: self.hub.clone() };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(pushes);
        let mut connection = match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => connection,
            Err(error) => return Err(self.explain(&client, &error).await),
        };
        self.target.accept(&client, &mut connection, ConnectionCloser(Arc::downgrade(state))).await?;
        Ok(connection)
    }

    /// Returns the failure of a connection attempt with a remedy. Nothing was sent, so nothing was applied.
    async fn explain(&self, client: &redis::Client, error: &redis::RedisError) -> CallFailure {
        let failure = CallFailure::from_connecting(error);
        let replied = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        match failure.kind {
            // A server that replied has the right address and protocol.
            FailureKind::Unreachable if !self.is_known() && !replied => {
                let address = client.get_connection_info().addr();
                let remedy = match diagnosis::remedy(address, failure.text(), self.timeouts.connect / 2).await {
                    "" => format!("; {}", unreached(failure.text())),
                    remedy => remedy.to_owned(),
                };
                CallFailure::unreachable(format!("{}{remedy}", failure.text()))
            }
            FailureKind::Store(_) if failure.text().contains("DB index is out of range") => {
                let db = client.get_connection_info().redis_settings().db();
                failure.because(&format!(
                    "database {db} does not exist; raise `databases` in redis.conf or select another database"
                ))
            }
            _ => failure,
        }
    }

    /// Returns the remedy for a server that accepts connections but sends nothing.
    async fn after_silence(&self) -> &'static str {
        if self.is_known() {
            return "";
        }
        match tokio::time::timeout(self.timeouts.connect, self.target.client()).await {
            Ok(Ok(client)) => {
                diagnosis::after_silence(client.get_connection_info().addr(), self.timeouts.connect).await
            }
            _ => diagnosis::SILENT,
        }
    }

    /// Returns whether the address is correct or was already diagnosed. No further probes go to a server that may be
    /// failing over.
    fn is_known(&self) -> bool {
        let failed = lock(&self.failed);
        failed.connected_before || failed.times > 0
    }

    /// Counts a failure and adds the target, the attempts and the elapsed time to its text.
    fn count_failure(&self, failure: CallFailure) -> CallFailure {
        let mut failed = lock(&self.failed);
        failed.times = failed.times.saturating_add(1);
        let since = failed.since.get_or_insert_with(Instant::now).elapsed();
        let since = Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        // The first attempt has no elapsed time.
        let since = if failed.times > 1 { format!(", for {since:?}") } else { String::new() };
        failure.because(&format!("no connection to {} (attempt {}{since})", self.target.name(), failed.times))
    }
}

/// Returns the value, or an error if the value is a server error.
pub(crate) fn refused(value: Value) -> Result<Value, CallFailure> {
    match value {
        Value::ServerError(error) => Err(CallFailure::from_server(&error)),
        value => Ok(value),
    }
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Returns a named field of a map or of a flat list.
pub(crate) fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a str> {
    match reply {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value)),
        Value::Array(flat) => {
            flat.chunks(2).find(|pair| pair.first().and_then(text) == Some(name))?.get(1).and_then(text)
        }
        _ => None,
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        self.reconnect(u64::MAX);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("to", &self.0.target.name()).finish_non_exhaustive()
    }
}

//! One connection to one server, made again when it breaks.
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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, Value};

pub(crate) use self::lifetime::ConnectionCloser;
use self::lifetime::{ConnectionState, PushHandler};
use crate::connection::notifications::NotificationHub;
use crate::connection::single_flight::SingleFlight;
use crate::failure::{CallFailure, FailureKind};

/// Where to connect to; asked before each connection.
#[async_trait]
pub(crate) trait ConnectTarget: fmt::Debug + Send + Sync {
    /// How to reach the server that takes writes now.
    async fn client(&self) -> Result<redis::Client, CallFailure>;

    /// Looks at a new connection, made by `client`, before it is used. `closer` ends it, then or later.
    async fn accept(
        &self,
        _client: &redis::Client,
        _connection: &mut MultiplexedConnection,
        _closer: ConnectionCloser,
    ) -> Result<(), CallFailure> {
        Ok(())
    }

    /// For error texts, without credentials.
    fn name(&self) -> String;
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// A multiplexed connection: what is sent side by side goes down the same socket.
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    target: Box<dyn ConnectTarget>,
    timeouts: ConnectionTimeouts,
    hub: Arc<NotificationHub>,
    current: Mutex<Option<OpenConnection>>,
    /// Of the connection that was made last.
    number: AtomicU64,
    connecting: SingleFlight,
    failed: Mutex<FailedAttempts>,
}

/// Tries to connect since the last that came about.
#[derive(Clone, Copy, Debug, Default)]
struct FailedAttempts {
    times: u32,
    since: Option<Instant>,
    /// It has been reached before: that the address is wrong is not the reason.
    connected_before: bool,
}

#[derive(Clone)]
struct OpenConnection {
    number: u64,
    connection: MultiplexedConnection,
    state: Arc<ConnectionState>,
    /// The runtime that drives it.
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
    /// `NotApplied` if it was surely not sent, what the server said, or `Ambiguous`.
    ///
    /// # Cancellation
    /// It may have been applied or not.
    pub(crate) async fn send(&self, cmd: &Cmd) -> Result<Value, CallFailure> {
        let mut open = self.open_connection().await?;
        let reply =
            self.0.await_reply(&open.state.clone(), open.runtime, open.connection.send_packed_command(cmd)).await?;
        refused(reply)
    }

    /// Sends some in one write. Each has its own answer, or error, in its place.
    ///
    /// # Errors
    /// As [`one`](Self::one), for all of them.
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

    /// By a task: callers may give up sooner than a connection takes, each of them, and there would never be one.
    async fn connect_in_task(&self) -> Result<OpenConnection, CallFailure> {
        let inner = self.0.clone();
        let connecting = tokio::spawn(async move { inner.connect_shared().await });
        connecting.await.unwrap_or_else(|_| {
            Err(CallFailure::not_applied("not connected: the runtime that was connecting has shut down"))
        })
    }

    /// Rises with each connection that is made.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// The connection of this number, or one before it, is not used any more: another server may take the writes. One
    /// that was made since then stays.
    pub(crate) fn reconnect(&self, number: u64) {
        self.0.reconnect(number);
    }

    /// For error texts, without credentials.
    pub(crate) fn name(&self) -> String {
        self.0.target.name()
    }

    /// Whether the connection, if there is one, hears what other processes tell.
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
            // The watchdog lives where the connection does, and that runtime may stand still.
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
            // What else waits on it will not be answered either.
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

    /// No more is sent over this one.
    fn discard(&self, state: &Arc<ConnectionState>) {
        state.close();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(&open.state, state)) {
            *current = None;
        }
    }

    fn reconnect(&self, number: u64) {
        let open = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(open) = open.filter(|open| open.number <= number) {
            self.discard(&open.state);
        }
    }

    fn open(&self) -> Option<OpenConnection> {
        let open = self.current.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.clone();
        (!open.state.is_closed()).then_some(open)
    }

    async fn connect_shared(&self) -> Result<OpenConnection, CallFailure> {
        let connecting = async {
            let open = self.connect().await.map_err(|failure| self.count_failure(failure))?;
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                FailedAttempts { connected_before: true, ..FailedAttempts::default() };
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
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
        // A server that does not let us listen is asked instead.
        let listening = tokio::time::timeout(self.timeouts.connect, connection.subscribe(self.hub.channels)).await;
        if matches!(listening, Ok(Ok(()))) {
            state.set_listening();
        }
        self.start_watchdog(&connection, &state);
        let runtime = tokio::runtime::Handle::current().id();
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(OpenConnection { number, connection, state, runtime })
    }

    /// Gives the connection up when a call goes unanswered for too long.
    fn start_watchdog(&self, connection: &MultiplexedConnection, state: &Arc<ConnectionState>) {
        let (asked, watched) = (connection.clone(), Arc::downgrade(state));
        let ping = move || {
            let mut asked = asked.clone();
            // Any answer is a sign of life.
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

    /// Nothing was sent yet: whatever went wrong, nothing was applied.
    async fn explain(&self, client: &redis::Client, error: &redis::RedisError) -> CallFailure {
        let failure = CallFailure::from_connecting(error);
        let replied = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        match failure.kind {
            // A server that speaks is none that should be reached otherwise.
            FailureKind::Unreachable if !self.is_known() && !replied => {
                let address = client.get_connection_info().addr();
                let remedy = diagnosis::remedy(address, failure.text(), self.timeouts.connect / 2).await;
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

    /// What to do about a server that takes connections and says nothing.
    async fn after_silence(&self) -> &'static str {
        if self.is_known() {
            return "";
        }
        match tokio::time::timeout(self.timeouts.connect, self.target.client()).await {
            Ok(Ok(client)) => {
                diagnosis::after_silence(client.get_connection_info().addr(), self.timeouts.connect).await
            }
            _ => "",
        }
    }

    /// Whether the address is right, or has been looked at: nothing more is tried out on what may be failing over.
    fn is_known(&self) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.connected_before || failed.times > 0
    }

    /// Says where to, how often and for how long.
    fn count_failure(&self, failure: CallFailure) -> CallFailure {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.times = failed.times.saturating_add(1);
        let since = failed.since.get_or_insert_with(Instant::now).elapsed();
        let since = Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        // The first has taken no time yet.
        let since = if failed.times > 1 { format!(", for {since:?}") } else { String::new() };
        failure.because(&format!("no connection to {} (attempt {}{since})", self.target.name(), failed.times))
    }
}

/// A server's refusal is an error.
pub(crate) fn refused(value: Value) -> Result<Value, CallFailure> {
    match value {
        Value::ServerError(error) => Err(CallFailure::from_server(&error)),
        value => Ok(value),
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

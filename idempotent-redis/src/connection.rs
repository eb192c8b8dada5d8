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

pub(crate) use self::lifetime::Closer;
use self::lifetime::{End, Pushes};
use crate::connection::notifications::Hub;
use crate::connection::single_flight::Flight;
use crate::failure::{Failure, FailureKind};

/// Where to connect to; asked before each connection.
#[async_trait]
pub(crate) trait Target: fmt::Debug + Send + Sync {
    /// How to reach the server that takes writes now.
    async fn client(&self) -> Result<redis::Client, Failure>;

    /// Looks at a new connection, made by `client`, before it is used. `closer` ends it, then or later.
    async fn accept(
        &self,
        _client: &redis::Client,
        _connection: &mut MultiplexedConnection,
        _closer: Closer,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// For error texts, without credentials.
    fn name(&self) -> String;
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// A multiplexed connection: what is sent side by side goes down the same socket.
pub(crate) struct Link(Arc<Wire>);

struct Wire {
    target: Box<dyn Target>,
    patience: Patience,
    hub: Arc<Hub>,
    current: Mutex<Option<Line>>,
    /// Of the connection that was made last.
    number: AtomicU64,
    connecting: Flight,
    failed: Mutex<Failed>,
}

/// Tries to connect since the last that came about.
#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    times: u32,
    since: Option<Instant>,
    /// It has been reached before: that the address is wrong is not the reason.
    once: bool,
}

#[derive(Clone)]
struct Line {
    number: u64,
    connection: MultiplexedConnection,
    end: Arc<End>,
    /// The runtime that drives it.
    home: tokio::runtime::Id,
}

impl Link {
    pub(crate) fn new(target: Box<dyn Target>, patience: Patience, hub: Arc<Hub>) -> Self {
        let (current, connecting, failed) = (Mutex::default(), Flight::default(), Mutex::default());
        Self(Arc::new(Wire { target, patience, hub, current, number: AtomicU64::new(0), connecting, failed }))
    }

    /// Sends one command.
    ///
    /// # Errors
    /// `NotApplied` if it was surely not sent, what the server said, or `Ambiguous`.
    ///
    /// # Cancellation
    /// It may have been applied or not.
    pub(crate) async fn one(&self, cmd: &Cmd) -> Result<Value, Failure> {
        let mut line = self.line().await?;
        let said = self.0.heard(&line.end.clone(), line.home, line.connection.send_packed_command(cmd)).await?;
        refused(said)
    }

    /// Sends some in one write. Each has its own answer, or error, in its place.
    ///
    /// # Errors
    /// As [`one`](Self::one), for all of them.
    pub(crate) async fn all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let mut line = self.line().await?;
        let sent = line.connection.send_packed_commands(pipeline, 0, pipeline.len());
        self.0.heard(&line.end.clone(), line.home, sent).await
    }

    async fn line(&self) -> Result<Line, Failure> {
        match self.0.open() {
            Some(line) => Ok(line),
            None => Box::pin(self.connected()).await,
        }
    }

    /// By a task: callers may give up sooner than a connection takes, each of them, and there would never be one.
    async fn connected(&self) -> Result<Line, Failure> {
        let wire = self.0.clone();
        let connecting = tokio::spawn(async move { wire.connected().await });
        connecting.await.unwrap_or_else(|_| Err(Failure::not_applied("the runtime that was to connect has ended")))
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
    pub(crate) fn hears(&self) -> bool {
        self.0.open().is_none_or(|line| line.end.hears.load(Ordering::Acquire))
    }
}

impl Wire {
    async fn heard<T>(
        &self,
        end: &Arc<End>,
        home: tokio::runtime::Id,
        sent: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Failure> {
        let (mut waits, bitten) = (end.dog.waits(), end.dog.bitten());
        if end.dog.is_over() {
            return Err(Failure::not_applied(format!("the connection to {} has ended", self.target.name())));
        }
        let sent = async {
            tokio::select! {
                biased;
                sent = sent => Some(sent),
                () = bitten => None,
            }
        };
        let told = if tokio::runtime::Handle::current().id() == home {
            sent.await
        } else {
            // The watchdog lives where the connection does, and that runtime may stand still.
            tokio::time::timeout(self.patience.response * 2, sent).await.unwrap_or_default()
        };
        waits.is_answered = true;
        match told {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if error.is_unrecoverable_error() {
                    self.broken(end);
                }
                Err(Failure::of_client(&error))
            }
            // What else waits on it will not be answered either.
            None => {
                self.broken(end);
                let after = self.patience.response;
                Err(Failure::ambiguous(format!("{} did not answer within {after:?}", self.target.name())))
            }
        }
    }

    /// No more is sent over this one.
    fn broken(&self, end: &Arc<End>) {
        end.close();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|line| Arc::ptr_eq(&line.end, end)) {
            *current = None;
        }
    }

    fn reconnect(&self, number: u64) {
        let line = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(line) = line.filter(|line| line.number <= number) {
            self.broken(&line.end);
        }
    }

    fn open(&self) -> Option<Line> {
        let line = self.current.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.clone();
        (!line.end.is_closed()).then_some(line)
    }

    async fn connected(&self) -> Result<Line, Failure> {
        let connecting = async {
            let line = self.connect().await.map_err(|failure| self.failed(failure))?;
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Failed { once: true, ..Failed::default() };
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
            Ok(line)
        };
        self.connecting.share(|| self.open(), connecting).await
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let end = Arc::new(End::new(self.hub.clone()));
        let mut connection = match tokio::time::timeout(self.patience.connect, self.reach(&end)).await {
            Ok(reached) => reached?,
            Err(_) => {
                let remedy = self.after_silence().await;
                return Err(Failure::unreachable(format!("it took none within {:?}{remedy}", self.patience.connect)));
            }
        };
        // A server that does not let us listen is asked instead.
        let listening = tokio::time::timeout(self.patience.connect, connection.subscribe(self.hub.channels)).await;
        if matches!(listening, Ok(Ok(()))) {
            end.listens();
        }
        self.watch(&connection, &end);
        let home = tokio::runtime::Handle::current().id();
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(Line { number, connection, end, home })
    }

    /// Gives the connection up when a call goes unanswered for too long.
    fn watch(&self, connection: &MultiplexedConnection, end: &Arc<End>) {
        let (asked, watched) = (connection.clone(), Arc::downgrade(end));
        let ping = move || {
            let mut asked = asked.clone();
            // Any answer is a sign of life.
            async move { asked.send_packed_command(Cmd::new().arg("PING")).await.is_ok() }
        };
        let bite = move || {
            if let Some(end) = watched.upgrade() {
                end.close();
            }
        };
        tokio::spawn(end.dog.clone().watch(self.patience.response, ping, bite));
    }

    async fn reach(&self, end: &Arc<End>) -> Result<MultiplexedConnection, Failure> {
        let client = self.target.client().await?;
        let pushes = Pushes { end: end.clone(), hub: self.hub.clone() };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(pushes);
        let mut connection = match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => connection,
            Err(error) => return Err(self.explained(&client, &error).await),
        };
        self.target.accept(&client, &mut connection, Closer(Arc::downgrade(end))).await?;
        Ok(connection)
    }

    /// Nothing was sent yet: whatever went wrong, nothing was applied.
    async fn explained(&self, client: &redis::Client, error: &redis::RedisError) -> Failure {
        let failure = Failure::of_connecting(error);
        let speaks = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        match failure.kind {
            // A server that speaks is none that should be reached otherwise.
            FailureKind::Unreachable if !self.is_known() && !speaks => {
                let address = client.get_connection_info().addr();
                let remedy = diagnosis::remedy(address, failure.text(), self.patience.connect / 2).await;
                Failure::unreachable(format!("{}{remedy}", failure.text()))
            }
            FailureKind::Store(_) if failure.text().contains("DB index is out of range") => {
                let db = client.get_connection_info().redis_settings().db();
                failure
                    .because(&format!("it has no database {db}: raise `databases 16` in redis.conf, or name another"))
            }
            _ => failure,
        }
    }

    /// What to do about a server that takes connections and says nothing.
    async fn after_silence(&self) -> &'static str {
        if self.is_known() {
            return "";
        }
        match tokio::time::timeout(self.patience.connect, self.target.client()).await {
            Ok(Ok(client)) => {
                diagnosis::after_silence(client.get_connection_info().addr(), self.patience.connect).await
            }
            _ => "",
        }
    }

    /// Whether the address is right, or has been looked at: nothing more is tried out on what may be failing over.
    fn is_known(&self) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.once || failed.times > 0
    }

    /// Says where to, how often and for how long.
    fn failed(&self, failure: Failure) -> Failure {
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
pub(crate) fn refused(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::of_server(&error)),
        value => Ok(value),
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.reconnect(u64::MAX);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.0.target.name()).finish_non_exhaustive()
    }
}

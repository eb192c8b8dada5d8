//! One connection to one server, made again when it breaks.
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::StoreErrorKind;
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value};

use crate::failure::Failure;
use crate::hub::Hub;
use crate::script::{FORGOTTEN, SETTLED};
use crate::watchdog::Watchdog;

/// Where to connect to; asked before each connection.
#[async_trait]
pub(crate) trait Target: fmt::Debug + Send + Sync {
    /// How to reach the server that takes writes now.
    async fn client(&self) -> Result<redis::Client, Failure>;

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
pub(crate) struct Link {
    target: Box<dyn Target>,
    patience: Patience,
    hub: Arc<Hub>,
    current: Mutex<Option<Line>>,
    /// One at a time makes a new one.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Line {
    connection: MultiplexedConnection,
    end: Arc<End>,
}

/// Whether a connection has ended, told once.
struct End {
    closed: AtomicBool,
    /// It hears what other processes tell.
    hears: AtomicBool,
    hub: Arc<Hub>,
    dog: Arc<Watchdog>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.dog.end();
    }
}

impl End {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) && self.hears.swap(false, Ordering::AcqRel) {
            self.hub.deaf();
        }
    }

    fn listens(&self) {
        self.hub.listening();
        self.hears.store(true, Ordering::Release);
        // It may have ended meanwhile.
        if self.is_closed() && self.hears.swap(false, Ordering::AcqRel) {
            self.hub.deaf();
        }
    }
}

impl Link {
    pub(crate) fn new(target: Box<dyn Target>, patience: Patience, hub: Arc<Hub>) -> Self {
        Self { target, patience, hub, current: Mutex::default(), connecting: tokio::sync::Mutex::new(()) }
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
        let said = self.heard(&line.end.clone(), line.connection.send_packed_command(cmd)).await?;
        refused(said)
    }

    /// Sends some in one write. Each has its own answer, or error, in its place.
    ///
    /// # Errors
    /// As [`one`](Self::one), for all of them.
    pub(crate) async fn all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let mut line = self.line().await?;
        let sent = line.connection.send_packed_commands(pipeline, 0, pipeline.len());
        self.heard(&line.end.clone(), sent).await
    }

    async fn heard<T>(&self, end: &Arc<End>, sent: impl Future<Output = redis::RedisResult<T>>) -> Result<T, Failure> {
        let (_waits, bitten) = (end.dog.waits(), end.dog.bitten());
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
        match sent.await {
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

    /// Whatever is connected now is not used any more: another server may take the writes.
    pub(crate) fn reconnect(&self) {
        let line = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(line) = line {
            self.broken(&line.end);
        }
    }

    fn open(&self) -> Option<Line> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|line| !line.end.is_closed()).cloned()
    }

    async fn line(&self) -> Result<Line, Failure> {
        if let Some(line) = self.open() {
            return Ok(line);
        }
        let _turn = self.connecting.lock().await;
        if let Some(line) = self.open() {
            return Ok(line);
        }
        let line = self.connect().await?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
        Ok(line)
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let client = self.target.client().await?;
        let (closed, hears) = (AtomicBool::new(false), AtomicBool::new(false));
        let dog = Arc::new(Watchdog::default());
        let end = Arc::new(End { closed, hears, hub: self.hub.clone(), dog: dog.clone() });
        let pushes = Pushes { end: end.clone(), hub: self.hub.clone() };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience.connect))
            .set_response_timeout(None)
            .set_push_sender(pushes);
        let began = std::time::Instant::now();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = match tokio::time::timeout(self.patience.connect, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(self.unreachable(&error, began.elapsed())),
            Err(_) => {
                return Err(Failure::not_applied(format!(
                    "{} took no connection within {:?}",
                    self.target.name(),
                    self.patience.connect
                )));
            }
        };
        // A server that does not let us listen is asked instead.
        let listening = tokio::time::timeout(self.patience.connect, connection.subscribe(&[SETTLED, FORGOTTEN])).await;
        if matches!(listening, Ok(Ok(()))) {
            end.listens();
        }
        let watched = Arc::downgrade(&end);
        tokio::spawn(dog.watch(self.patience.response, move || {
            if let Some(end) = watched.upgrade() {
                end.close();
            }
        }));
        Ok(Line { connection, end })
    }

    fn unreachable(&self, error: &redis::RedisError, after: Duration) -> Failure {
        let failure = Failure::of_client(error);
        let why = format!("no connection to {} after {after:?}", self.target.name());
        match failure.kind {
            crate::failure::FailureKind::Store(StoreErrorKind::Ambiguous) => {
                Failure::not_applied(format!("{why}: {}", failure.text()))
            }
            _ => failure.because(&why),
        }
    }
}

/// A server's refusal is an error.
pub(crate) fn refused(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::of_server(&error)),
        value => Ok(value),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.target.name()).finish_non_exhaustive()
    }
}

/// What a server says without being asked, and the end of the connection.
struct Pushes {
    end: Arc<End>,
    hub: Arc<Hub>,
}

impl AsyncPushSender for Pushes {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => self.end.close(),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(key)]) => self.hub.told(channel, key),
            _ => {}
        }
        Ok(())
    }
}

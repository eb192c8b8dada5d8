//! One connection to the server, made again when it breaks.
use std::fmt;
use std::time::Duration;

use idempotent_mq::{SourceError, SourceErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisError, ScriptInvocation, Value};
use tokio::sync::Mutex;

use crate::error::{ends_connection, failure};

/// A server that does not take a connection in this time is away.
const CONNECT: Duration = Duration::from_secs(2);
/// One that does not answer in this time, beyond the wait it was asked for, is away.
pub(crate) const ANSWER: Duration = Duration::from_secs(4);

pub(crate) fn client(url: &str) -> Result<Client, RedisError> {
    let info = url.into_connection_info()?;
    // A user without the right to `CLIENT SETINFO` would fill the server's ACL log.
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    Client::open(info.set_redis_settings(settings))
}

pub(crate) struct Link {
    client: Client,
    /// How long an answer may take.
    patience: Duration,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// Rises with each that is made.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// `blocks`: how long a command may wait on the server.
    pub(crate) fn new(client: Client, blocks: Duration) -> Self {
        Self { client, patience: ANSWER + blocks, line: Mutex::default() }
    }

    /// # Errors
    /// What the connection or the server said, while `doing` this.
    ///
    /// # Cancellation
    /// It may have been carried out.
    pub(crate) async fn ask(&self, doing: &str, cmd: &Cmd) -> Result<Value, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let asked = cmd.query_async(&mut connection).await;
        self.heard(number, doing, asked).await
    }

    /// As [`ask`](Self::ask), for a script.
    pub(crate) async fn run(&self, doing: &str, script: &ScriptInvocation<'_>) -> Result<Value, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let asked = script.invoke_async(&mut connection).await;
        self.heard(number, doing, asked).await
    }

    /// A connection that answers: what fails before is surely not sent, and one that broke unnoticed is made again.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    ///
    /// # Cancellation
    /// Nothing has happened.
    pub(crate) async fn answering(&self) -> Result<Open<'_>, SourceError> {
        let known = self.line.lock().await.connection.is_some();
        match self.greeted().await {
            Err(_) if known => self.greeted().await,
            greeted => greeted,
        }
    }

    async fn greeted(&self) -> Result<Open<'_>, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let greeted = redis::cmd("PING").query_async(&mut connection).await;
        self.heard(number, "looking whether the server is there", greeted).await?;
        Ok(Open { link: self, number, connection })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), SourceError> {
        let mut line = self.line.lock().await;
        if let Some(connection) = &line.connection {
            return Ok((line.number, connection.clone()));
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(Some(self.patience));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let silent = || SourceError::new(SourceErrorKind::Transient, "connecting: no answer within 2 s");
        let connection = tokio::time::timeout(CONNECT, connecting).await.map_err(|_| silent())?;
        let connection = connection.map_err(|error| failure("connecting", error))?;
        line.number += 1;
        line.connection = Some(connection.clone());
        Ok((line.number, connection))
    }

    async fn heard(&self, number: u64, doing: &str, asked: Result<Value, RedisError>) -> Result<Value, SourceError> {
        let error = match asked {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        self.left(number, &error).await;
        Err(failure(doing, error))
    }

    async fn left(&self, number: u64, error: &RedisError) {
        if ends_connection(error) {
            let mut line = self.line.lock().await;
            // One that was made since then stays.
            if line.number == number {
                line.connection = None;
            }
        }
    }
}

/// A connection that many ask side by side, and that none of them makes again.
pub(crate) struct Open<'a> {
    link: &'a Link,
    number: u64,
    connection: MultiplexedConnection,
}

impl Open<'_> {
    /// # Errors
    /// The client's, as it is: it tells what the server said from what nobody knows.
    ///
    /// # Cancellation
    /// It may have been carried out.
    pub(crate) async fn ask(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let asked = cmd.query_async(&mut self.connection.clone()).await;
        self.heard(asked).await
    }

    /// As [`ask`](Self::ask), for a script.
    pub(crate) async fn run(&self, script: &ScriptInvocation<'_>) -> Result<Value, RedisError> {
        let asked = script.invoke_async(&mut self.connection.clone()).await;
        self.heard(asked).await
    }

    async fn heard(&self, asked: Result<Value, RedisError>) -> Result<Value, RedisError> {
        if let Err(error) = &asked {
            self.link.left(self.number, error).await;
        }
        asked
    }
}

/// Nothing of the URL.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("patience", &self.patience).finish_non_exhaustive()
    }
}

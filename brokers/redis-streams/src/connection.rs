//! A connection to the server, which is reopened when it breaks.
use std::fmt;
use std::time::Duration;

use idempotent_mq::{SourceError, UrlForm};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ProtocolVersion, RedisError, ScriptInvocation, Value};
use tokio::sync::Mutex;

use crate::error::{ends_connection, failure, refuses_connection, silent, unconnected};

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Response timeout, in addition to the time that a command blocks on the server.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// The form of the URLs of Redis Streams. The schemes `valkey` and `valkeys` are equivalent, and `redis+unix:PATH` names a socket.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "Redis Streams",
    schemes: &["redis", "rediss", "valkey", "valkeys"],
    tls: Some("rediss"),
    form: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]",
    parameters: &[],
};

/// The server: a URL of [this form](URL_FORM), or the service's own client, with its TLS, user, database and socket. The adapter opens
/// connections of its own, which use RESP2. Connecting by TLS sets the default `CryptoProvider` of rustls to
/// `ring`, unless the process has set one.
pub type Server = idempotent_mq::Server<Client>;

/// Returns a client, which connects later.
///
/// # Errors
/// `Fatal`: the URL is invalid, or needs a feature that is off.
pub(crate) fn client(server: Server) -> Result<Client, SourceError> {
    let client = match server {
        Server::Url(url) => of_url(url.as_str())?,
        Server::Client(client) => client,
    };
    let info = client.get_connection_info().clone();
    // Without permission for `CLIENT SETINFO`, each connection would add to the server's ACL log.
    let settings = info.redis_settings().clone().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP2);
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        install_provider();
    }
    Client::open(info.set_redis_settings(settings)).map_err(|error| failure("configuring the client", error))
}

/// Selects the crypto provider of rustls, unless the program has selected one. If several are compiled in and none is
/// selected, rustls panics on connecting.
fn install_provider() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn of_url(url: &str) -> Result<Client, SourceError> {
    let is_socket = ["unix:", "redis+unix:", "valkey+unix:"].iter().any(|scheme| url.starts_with(scheme));
    if !is_socket {
        URL_FORM.parse(url)?;
    }
    Client::open(url).map_err(|error| failure("parsing the URL", error))
}

pub(crate) struct Connection {
    client: Client,
    /// Maximum time until a reply.
    response_timeout: Duration,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    /// Number of the connection. It rises with each new connection.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Connection {
    /// Creates a connection for commands that block on the server for up to `blocks`.
    pub(crate) fn new(client: Client, blocks: Duration) -> Self {
        Self { client, response_timeout: RESPONSE_TIMEOUT + blocks, state: Mutex::default() }
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The error of the connection or the server. `doing` names the operation in the text.
    ///
    /// # Cancellation
    /// The command may have been applied.
    pub(crate) async fn query(&self, doing: &str, cmd: &Cmd) -> Result<Value, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let reply = cmd.query_async(&mut connection).await;
        self.check_reply(number, doing, reply).await
    }

    /// Runs a script; see [`query`](Self::query).
    pub(crate) async fn run_script(&self, doing: &str, script: &ScriptInvocation<'_>) -> Result<Value, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let reply = script.invoke_async(&mut connection).await;
        self.check_reply(number, doing, reply).await
    }

    /// Returns a connection that has replied to `PING`. A failure means that nothing was sent. A connection that broke
    /// unnoticed is reopened.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(crate) async fn verified(&self) -> Result<OpenConnection<'_>, SourceError> {
        let was_open = self.state.lock().await.connection.is_some();
        match self.ping().await {
            Err(_) if was_open => self.ping().await,
            pinged => pinged,
        }
    }

    async fn ping(&self) -> Result<OpenConnection<'_>, SourceError> {
        let (number, mut connection) = self.connection().await?;
        let pinged = redis::cmd("PING").query_async(&mut connection).await;
        self.check_reply(number, "checking the connection", pinged).await?;
        Ok(OpenConnection { owner: self, number, connection })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), SourceError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((state.number, connection.clone()));
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(Some(self.response_timeout));
        let connecting = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // Without a password, the client reads nothing. Every user may send this command, and a proxy may not know it.
            match redis::cmd("HELLO").query_async::<Value>(&mut connection).await {
                Err(error) if refuses_connection(&error) => Err(error),
                _ => Ok(connection),
            }
        };
        let address = self.client.get_connection_info().addr();
        let connection = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let connection = connection.map_err(|_| silent(address, CONNECT_TIMEOUT))?;
        let connection = connection.map_err(|error| unconnected(address, error))?;
        state.number += 1;
        state.connection = Some(connection.clone());
        Ok((state.number, connection))
    }

    async fn check_reply(
        &self,
        number: u64,
        doing: &str,
        reply: Result<Value, RedisError>,
    ) -> Result<Value, SourceError> {
        let error = match reply {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        self.discard_if_broken(number, &error).await;
        Err(failure(doing, error))
    }

    async fn discard_if_broken(&self, number: u64, error: &RedisError) {
        if ends_connection(error) {
            let mut state = self.state.lock().await;
            // A newer connection stays open.
            if state.number == number {
                state.connection = None;
            }
        }
    }
}

/// An open connection for concurrent commands, which is not reopened.
pub(crate) struct OpenConnection<'a> {
    owner: &'a Connection,
    number: u64,
    connection: MultiplexedConnection,
}

impl OpenConnection<'_> {
    /// Sends a command.
    ///
    /// # Errors
    /// The client's error, which distinguishes a server error from a missing reply.
    ///
    /// # Cancellation
    /// The command may have been applied.
    pub(crate) async fn query(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let reply = cmd.query_async(&mut self.connection.clone()).await;
        self.check_reply(reply).await
    }

    /// Runs a script; see [`query`](Self::query).
    pub(crate) async fn run_script(&self, script: &ScriptInvocation<'_>) -> Result<Value, RedisError> {
        let reply = script.invoke_async(&mut self.connection.clone()).await;
        self.check_reply(reply).await
    }

    async fn check_reply(&self, reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
        if let Err(error) = &reply {
            self.owner.discard_if_broken(self.number, error).await;
        }
        reply
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("response_timeout", &self.response_timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_harness::servers::RedisServer;
    use redis::ErrorKind;

    use super::*;

    #[test]
    fn parameters_of_a_url_are_checked_and_a_socket_has_none() {
        let error = of_url("redis://localhost?protocol=resp3").unwrap_err().to_string();
        assert!(error.contains("unknown parameter `protocol`"), "{error}");
        assert!(of_url("redis+unix:/run/redis.sock").is_ok());
    }

    #[test]
    fn a_client_with_tls_selects_a_crypto_provider() {
        client("rediss://localhost".into()).unwrap();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }

    #[tokio::test]
    async fn the_error_of_an_old_connection_leaves_the_newer_one_open() {
        let server = RedisServer::start();
        let owner = Connection::new(of_url(&server.url()).unwrap(), Duration::ZERO);
        let broken = RedisError::from((ErrorKind::Io, "connection reset"));
        let (first, _) = owner.connection().await.unwrap();
        owner.discard_if_broken(first, &broken).await;
        let (second, _) = owner.connection().await.unwrap();
        assert_eq!((first, second), (1, 2));
        owner.discard_if_broken(first, &broken).await;
        assert!(owner.state.lock().await.connection.is_some());
        owner.discard_if_broken(second, &broken).await;
        assert!(owner.state.lock().await.connection.is_none());
    }
}

//! The URL of a broker. Its password is never shown.
use std::fmt;
use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};

use crate::SettingError;

/// The parsed URL of a broker.
#[derive(Clone)]
pub(crate) struct BrokerUrl(AMQPUri);

/// Interval of heartbeats. A broker that stops responding is detected within two intervals. By default the client
/// accepts the broker's interval, a minute.
const HEARTBEAT_S: u16 = 10;
/// Maximum time from the first packet to an open connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl BrokerUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The URL is invalid. The error does not contain the URL, which has a password.
    pub(crate) fn parse(url: &str) -> Result<Self, SettingError> {
        let mut uri: AMQPUri = url.parse().map_err(|_| {
            SettingError::new("URL: invalid; use `amqp://USER:PASSWORD@HOST:PORT/VHOST`, with %2f for a vhost of /")
        })?;
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
            return Err(SettingError::new("URL: amqps:// needs TLS; enable the feature `tls` of idempotent-rabbitmq"));
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        Ok(Self(uri))
    }

    /// Connects, in one attempt.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, lapin::Error> {
        // The client's own recovery is off: this crate could not know which channels and queues the client has
        // restored.
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        match tokio::time::timeout(CONNECT_TIMEOUT, Connection::connect_uri(self.0.clone(), properties)).await {
            Ok(connected) => connected,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.0;
        write!(f, "{scheme}://{}:{}/{vhost}", authority.host, authority.port)
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_neither_by_a_url_nor_by_the_error_for_an_invalid_one() {
        let good = BrokerUrl::parse("amqp://orders:s3cret@broker:5673/shop").unwrap();
        assert_eq!(format!("{good:?} {good}"), "amqp://broker:5673/shop amqp://broker:5673/shop");
        for bad in ["amqp://orders:s3cret@bro ker", "s3cret", "http://a:s3cret@b", "amqp://a:s3cret@b?heartbeat=x"] {
            let text = BrokerUrl::parse(bad).unwrap_err().to_string();
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_heartbeat_in_the_url_overrides_the_default() {
        let heartbeat = |url| BrokerUrl::parse(url).unwrap().0.query.heartbeat;
        assert_eq!((heartbeat("amqp://h"), heartbeat("amqp://h?heartbeat=3")), (Some(10), Some(3)));
    }
}

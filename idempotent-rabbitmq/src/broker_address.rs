//! The address of the broker, printed without its password.
use std::fmt;
use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};

use crate::SettingError;

/// A parsed URL of a broker.
#[derive(Clone)]
pub(crate) struct BrokerAddress(AMQPUri);

/// The client notices a silent broker within two heartbeats. The client's default is the broker's proposal, one
/// minute.
const HEARTBEAT_S: u16 = 10;
/// The time from the first packet to the open connection.
pub(crate) const CONNECTING: Duration = Duration::from_secs(10);

impl BrokerAddress {
    /// Parses a URL.
    ///
    /// # Errors
    /// Returns the reason without any part of the URL, which may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self, SettingError> {
        let mut uri: AMQPUri = url.parse().map_err(|_| {
            SettingError::new(
                "the URL cannot be read; it is `amqp://USER:PASSWORD@HOST:PORT/VHOST`, with a vhost of / as %2f",
            )
        })?;
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
            return Err(SettingError::new("amqps:// needs the feature `tls` of idempotent-rabbitmq"));
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        Ok(Self(uri))
    }

    /// Tries once to connect.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, lapin::Error> {
        // Without the client's own recovery, which would restore objects that this crate cannot track.
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        match tokio::time::timeout(CONNECTING, Connection::connect_uri(self.0.clone(), properties)).await {
            Ok(connected) => connected,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.0;
        write!(f, "{scheme}://{}:{}/{vhost}", authority.host, authority.port)
    }
}

impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_neither_by_an_address_nor_by_the_error_about_a_bad_one() {
        let good = BrokerAddress::parse("amqp://orders:s3cret@broker:5673/shop").unwrap();
        assert_eq!(format!("{good:?} {good}"), "amqp://broker:5673/shop amqp://broker:5673/shop");
        for bad in ["amqp://orders:s3cret@bro ker", "s3cret", "http://a:s3cret@b", "amqp://a:s3cret@b?heartbeat=x"] {
            let text = BrokerAddress::parse(bad).unwrap_err().to_string();
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_heartbeat_in_the_url_stands() {
        let beat = |url| BrokerAddress::parse(url).unwrap().0.query.heartbeat;
        assert_eq!((beat("amqp://h"), beat("amqp://h?heartbeat=3")), (Some(10), Some(3)));
    }
}

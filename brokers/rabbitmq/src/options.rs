//! The URL of a broker. Its password is never shown.
use std::time::Duration;
use std::{fmt, io};

use idempotent_core::__private::url::unreached;
use idempotent_mq::{UrlError, UrlForm, UrlParameter};
use lapin::runtime::default_runtime;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};

use crate::SettingError;
use crate::error::{ACCESS_REFUSED, NOT_ALLOWED};

/// The form of the URLs of RabbitMQ.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "RabbitMQ",
    schemes: &["amqp", "amqps"],
    tls: Some("amqps"),
    form: "amqp://USER:PASSWORD@HOST:PORT/VHOST",
    parameters: &[
        UrlParameter::new("heartbeat", "SECONDS", "the interval of heartbeats, by default 10 s; 0 for none"),
        UrlParameter::new(
            "connection_timeout",
            "MILLISECONDS",
            "the time for the TCP connection; 10 s limit the whole opening",
        ),
        UrlParameter::new(
            "channel_max",
            "NUMBER",
            "the most channels of a connection, by default the number of the broker",
        ),
        UrlParameter::new("frame_max", "BYTES", "the largest frame, by default the size of the broker"),
        UrlParameter::new("auth_mechanism", "NAME", "`plain` (the default), `amqplain`, `anonymous` or `external`"),
    ],
};

/// The broker: a URL of [this form](URL_FORM), or what the service's own clients use: the URI, the properties, which may have an
/// `AuthProvider`, and the TLS configuration.
///
/// Each source, publisher and handle opens connections of its own, and names them. The properties must not enable the recovery of
/// the client, because the adapter could not know which channels and queues the client has restored.
pub type Server = idempotent_mq::Server<(AMQPUri, ConnectionProperties, OwnedTLSConfig)>;

/// The broker, with the parsed URL.
#[derive(Clone)]
pub(crate) struct BrokerUrl {
    uri: AMQPUri,
    properties: ConnectionProperties,
    tls: OwnedTLSConfig,
}

/// Interval of heartbeats. A broker that stops responding is detected within two intervals. By default the client
/// accepts the broker's interval, a minute.
const HEARTBEAT_S: u16 = 10;
/// Maximum time from the first packet to an open connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl BrokerUrl {
    /// Returns the broker of a server.
    ///
    /// # Errors
    /// Same as [`parse`](Self::parse).
    pub(crate) fn of(server: Server) -> Result<Self, SettingError> {
        match server {
            Server::Url(url) => Self::parse(url.as_str()),
            Server::Client((uri, properties, tls)) => Self::checked(uri, properties, tls),
        }
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// The URL is invalid, or needs a feature that is off. The error does not contain the password.
    pub(crate) fn parse(url: &str) -> Result<Self, SettingError> {
        let invalid = |error: UrlError| SettingError::new(error.to_string());
        URL_FORM.parse(url).map_err(invalid)?;
        let rule =
            || format!("use `{}`, with %2f for a vhost of /, and numbers where they are required", URL_FORM.form);
        let uri: AMQPUri = url.parse().map_err(|_| invalid(URL_FORM.error(url, rule())))?;
        Self::checked(uri, ConnectionProperties::default(), OwnedTLSConfig::default())
    }

    fn checked(mut uri: AMQPUri, properties: ConnectionProperties, tls: OwnedTLSConfig) -> Result<Self, SettingError> {
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
            return Err(SettingError::new("URL: amqps:// needs TLS; enable the feature `tls` of idempotent-rabbitmq"));
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        Ok(Self { uri, properties, tls })
    }

    /// Connects, in one attempt.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, lapin::Error> {
        let (uri, tls, runtime) = (self.uri.clone(), self.tls.clone(), default_runtime()?);
        let properties = self.properties.clone().with_connection_name(name.into());
        let properties = properties.configure_backoff(|backoff| backoff.with_max_times(0));
        let connecting = Connection::connect_uri_with_config(uri, properties, tls, runtime);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(unanswered()),
        }
    }

    /// Returns the text of an error of connecting: the address, the cause and the remedy.
    pub(crate) fn explain(&self, error: &lapin::Error) -> String {
        let (cause, remedy) = self.cause_and_remedy(error);
        format!("connecting to {self}: {cause}; {remedy}")
    }

    fn cause_and_remedy(&self, error: &lapin::Error) -> (String, &'static str) {
        match error.kind() {
            ErrorKind::ProtocolError(refused) => {
                let cause = refused.get_message().to_string();
                let remedy = match refused.get_id() {
                    ACCESS_REFUSED => {
                        "check the user and password in the URL, and that the user may connect from this machine"
                    }
                    NOT_ALLOWED if cause.contains("not found") => {
                        "check the vhost in the URL, or create it by `rabbitmqctl add_vhost`"
                    }
                    NOT_ALLOWED if cause.contains("refused for user") => {
                        "grant the permissions of the vhost by `rabbitmqctl set_permissions -p VHOST USER`"
                    }
                    _ => "see the log of the broker",
                };
                (cause, remedy)
            }
            ErrorKind::ParsingError(_) => (
                "the answer is not of AMQP 0.9.1".into(),
                "check the host and the port; a port for TLS needs `amqps://`",
            ),
            ErrorKind::IOError(io) => {
                let cause = io.to_string();
                let remedy = match io.kind() {
                    io::ErrorKind::TimedOut if io.raw_os_error().is_none() => {
                        "check that the broker is not overloaded, that the host and the port are its own, and the network"
                    }
                    io::ErrorKind::InvalidData if cause.contains("certificate") => {
                        "the certificate must name the host, and its authority must be one of the operating system, or in the \
                         file that `SSL_CERT_FILE` names"
                    }
                    io::ErrorKind::InvalidData => {
                        "the answer is not of TLS: use the port for TLS, usually 5671, or `amqp://` for a port without TLS"
                    }
                    // The broker closes the connection without a reason.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
                        if self.uri.query.auth_mechanism.is_some() =>
                    {
                        "check that the broker supports the `auth_mechanism` of the URL, and its log"
                    }
                    _ => unreached(&cause),
                };
                (cause, remedy)
            }
            _ => (error.to_string(), "check the host and the port, and the log of the broker"),
        }
    }
}

/// Creates the error of a connection attempt without an answer.
pub(crate) fn unanswered() -> lapin::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { scheme, authority, vhost, .. } = &self.uri;
        write!(f, "{scheme}://{}:{}/{}", authority.host, authority.port, vhost.replace('/', "%2f"))
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
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

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
        let heartbeat = |url| BrokerUrl::parse(url).unwrap().uri.query.heartbeat;
        assert_eq!((heartbeat("amqp://h"), heartbeat("amqp://h?heartbeat=3")), (Some(10), Some(3)));
    }

    #[test]
    fn an_error_of_connecting_has_the_remedy_of_its_cause() {
        let url = BrokerUrl::parse("amqp://broker").unwrap();
        let protocol = |kind, text: &str| {
            lapin::Error::from(ErrorKind::ProtocolError(AMQPError::new(AMQPErrorKind::Hard(kind), text.into())))
        };
        let not_allowed = |text| protocol(AMQPHardError::NOTALLOWED, text);
        let denied = AMQPError::new(AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), "ACCESS_REFUSED".into());
        let io = |kind, text: &str| lapin::Error::from(io::Error::new(kind, text));
        let network = lapin::Error::from(io::Error::from_raw_os_error(110));
        for (error, remedy) in [
            (ErrorKind::ProtocolError(denied).into(), "check the user and password"),
            (not_allowed("NOT_ALLOWED - vhost shop not found"), "check the vhost in the URL"),
            (not_allowed("NOT_ALLOWED - access to vhost 'shop' refused for user 'a'"), "set_permissions"),
            (not_allowed("NOT_ALLOWED - connection limit"), "see the log of the broker"),
            (protocol(AMQPHardError::INTERNALERROR, "INTERNAL_ERROR"), "see the log of the broker"),
            (unanswered(), "check that the broker is not overloaded"),
            (network, "the network with its firewalls"),
            (io(io::ErrorKind::InvalidData, "invalid peer certificate"), "the certificate must name the host"),
            (io(io::ErrorKind::InvalidData, "corrupt message"), "use the port for TLS"),
        ] {
            let text = url.explain(&error);
            assert!(text.contains(remedy), "{error:?}: {text}");
        }
    }
}

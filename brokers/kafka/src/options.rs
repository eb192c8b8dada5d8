//! The options of a connection.
use std::fmt;
use std::path::PathBuf;

use idempotent_mq::SourceError;
use percent_encoding::percent_decode_str;
use rdkafka::ClientConfig;

use crate::error::fatal;

/// The address and the options of a connection to Kafka. A URL converts into options without further settings.
///
/// ```
/// use idempotent_kafka::KafkaOptions;
///
/// let options = KafkaOptions::new("kafkas://billing:secret@kafka.example.com:9093").sasl_mechanism("SCRAM-SHA-512").tls_ca("ca.pem");
/// // `Debug` shows nothing of the URL, which may contain a password.
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct KafkaOptions {
    url: String,
    mechanism: String,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    properties: Vec<(String, String)>,
}

/// The maximum time of a request.
const REQUEST_MS: &str = "10000";
/// The maximum time until a produced message is confirmed. Less than the time that the consumer waits for a settlement.
const CONFIRMATION_MS: &str = "4000";

/// The property for the maximum size of a produced message: its record key, value and headers.
const SIZE: &str = "message.max.bytes";

/// The properties that the adapter sets. Other values would lose messages.
const RESERVED: [&str; 12] = [
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "metadata.broker.list",
    "request.required.acks",
    "session.timeout.ms",
    "transactional.id",
];

impl KafkaOptions {
    /// Creates options with a URL: `kafka://[USER:PASSWORD@]HOST[:PORT]`, or `kafkas://` for TLS. Several hosts are separated by
    /// commas, and characters such as `@` in the password are percent-encoded. The default port is 9092.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), mechanism: "PLAIN".into(), ca: None, identity: None, properties: Vec::new() }
    }

    /// Sets the SASL mechanism for the user in the URL: `PLAIN`, or with the feature `tls` `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    ///
    /// # Default
    /// `PLAIN`
    pub fn sasl_mechanism(mut self, mechanism: impl Into<String>) -> Self {
        self.mechanism = mechanism.into();
        self
    }

    /// Sets the file of the certificate authority that signed the brokers' certificates.
    ///
    /// # Default
    /// The authorities of the operating system
    pub fn tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Sets the files of the client's certificate and its private key, for a broker that verifies clients.
    ///
    /// # Default
    /// None
    pub fn tls_identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets a property of librdkafka, such as `client.rack`. Properties on which the adapter relies cannot be set.
    ///
    /// # Default
    /// None
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Converts the options for the client.
    ///
    /// # Errors
    /// The URL is invalid, or a property cannot be set.
    pub(crate) fn client(&self) -> Result<ClientConfig, SourceError> {
        let address = Address::parse(&self.url).ok_or_else(|| {
            fatal("parsing the URL", "use `kafka://[USER:PASSWORD@]HOST[:PORT]`, or `kafkas://` for TLS")
        })?;
        let mut config = ClientConfig::new();
        config.set("client.id", "idempotent");
        config.set("bootstrap.servers", address.hosts.join(","));
        config.set("socket.timeout.ms", REQUEST_MS).set("socket.keepalive.enable", "true");
        config.set("reconnect.backoff.max.ms", "1000");
        let protocol = match (address.tls, &address.user) {
            (false, None) => "plaintext",
            (false, Some(_)) => "sasl_plaintext",
            (true, None) => "ssl",
            (true, Some(_)) => "sasl_ssl",
        };
        if cfg!(not(feature = "tls")) && (address.tls || address.user.is_some() && self.mechanism != "PLAIN") {
            return Err(fatal(
                "configuring the client",
                "this build has neither TLS nor SCRAM; enable the feature `tls` of `idempotent-kafka` (`kafka-tls` of `idempotent-rs`)",
            ));
        }
        config.set("security.protocol", protocol);
        if let Some((user, password)) = &address.user {
            config.set("sasl.mechanisms", &self.mechanism).set("sasl.username", user).set("sasl.password", password);
        }
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        if let Some(ca) = &self.ca {
            config.set("ssl.ca.location", path(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            config.set("ssl.certificate.location", path(certificate)).set("ssl.key.location", path(key));
        }
        for (name, value) in &self.properties {
            if RESERVED.contains(&name.as_str()) {
                let text = format!("the property `{name}` cannot be set; use the methods of the builder");
                return Err(fatal("configuring the client", &text));
            }
            config.set(name, value);
        }
        Ok(config)
    }

    /// Converts the options for a client that produces.
    ///
    /// # Errors
    /// Same as [`client`](Self::client).
    pub(crate) fn producer(&self) -> Result<ClientConfig, SourceError> {
        let mut config = self.client()?;
        config.set("acks", "all").set("message.timeout.ms", CONFIRMATION_MS).set("linger.ms", "0");
        // The broker decides: a copy must not be refused that is as long as its message.
        if config.get(SIZE).is_none() {
            config.set(SIZE, "1000000000");
        }
        // The partitioner of the Java client, so that a key has one partition.
        config.set("partitioner", "murmur2_random");
        Ok(config)
    }

    /// Converts the options for a client that produces in transactions with this id.
    ///
    /// # Errors
    /// Same as [`client`](Self::client).
    pub(crate) fn transactions(&self, id: &str) -> Result<ClientConfig, SourceError> {
        let mut config = self.producer()?;
        config.set("transactional.id", id);
        Ok(config)
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Address {
    tls: bool,
    user: Option<(String, String)>,
    hosts: Vec<String>,
}

impl Address {
    fn parse(url: &str) -> Option<Self> {
        let (tls, rest) = match url.split_once("://")? {
            ("kafka", rest) => (false, rest),
            ("kafkas", rest) => (true, rest),
            _ => return None,
        };
        let rest = rest.trim_end_matches('/');
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => {
                let (name, password) = user.split_once(':')?;
                let decoded = |text| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
                (Some((decoded(name)?, decoded(password)?)), hosts)
            }
            None => (None, rest),
        };
        let hosts: Vec<_> = hosts.split(',').map(|host| host.trim().to_owned()).collect();
        let port =
            |host: &str| host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port.parse::<u16>());
        let is_valid = |host: &String| {
            !host.is_empty()
                && !host.starts_with(':')
                && !host.contains(['/', '?', '#', ' '])
                && port(host).is_none_or(|port| port.is_ok())
        };
        hosts.iter().all(is_valid).then_some(Self { tls, user, hosts })
    }
}

impl<S: Into<String>> From<S> for KafkaOptions {
    fn from(url: S) -> Self {
        Self::new(url)
    }
}

/// Shows nothing of the URL, and no value of a property.
impl fmt::Debug for KafkaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: Vec<_> = self.properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("KafkaOptions")
            .field("mechanism", &self.mechanism)
            .field("ca", &self.ca)
            .field("properties", &properties)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_list_of_hosts_with_an_optional_user() {
        let plain = Address::parse("kafka://a,b:9094/").unwrap();
        assert_eq!((plain.tls, plain.user, plain.hosts), (false, None, vec!["a".to_owned(), "b:9094".to_owned()]));
        let user = Address::parse("kafkas://me:p%40ss:w@[::1]:9093").unwrap();
        assert_eq!(user.user, Some(("me".to_owned(), "p@ss:w".to_owned())));
        assert_eq!((user.tls, user.hosts), (true, vec!["[::1]:9093".to_owned()]));
        for url in [
            "localhost:9092",
            "http://a",
            "kafka://",
            "kafka://a,",
            "kafka://a:port",
            "kafka://a/topic",
            "kafka://me@a",
            "kafka://:9092",
        ] {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }

    #[test]
    fn properties_of_the_adapter_cannot_be_set() {
        for name in RESERVED {
            let error = KafkaOptions::new("kafka://a").property(name, "1").client().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        let rack = KafkaOptions::new("kafka://a").property("client.rack", "r1").client().unwrap();
        assert_eq!(rack.get("client.rack"), Some("r1"));
    }
}

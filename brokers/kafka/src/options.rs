//! URLs of Kafka, and the configurations of clients.
use idempotent_mq::{ConnectionUrl, ServerUrl, SourceError, UrlForm, UrlParameter};
use rdkafka::ClientConfig;

use crate::error::fatal;

/// The form of the URLs of Kafka. The default port is 9092.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "Kafka",
    schemes: &["kafka", "kafkas"],
    tls: Some("kafkas"),
    form: "kafka://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]",
    parameters: &[
        UrlParameter::new(
            "sasl_mechanism",
            "NAME",
            "`PLAIN` (the default), or with the feature `tls` `SCRAM-SHA-256` or `SCRAM-SHA-512`",
        ),
        UrlParameter::new(
            "tls_ca",
            "FILE",
            "the certificate authority of the brokers, by default one of the operating system",
        ),
        UrlParameter::new("tls_certificate", "FILE", "the client's certificate, for a broker that verifies clients"),
        UrlParameter::new("tls_key", "FILE", "the private key of the client's certificate"),
        UrlParameter::new(
            "NAME.NAME",
            "VALUE",
            "a property of librdkafka on which the adapter does not rely, such as `client.rack`",
        ),
    ],
};

/// The brokers: a URL of [this form](URL_FORM), or the configuration of the service's own clients.
///
/// The adapter sets the properties on which it relies, such as `enable.auto.commit`, `acks` and `linger.ms`. A configuration that sets
/// one of them is an error of connecting that names the property. All other properties stay.
pub type Server = idempotent_mq::Server<ClientConfig>;

/// The properties that the adapter sets if the service does not. A request may take 10 s.
const DEFAULTS: [(&str, &str); 4] = [
    ("client.id", "idempotent"),
    ("reconnect.backoff.max.ms", "1000"),
    ("socket.keepalive.enable", "true"),
    ("socket.timeout.ms", "10000"),
];
/// The maximum time until a produced message is confirmed. Less than the time that the consumer waits for a settlement.
const CONFIRMATION_MS: &str = "4000";

/// The property for the first brokers.
const HOSTS: &str = "bootstrap.servers";
/// The property for the maximum size of a produced message: its record key, value and headers.
const SIZE: &str = "message.max.bytes";

/// The properties that the adapter sets, with their aliases. Other values would lose messages, or change their partitions.
const RESERVED: [&str; 19] = [
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "linger.ms",
    "message.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "partitioner",
    "queue.buffering.max.ms",
    "request.required.acks",
    "session.timeout.ms",
    "transactional.id",
];

/// Returns the configuration of a client.
///
/// # Errors
/// `Fatal`: the URL or the configuration is invalid, needs a feature that is off, or sets a property of the adapter.
pub(crate) fn client(server: &Server) -> Result<ClientConfig, SourceError> {
    let mut config = match server {
        Server::Url(url) => of_url(url)?,
        Server::Client(config) => checked(config)?,
    };
    for (name, value) in DEFAULTS {
        if config.get(name).is_none() {
            config.set(name, value);
        }
    }
    Ok(config)
}

/// Returns a configuration of the service's own clients.
fn checked(config: &ClientConfig) -> Result<ClientConfig, SourceError> {
    let doing = "configuring the client";
    let set = |name: &str| config.get(name).is_some();
    if let Some(name) = RESERVED.into_iter().find(|&name| name != HOSTS && set(name)) {
        return Err(fatal(doing, &not_yours(name)));
    }
    if !set(HOSTS) {
        return Err(fatal(doing, "the configuration names no broker; set the property `bootstrap.servers`"));
    }
    Ok(config.clone())
}

/// Returns the rule about a property of the adapter.
fn not_yours(name: &str) -> String {
    format!("the property `{name}` cannot be set, because the adapter sets it; remove it")
}

fn of_url(server: &ServerUrl) -> Result<ClientConfig, SourceError> {
    let url = URL_FORM.parse(server.as_str())?;
    let refused = |rule: &str| Err(URL_FORM.error(server.as_str(), rule).into());
    let user = match url.user() {
        Some((user, Some(password))) => Some((user, password)),
        Some((_, None)) => return refused("the user has no password; use `kafka://USER:PASSWORD@HOST[:PORT]`"),
        None => None,
    };
    if !["", "/"].contains(&url.path()) {
        return refused("a path has no meaning; the topic is another argument");
    }
    let (tls, mechanism) = (url.scheme() == "kafkas", url.parameter("sasl_mechanism").unwrap_or("PLAIN"));
    if cfg!(not(feature = "tls")) && (tls || user.is_some() && mechanism != "PLAIN") {
        return Err(fatal(
            "configuring the client",
            "this build has neither TLS nor SCRAM; enable the feature `tls` of `idempotent-kafka` (`kafka-tls` of `idempotent-rs`)",
        ));
    }
    let has = |name| url.parameter(name).is_some();
    if has("tls_certificate") != has("tls_key") {
        return refused("set both `tls_certificate` and `tls_key`, or neither");
    }
    if !tls && (has("tls_ca") || has("tls_key")) {
        return refused("`tls_ca`, `tls_certificate` and `tls_key` have no effect without TLS; use `kafkas://`");
    }
    let mut config = ClientConfig::new();
    config.set(HOSTS, url.hosts().join(","));
    let protocol = match (tls, user) {
        (false, None) => "plaintext",
        (false, Some(_)) => "sasl_plaintext",
        (true, None) => "ssl",
        (true, Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some((user, password)) = user {
        config.set("sasl.mechanisms", mechanism).set("sasl.username", user).set("sasl.password", password);
    }
    set_properties(&mut config, &url).map_err(|rule| URL_FORM.error(server.as_str(), rule))?;
    Ok(config)
}

fn set_properties(config: &mut ClientConfig, url: &ConnectionUrl) -> Result<(), String> {
    for (name, value) in url.parameters() {
        match name {
            "sasl_mechanism" => {}
            "tls_ca" => drop(config.set("ssl.ca.location", value)),
            "tls_certificate" => drop(config.set("ssl.certificate.location", value)),
            "tls_key" => drop(config.set("ssl.key.location", value)),
            name if RESERVED.contains(&name) => {
                return Err(not_yours(name));
            }
            name => drop(config.set(name, value)),
        }
    }
    Ok(())
}

/// Returns the configuration of a client that produces.
///
/// # Errors
/// Same as [`client`].
pub(crate) fn producer(server: &Server) -> Result<ClientConfig, SourceError> {
    let mut config = client(server)?;
    config.set("acks", "all").set("message.timeout.ms", CONFIRMATION_MS).set("linger.ms", "0");
    // The broker decides: a copy must not be refused that is as long as its message.
    if config.get(SIZE).is_none() {
        config.set(SIZE, "1000000000");
    }
    // The partitioner of the Java client, so that a key has one partition.
    config.set("partitioner", "murmur2_random");
    Ok(config)
}

/// Returns the configuration of a client that produces in transactions with this id.
///
/// # Errors
/// Same as [`client`].
pub(crate) fn transactions(server: &Server, id: &str) -> Result<ClientConfig, SourceError> {
    let mut config = producer(server)?;
    config.set("transactional.id", id);
    Ok(config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_list_of_hosts_with_an_optional_user() {
        let config = client(&"kafka://me:p%40ss:w@a,[::1]:9094/?client.rack=r1".into()).unwrap();
        for (name, value) in [
            ("bootstrap.servers", "a,[::1]:9094"),
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanisms", "PLAIN"),
            ("sasl.username", "me"),
            ("sasl.password", "p@ss:w"),
            ("client.rack", "r1"),
        ] {
            assert_eq!(config.get(name), Some(value), "{name}");
        }
        for (url, rule) in [
            ("kafka://me@a", "the user has no password"),
            ("kafka://a/topic", "a path has no meaning"),
            ("kafka://a?tls_ca=ca.pem", "use `kafkas://`"),
            ("kafka://a?tls_key=key.pem", "set both"),
        ] {
            let error = client(&url.into()).unwrap_err().to_string();
            assert!(error.contains(rule), "{url}: {error}");
        }
    }

    #[test]
    fn properties_of_the_adapter_cannot_be_set() {
        // A parameter of a URL without a point is no property.
        for name in RESERVED.into_iter().filter(|name| name.contains('.')) {
            let error = client(&format!("kafka://a?{name}=1").into()).unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}` cannot be set")), "{error}");
        }
        for name in RESERVED.into_iter().filter(|&name| name != HOSTS) {
            let mut config = ClientConfig::new();
            config.set(HOSTS, "a").set(name, "1");
            let error = client(&Server::on_client(config)).unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}` cannot be set")), "{error}");
        }
    }

    #[test]
    fn a_configuration_of_the_service_keeps_its_properties_and_gets_the_missing_ones() {
        let mut own = ClientConfig::new();
        let error = client(&Server::on_client(own.clone())).unwrap_err();
        assert!(error.to_string().contains("set the property `bootstrap.servers`"), "{error}");
        own.set(HOSTS, "a:1").set("client.id", "shop").set("sasl.password", "s3cret");
        let config = client(&Server::on_client(own)).unwrap();
        for (name, value) in [("client.id", "shop"), ("sasl.password", "s3cret"), ("socket.timeout.ms", "10000")] {
            assert_eq!(config.get(name), Some(value), "{name}");
        }
    }
}

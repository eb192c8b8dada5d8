//! A connection, which the client restores by itself.
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::rustls::crypto::{CryptoProvider, ring};
use async_nats::{Client, Event};
use idempotent_mq::SourceError;
use tokio::sync::watch;

use crate::error::{connect_failure, fatal, transient};
use crate::options::{self, Server};

/// A connection to NATS.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    /// The number of times that the connection was lost.
    pub(crate) losses: watch::Receiver<u64>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// - `Fatal`: the URL or a file that it names is invalid, the server rejects the user, or its version is too old.
    /// - `Transient`: no server can be reached.
    pub(crate) async fn open(server: &Server) -> Result<Self, SourceError> {
        let (connect, addresses) = options::client(server).await?;
        let (lost, losses) = watch::channel(0);
        let connect = connect.event_callback(move |event| {
            if matches!(event, Event::Disconnected) {
                lost.send_modify(|losses| *losses += 1);
            }
            std::future::ready(())
        });
        let hosts = addresses.iter().map(|address| format!("{}:{}", address.host(), address.port()));
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        // Where several are compiled in and none is selected, the client panics at a URL with TLS.
        if CryptoProvider::get_default().is_none() {
            let _ = ring::default_provider().install_default();
        }
        let client = connect.connect(addresses).await.map_err(|error| connect_failure(&hosts, error))?;
        if client.connection_state() != State::Connected {
            let text = "there is no connection yet; leave out `retry_on_initial_connect`, or try again";
            return Err(transient(&format!("connecting to {hosts}"), std::io::Error::other(text)));
        }
        let version = client.server_info().version;
        if is_too_old(&version) {
            return Err(fatal(
                &format!("connecting to {hosts}"),
                &format!("the version of the server is {version}; run NATS 2.10 or later"),
            ));
        }
        Ok(Self { jetstream: async_nats::jetstream::new(client.clone()), client, losses })
    }

    /// Returns whether the client is connected now.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }
}

/// Returns whether a server is older than 2.10. A version of an unknown form is accepted.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (2, 10),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_before_2_10_is_too_old() {
        for version in ["2.9.25", "1.4.1", "0.9.6"] {
            assert!(is_too_old(version), "{version}");
        }
        for version in ["2.10.0", "2.15.1", "2.12.0-preview.1", "3.0.0", "3", "", "unknown"] {
            assert!(!is_too_old(version), "{version}");
        }
    }
}

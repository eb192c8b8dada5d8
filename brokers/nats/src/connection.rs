//! A connection, which the client restores by itself.
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::{Client, Event};
use idempotent_mq::SourceError;
use tokio::sync::watch;

use crate::NatsOptions;
use crate::error::{connect_failure, fatal};

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
    /// - `Fatal`: the URL or a file of the options is invalid, or the server rejects the user.
    /// - `Transient`: no server can be reached.
    pub(crate) async fn open(options: &NatsOptions) -> Result<Self, SourceError> {
        let addresses = options.addresses().map_err(|error| {
            fatal("parsing the URL", "use `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://` for TLS").with_cause(error)
        })?;
        let connect = options.client(&addresses).await.map_err(|error| {
            let remedy =
                "pass the path of a file that `nsc generate creds` wrote, or of a seed that `nk -gen user` wrote";
            fatal("reading the credentials", remedy).with_cause(error)
        })?;
        let (lost, losses) = watch::channel(0);
        let connect = connect.event_callback(move |event| {
            if matches!(event, Event::Disconnected) {
                lost.send_modify(|losses| *losses += 1);
            }
            std::future::ready(())
        });
        let client = connect.connect(addresses).await.map_err(connect_failure)?;
        Ok(Self { jetstream: async_nats::jetstream::new(client.clone()), client, losses })
    }

    /// Returns whether the client is connected now.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }
}

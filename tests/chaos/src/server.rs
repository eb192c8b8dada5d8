//! A server of ours, for those who harm it.
use anyhow::Context;
use idempotent_harness::proxy::Proxy;
#[cfg(feature = "kafka")]
use idempotent_harness::servers::KafkaServer;
#[cfg(feature = "sqs")]
use idempotent_harness::servers::MotoServer;
#[cfg(feature = "rocketmq")]
use idempotent_harness::servers::RocketServer;
use idempotent_harness::servers::{MariaDbServer, NatsServer, PostgresServer, RabbitServer, RedisServer};

/// A server that can be stopped, and killed. All of it blocks.
pub(crate) trait Server: Send + Sync {
    /// Returns its host and port.
    fn address(&self) -> String;

    /// Lets it stand still.
    fn pause(&self);

    /// Lets it go on.
    fn resume(&self);

    /// Returns whether a crash loses nothing that the server has confirmed.
    fn is_durable(&self) -> bool;

    /// Kills it, and starts it again with all that it had answered.
    ///
    /// # Panics
    /// Panics for a server that is not [durable](Self::is_durable).
    fn crash(&self);
}

macro_rules! servers {
    ($($(#[$when:meta])? $server:ty, durable: $durable:literal;)+) => {$(
        $(#[$when])?
        impl Server for $server {
            fn address(&self) -> String {
                self.address()
            }

            fn pause(&self) {
                self.pause();
            }

            fn resume(&self) {
                self.resume();
            }

            fn is_durable(&self) -> bool {
                $durable
            }

            fn crash(&self) {
                assert!(self.is_durable(), "a plan contains no crash of a server that keeps its messages in memory");
                self.kill();
                self.restart();
            }
        }
    )+};
}
servers! {
    MariaDbServer, durable: true;
    NatsServer, durable: true;
    PostgresServer, durable: true;
    RabbitServer, durable: true;
    RedisServer, durable: true;
    #[cfg(feature = "rocketmq")]
    RocketServer, durable: true;
    #[cfg(feature = "kafka")]
    KafkaServer, durable: false;
    #[cfg(feature = "sqs")]
    MotoServer, durable: false;
}

/// Starts a server, and a proxy in front of it.
pub(crate) async fn start<S: Server + 'static>(
    start: impl FnOnce() -> S + Send + 'static,
) -> anyhow::Result<(S, Proxy)> {
    let server = tokio::task::spawn_blocking(start).await.context("the server does not start")?;
    let proxy = Proxy::start(&server.address()).await;
    Ok((server, proxy))
}

//! A server of ours, for those who harm it.
#[cfg(feature = "kafka")]
use idempotent_harness::servers::KafkaServer;
#[cfg(feature = "sqs")]
use idempotent_harness::servers::MotoServer;
#[cfg(feature = "rocketmq")]
use idempotent_harness::servers::RocketServer;
use idempotent_harness::servers::{MariaDbServer, NatsServer, PostgresServer, RabbitServer, RedisServer};

/// A server that can be stopped, and killed. All of it blocks.
pub(crate) trait Server: Send + Sync {
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
    ($($(#[$when:meta])? $server:ty),+) => {$(
        $(#[$when])?
        impl Server for $server {
            fn pause(&self) {
                self.pause();
            }

            fn resume(&self) {
                self.resume();
            }

            fn is_durable(&self) -> bool {
                true
            }

            fn crash(&self) {
                self.kill();
                self.restart();
            }
        }
    )+};
}
servers!(
    MariaDbServer,
    NatsServer,
    PostgresServer,
    RabbitServer,
    RedisServer,
    #[cfg(feature = "rocketmq")]
    RocketServer
);

#[cfg(any(feature = "kafka", feature = "sqs"))]
macro_rules! servers_in_memory {
    ($($(#[$when:meta])? $server:ty),+) => {$(
        $(#[$when])?
        impl Server for $server {
            fn pause(&self) {
                self.pause();
            }

            fn resume(&self) {
                self.resume();
            }

            fn is_durable(&self) -> bool {
                false
            }

            fn crash(&self) {
                unreachable!("a plan contains no crash of a server that keeps its messages in memory");
            }
        }
    )+};
}
#[cfg(any(feature = "kafka", feature = "sqs"))]
servers_in_memory!(
    #[cfg(feature = "kafka")]
    KafkaServer,
    #[cfg(feature = "sqs")]
    MotoServer
);

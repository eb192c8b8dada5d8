//! A server of ours, for those who harm it.
#[cfg(feature = "rocketmq")]
use idempotent_harness::servers::RocketServer;
use idempotent_harness::servers::{MariaDbServer, NatsServer, PostgresServer, RabbitServer, RedisServer};

/// A server that can be stopped, and killed. All of it blocks.
pub(crate) trait Server: Send + Sync {
    /// Lets it stand still.
    fn pause(&self);

    /// Lets it go on.
    fn resume(&self);

    /// Kills it, and starts it again with all that it had answered.
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

//! A shop that counts runs, and its servers.
pub(crate) mod last_byte_sync;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod shop;
pub(crate) mod stores;

pub(crate) use idempotent_http_decisions::{Answer, Ask, Client, PATIENCE, soon, until};

pub(crate) use self::last_byte_sync::Volley;
pub(crate) use self::process::ServerProcess;
pub(crate) use self::server::Server;
pub(crate) use self::shop::Shop;
pub(crate) use self::stores::{Backing, Kind};

/// Declares a test on each store: `name::memory`, `name::sqlite`, `name::redis`.
macro_rules! on_each_store {
    ($($name:ident;)*) => {$(
        mod $name {
            use crate::sockets::support::{Backing, Kind};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                super::$name(&Backing::new(Kind::Memory)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(&Backing::new(Kind::Sqlite)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                super::$name(&Backing::new(Kind::Redis)).await;
            }
        }
    )*};
}
pub(crate) use on_each_store;

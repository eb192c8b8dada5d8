//! A shop that counts runs, its servers, and raw clients.
pub(crate) mod last_byte_sync;
pub(crate) mod process;
pub(crate) mod raw_client;
pub(crate) mod server;
pub(crate) mod shop;
pub(crate) mod stores;

use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) use self::last_byte_sync::Volley;
pub(crate) use self::process::ServerProcess;
pub(crate) use self::raw_client::{Answer, Ask, Client};
pub(crate) use self::server::Server;
pub(crate) use self::shop::Shop;
pub(crate) use self::stores::{Backing, Kind};

/// The timeout for events that must happen, on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !happened().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Awaits a future that must complete soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for: {what}"),
    }
}

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

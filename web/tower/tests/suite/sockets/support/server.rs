//! The shop on its own socket.
use std::net::SocketAddr;

use axum::serve::ListenerExt;
use idempotent_core::Executor;
use idempotent_tower::IdempotencyLayer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::shop::principal;
use super::{Backing, Kind, Shop};

/// A server in this process. Closes its listener on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shop: Shop,
    pub(crate) executor: Executor,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server with the defaults of the layer, on the memory store.
    pub(crate) async fn start() -> Self {
        Self::with(|layer| layer).await
    }

    pub(crate) async fn with(set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        Self::on(&Backing::new(Kind::Memory), set).await
    }

    pub(crate) async fn on(backing: &Backing, set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Self {
        let executor = backing.executor().await;
        let layer = set(IdempotencyLayer::new(executor.clone(), principal()));
        Self::of(executor, layer).await
    }

    pub(crate) async fn of(executor: Executor, layer: IdempotencyLayer) -> Self {
        let shop = Shop::new(None);
        let (listener, address) = listen().await;
        let listener = listener.tap_io(|tcp| tcp.set_nodelay(true).unwrap());
        let router = shop.router(layer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shop, executor, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

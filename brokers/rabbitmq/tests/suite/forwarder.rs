//! A forwarder between a client and the broker, which cuts a connection before bytes that stand for an unreadable message.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

pub(crate) struct Forwarder {
    port: u16,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    cuts: Arc<AtomicU64>,
    listening: JoinHandle<()>,
}

impl Forwarder {
    /// Starts a forwarder that cuts a connection before it delivers these bytes of the server. The forwarder stands for a
    /// client that ends its connection at a message that it cannot read.
    pub(crate) async fn cutting_at(server: String, unreadable: &'static [u8]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let cuts = Arc::<AtomicU64>::default();
        let (opened, cut) = (connections.clone(), cuts.clone());
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, cut) = (server.clone(), cut.clone());
                let connection = tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((mut requests, to_client), (replies, mut to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        _ = tokio::io::copy(&mut requests, &mut to_server) => {}
                        is_cut = forward_replies(replies, to_client, unreadable) => drop(cut.fetch_add(is_cut.into(), SeqCst)),
                    }
                });
                opened.lock().unwrap().push(connection.abort_handle());
            }
        });
        Self { port, connections, cuts, listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of connections that were cut before unreadable bytes.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(SeqCst)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.listening.abort();
        self.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }
}

/// Forwards up to the end of the connection, or up to the unreadable bytes. Returns whether these were found.
async fn forward_replies(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    unreadable: &[u8],
) -> bool {
    let (mut read, mut tail) = (vec![0; 1 << 16], Vec::new());
    loop {
        let Ok(length @ 1..) = from.read(&mut read).await else { return false };
        let before = tail.len();
        tail.extend_from_slice(&read[..length]);
        let found = tail.windows(unreadable.len()).position(|window| window == unreadable);
        let end = found.map_or(length, |at| at.saturating_sub(before));
        if to.write_all(&read[..end]).await.is_err() || found.is_some() {
            return found.is_some();
        }
        tail.drain(..tail.len().saturating_sub(unreadable.len() - 1));
    }
}

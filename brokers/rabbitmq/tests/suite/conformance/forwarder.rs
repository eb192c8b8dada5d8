//! A forwarder between a source and the broker, which can cut the connections of one test.
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

pub(crate) struct Forwarder {
    port: u16,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    listening: JoinHandle<()>,
}

impl Forwarder {
    /// Starts a forwarder to this server on a free port.
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let opened = connections.clone();
        let listening = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = server.clone();
                let connection = tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                opened.lock().unwrap().push(connection.abort_handle());
            }
        });
        Self { port, connections, listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all open connections. New connections are accepted.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}

//! A forwarder between a source and the broker, which cuts the connections of one test.
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

pub(crate) struct Forwarder {
    port: u16,
    lines: Arc<Mutex<Vec<AbortHandle>>>,
    listening: JoinHandle<()>,
}

impl Forwarder {
    /// On a free port, before the server at this address.
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lines = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let made = lines.clone();
        let listening = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = server.clone();
                let line = tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                made.lock().unwrap().push(line.abort_handle());
            }
        });
        Self { port, lines, listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections there are. New ones are welcome.
    pub(crate) fn cut(&self) {
        self.lines.lock().unwrap().drain(..).for_each(|line| line.abort());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}

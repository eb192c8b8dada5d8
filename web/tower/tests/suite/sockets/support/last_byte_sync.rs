//! Last-byte synchronization: each request is sent except for its last byte, and then all last bytes at once.
use std::net::SocketAddr;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Answer, Ask, Client};

/// Connections that send together, repeatedly.
pub(crate) struct Volley {
    clients: Vec<Client>,
    last: Vec<u8>,
}

impl Volley {
    /// Opens connections to these servers in turn.
    pub(crate) async fn connect(servers: &[SocketAddr], connections: usize) -> Self {
        let mut clients = Vec::new();
        for address in servers.iter().cycle().take(connections) {
            clients.push(Client::connect(*address).await);
        }
        Self { clients, last: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Sends each request except for its last byte, and then all last bytes in one loop.
    pub(crate) async fn fire(&mut self, ask: impl Fn(usize) -> Ask) {
        self.last.clear();
        for (number, client) in self.clients.iter_mut().enumerate() {
            let mut bytes = ask(number).bytes();
            self.last.push(bytes.pop().unwrap());
            client.send(&bytes).await;
        }
        for (client, last) in self.clients.iter().zip(&self.last) {
            client.send_now(&[*last]);
        }
    }

    /// Returns all responses in the order of the connections. Runs `then` as soon as `first` of them have arrived.
    pub(crate) async fn answers(&mut self, first: usize, then: impl AsyncFnOnce()) -> Vec<Answer> {
        let mut then = Some(then);
        let mut answers: Vec<Option<Answer>> = vec![None; self.clients.len()];
        let mut coming: FuturesUnordered<_> =
            self.clients.iter_mut().enumerate().map(async |(number, client)| (number, client.answer().await)).collect();
        for there in 0.. {
            if there == first
                && let Some(then) = then.take()
            {
                then().await;
            }
            match coming.next().await {
                Some((number, answer)) => answers[number] = Some(answer),
                None => break,
            }
        }
        answers.into_iter().flatten().collect()
    }
}

//! Clients that place orders, and retry each order with the same key until it is accepted.
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The number of clients.
const CLIENTS: usize = 4;

#[derive(Debug, Default)]
struct Shared {
    /// The address of the service, which changes with each of its processes.
    address: Mutex<String>,
    next: AtomicU64,
    /// The number of the last order that clients may place now.
    limit: AtomicU64,
    accepted: Mutex<BTreeSet<String>>,
    is_over: AtomicBool,
}

/// The clients. They place no order before [`allow`](Clients::allow).
pub(super) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub(super) fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let threads = (0..CLIENTS).map(|_| {
            std::thread::spawn({
                let shared = shared.clone();
                move || shared.place_orders()
            })
        });
        Self { threads: threads.collect(), shared }
    }

    /// Sets the address of the service.
    pub(super) fn use_address(&self, address: &str) {
        *self.shared.address.lock().unwrap() = address.to_owned();
    }

    /// Allows this number of further orders.
    pub(super) fn allow(&self, orders: u64) {
        self.shared.limit.fetch_add(orders, Ordering::SeqCst);
    }

    /// Waits until all allowed orders are accepted, and returns their numbers.
    pub(super) fn end(mut self) -> BTreeSet<String> {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.threads.drain(..).for_each(|client| client.join().unwrap());
        std::mem::take(&mut *self.shared.accepted.lock().unwrap())
    }
}

impl Shared {
    fn place_orders(&self) {
        loop {
            let limit = self.limit.load(Ordering::SeqCst);
            let taken =
                self.next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |next| (next < limit).then_some(next + 1));
            match taken {
                Ok(number) => {
                    let number = format!("n-{number}");
                    // A service that stops rejects the request, or ends the connection.
                    crate::wait::until("the order is accepted", || {
                        self.place(&number).is_some_and(|status| status / 100 == 2)
                    });
                    self.accepted.lock().unwrap().insert(number);
                }
                Err(_) if self.is_over.load(Ordering::SeqCst) => return,
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Places an order and returns the status, or `None` without an answer.
    fn place(&self, number: &str) -> Option<u16> {
        let address = self.address.lock().unwrap().clone();
        let mut stream = TcpStream::connect(address).ok()?;
        let body = format!(r#"{{"number":"{number}","article":"tea"}}"#);
        let length = body.len();
        write!(
            stream,
            "POST /orders HTTP/1.1\r\nHost: orders\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Idempotency-Key: \"{number}\"\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let line = BufReader::new(stream).lines().next()?.ok()?;
        line.split(' ').nth(1)?.parse().ok()
    }
}

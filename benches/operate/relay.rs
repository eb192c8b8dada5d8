//! A relay in front of a server that measures the processor time of each request.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Returns the id of the process that serves a connection, by the port of its client, or `None` until the server knows it.
pub type ServingProcess = Arc<dyn Fn(u16) -> Option<u32> + Send + Sync>;

/// A relay. The client sends a request when the one before is answered, so the processor time of the serving process between two
/// requests is that of the first. A wait for a processor does not count, unlike in a duration that the server measures.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    longest: Arc<AtomicU64>,
}

impl Relay {
    pub fn start(target: String, process: ServingProcess) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, longest) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let sum = longest.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&target).unwrap());
                let (process, longest) = (process.clone(), sum.clone());
                thread::spawn(move || relay(&client, &server, &process, &longest));
            }
        });
        Self { address, longest }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the longest processor time of a request in ms since the last call.
    pub fn longest_ms(&self) -> f64 {
        self.longest.swap(0, Ordering::SeqCst) as f64 / 1e6
    }
}

/// Relays one connection until one side closes it.
fn relay(mut client: &TcpStream, mut server: &TcpStream, process: &ServingProcess, longest: &Arc<AtomicU64>) {
    for stream in [client, server] {
        stream.set_nodelay(true).unwrap();
    }
    let port = server.local_addr().unwrap().port();
    thread::scope(|threads| {
        threads.spawn(move || {
            let (mut buffer, mut known) = (vec![0; 1 << 16], None);
            while let Ok(length @ 1..) = client.read(&mut buffer) {
                known = match known {
                    Some((process, before)) => {
                        let now = spent(process);
                        longest.fetch_max(now - before, Ordering::SeqCst);
                        Some((process, now))
                    }
                    None => process(port).map(|process| (process, spent(process))),
                };
                if server.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            let _ = server.shutdown(Shutdown::Both);
        });
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            if client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Returns the processor time of the main thread of a process in ns.
fn spent(process: u32) -> u64 {
    let times = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

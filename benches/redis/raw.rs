//! The two commands on a raw socket, with as many in one write as there would be tasks: the maximum of the server.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use idempotent_harness::servers::RedisServer;

use crate::bare::{LEASE, RETENTION, key};
use crate::slices::Mode;

struct Raw {
    socket: TcpStream,
    out: Vec<u8>,
    answers: Vec<u8>,
}

impl Raw {
    fn command(&mut self, parts: &[&[u8]]) {
        write!(self.out, "*{}\r\n", parts.len()).unwrap();
        for part in parts {
            write!(self.out, "${}\r\n", part.len()).unwrap();
            self.out.extend_from_slice(part);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends all written commands, and checks that each has this answer.
    fn flush(&mut self, answer: &[u8], count: usize) {
        self.socket.write_all(&self.out).unwrap();
        self.out.clear();
        self.answers.resize(answer.len() * count, 0);
        self.socket.read_exact(&mut self.answers).unwrap();
        assert!(self.answers.chunks(answer.len()).all(|given| given == answer));
    }

    fn cycles(&mut self, numbers: std::ops::Range<u64>) {
        let (lease, retention) = (LEASE.to_string(), RETENTION.to_string());
        let count = (numbers.end - numbers.start) as usize;
        for number in numbers.clone() {
            let owner = (u128::from(number) << 64).to_be_bytes();
            self.command(&[b"SET", &key(b'r', number), &owner, b"NX", b"GET", b"PX", lease.as_bytes()]);
        }
        self.flush(b"$-1\r\n", count);
        for number in numbers {
            self.command(&[b"SET", &key(b'r', number), b"2", b"PX", retention.as_bytes()]);
        }
        self.flush(b"+OK\r\n", count);
    }
}

/// Creates the mode, which runs on a separate thread.
pub fn mode(server: &RedisServer) -> Mode {
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_nodelay(true).unwrap();
    let raw = Arc::new(Mutex::new(Raw { socket, out: Vec::new(), answers: Vec::new() }));
    Box::new(move |slice| {
        let raw = raw.clone();
        Box::pin(async move {
            let work = tokio::task::spawn_blocking(move || {
                let (mut raw, mut done) = (raw.lock().unwrap(), 0);
                while !slice.is_over() {
                    raw.cycles(slice.from + done..slice.from + done + slice.tasks as u64);
                    done += slice.tasks as u64;
                }
                done
            });
            work.await.unwrap()
        })
    })
}

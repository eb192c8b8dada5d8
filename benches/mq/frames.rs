//! The traffic of a message, counted once, on a path that is not measured.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use idempotent_harness::servers::{RabbitServer, RedisServer};

use crate::Rabbit;
use crate::broker::report::Report;
use crate::broker::{Place, Way};

/// The counts for each message.
pub struct Asked {
    /// AMQP frames sent to the broker.
    pub frames: f64,
    /// Writes in which the frames arrived.
    pub writes: f64,
    /// Commands and scripts sent to the store.
    pub calls: f64,
}

/// Consumes some messages through a counter.
pub fn count(report: &Report, place: &Place<Rabbit>, rabbit: &RabbitServer, redis: &RedisServer, way: Way) -> Asked {
    let messages = if report.is_tried() { 200 } else { 20_000 };
    let counter = Counter::before(rabbit.address());
    let url = format!("amqp://guest:guest@{}/%2f", counter.address);
    place.fill(messages);
    let before = calls(redis);
    place.consume(way, &url, messages);
    let each = |all: u64| all as f64 / messages as f64;
    let (frames, writes) = (counter.counts.frames.load(Relaxed), counter.counts.writes.load(Relaxed));
    Asked { frames: each(frames), writes: each(writes), calls: each(calls(redis) - before) }
}

/// Returns the commands of clients, without those of scripts and this query.
fn calls(redis: &RedisServer) -> u64 {
    let of = |command: &str| {
        let line = redis.info(&format!("cmdstat_{command}"));
        let calls = line.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    ["evalsha", "eval", "fcall"].into_iter().map(of).sum()
}

#[derive(Default)]
struct Counts {
    frames: AtomicU64,
    writes: AtomicU64,
}

/// A proxy that counts the traffic between a client and the broker.
struct Counter {
    address: String,
    counts: Arc<Counts>,
}

impl Counter {
    /// Creates a proxy for one connection.
    fn before(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Arc::new(Counts::default());
        let own = counts.clone();
        thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let server = TcpStream::connect(broker).unwrap();
            for side in [&client, &server] {
                side.set_nodelay(true).unwrap();
            }
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let back = thread::spawn(move || pass(server, client, |_| {}));
            let mut frames = Frames::default();
            pass(from, to, |piece| {
                own.writes.fetch_add(1, Relaxed);
                own.frames.fetch_add(frames.begun_in(piece), Relaxed);
            });
            back.join().unwrap();
        });
        Self { address, counts }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        see(&piece[..length]);
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A parser that finds frames in partial reads.
#[derive(Default)]
struct Frames {
    greeted: usize,
    /// Type, channel and length of a frame.
    head: Vec<u8>,
    /// Bytes of the frame that are missing.
    rest: usize,
}

const GREETING: usize = 8;
const HEAD: usize = 7;

impl Frames {
    fn begun_in(&mut self, mut piece: &[u8]) -> u64 {
        let mut begun = 0;
        let greeting = piece.len().min(GREETING - self.greeted);
        self.greeted += greeting;
        piece = &piece[greeting..];
        while !piece.is_empty() {
            let skipped = piece.len().min(self.rest);
            self.rest -= skipped;
            piece = &piece[skipped..];
            let taken = piece.len().min(HEAD - self.head.len());
            self.head.extend(&piece[..taken]);
            piece = &piece[taken..];
            if let Ok([_, _, _, length @ ..]) = <[u8; HEAD]>::try_from(&self.head[..]) {
                // Including the byte that ends the frame.
                self.rest = u32::from_be_bytes(length) as usize + 1;
                self.head.clear();
                begun += 1;
            }
        }
        begun
    }
}

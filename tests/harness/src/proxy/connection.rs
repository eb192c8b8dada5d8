//! A connection through the proxy.
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::plan::Plan;
use super::{Fault, frame, mysql, postgres};

/// Forwards bytes until either side ends, a fault ends the connection, or `cuts` changes.
pub(super) async fn serve(client: TcpStream, target: String, plan: Arc<Plan>, mut cuts: watch::Receiver<u64>) {
    let mut line = Line {
        client,
        server: None,
        plan,
        from_client: Vec::new(),
        from_server: Vec::new(),
        awaited: VecDeque::new(),
        subscribed: false,
        wire: Wire::Redis,
        answered: false,
        begun: false,
        silent: false,
    };
    let end = tokio::select! {
        _ = cuts.changed() => Ok(End::Reset),
        end = line.run(&target) => end,
    };
    if matches!(end, Ok(End::Reset)) {
        for stream in [Some(line.client), line.server].into_iter().flatten() {
            // The socket is closed without a shutdown: data in transit is lost, and the other side sees a reset.
            let _ = stream.set_zero_linger();
        }
    }
}

/// The protocol of a connection, by its first bytes.
#[derive(Clone, Copy)]
enum Wire {
    Redis,
    Postgres,
    MySql,
    /// An unknown protocol: data that arrives at once is one request, or one reply.
    Opaque,
}

enum End {
    Closed,
    Reset,
}

struct Line {
    client: TcpStream,
    server: Option<TcpStream>,
    plan: Arc<Plan>,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    /// The faults of the requests whose replies are pending.
    awaited: VecDeque<Option<Fault>>,
    subscribed: bool,
    wire: Wire,
    /// True if a reply has arrived.
    answered: bool,
    begun: bool,
    /// True if the connection stays open without traffic.
    silent: bool,
}

impl Line {
    async fn run(&mut self, target: &str) -> io::Result<End> {
        if self.plan.resets_this() {
            return Ok(End::Reset);
        }
        let mut server = TcpStream::connect(target).await?;
        server.set_nodelay(true)?;
        self.client.set_nodelay(true)?;
        loop {
            let (read, of_client) = tokio::select! {
                read = self.client.read_buf(&mut self.from_client) => (read?, true),
                read = server.read_buf(&mut self.from_server), if !self.silent => (read?, false),
            };
            if read == 0 {
                return Ok(End::Closed);
            }
            if of_client && !self.begun {
                self.wire = match &self.from_client[..] {
                    [b'*', ..] => Wire::Redis,
                    bytes if postgres::begins(bytes) => Wire::Postgres,
                    _ => Wire::Opaque,
                };
            }
            if !of_client && !self.begun && mysql::greets(&self.from_server) {
                self.wire = Wire::MySql;
                self.begun = true;
                mysql::offer_no_tls(&mut self.from_server);
            }
            self.begun |= of_client;
            self.silent |= self.plan.silent.load(SeqCst);
            if self.silent {
                self.from_client.clear();
                self.from_server.clear();
                continue;
            }
            let ended = if of_client { self.requests(&mut server).await? } else { self.replies().await? };
            if let Some(end) = ended {
                self.server = Some(server);
                return Ok(end);
            }
        }
    }

    fn request(&self, bytes: &[u8]) -> Option<usize> {
        match self.wire {
            Wire::Redis => frame::length(bytes),
            Wire::Postgres => postgres::request(bytes),
            Wire::MySql => mysql::request(bytes),
            Wire::Opaque => (!bytes.is_empty()).then_some(bytes.len()),
        }
    }

    fn reply(&mut self, bytes: &[u8]) -> Option<usize> {
        let length = match self.wire {
            Wire::Redis => frame::length(bytes),
            Wire::Postgres => postgres::reply(bytes, !self.answered),
            Wire::MySql if matches!(self.awaited.front(), Some(Some(_))) => mysql::reply(bytes),
            Wire::MySql | Wire::Opaque => (!bytes.is_empty()).then_some(bytes.len()),
        }?;
        if let (Wire::Postgres, false, b"S") = (self.wire, self.answered, &bytes[..length]) {
            // TLS begins here.
            self.wire = Wire::Opaque;
        }
        self.answered = true;
        Some(length)
    }

    /// Forwards complete requests.
    async fn requests(&mut self, server: &mut TcpStream) -> io::Result<Option<End>> {
        let bytes = std::mem::take(&mut self.from_client);
        // Bytes up to `sent` were sent to the server, and bytes up to `at` were parsed.
        let (mut sent, mut at) = (0, 0);
        while let Some(length) = self.request(&bytes[at..]) {
            let request = &bytes[at..at + length];
            let fault = self.plan.fault(request);
            if fault.is_some() || !self.plan.delay().is_zero() {
                server.write_all(&bytes[sent..at]).await?;
                sent = at;
                tokio::time::sleep(self.plan.delay()).await;
            }
            match fault {
                Some(Fault::CutBeforeSend) => {
                    self.plan.meet();
                    return Ok(Some(End::Reset));
                }
                Some(Fault::HalfOpen) => {
                    self.plan.meet();
                    self.silent = true;
                    return Ok(None);
                }
                Some(Fault::Delay(delay)) => {
                    self.plan.meet();
                    tokio::time::sleep(delay).await;
                }
                Some(Fault::CutAfterApply | Fault::CutMidReply | Fault::HalfOpenAfterApply) | None => {}
            }
            if frame::subscribes(request) {
                self.subscribed = true;
            } else {
                self.awaited.push_back(fault);
            }
            self.plan.requests.fetch_add(1, SeqCst);
            at += length;
        }
        server.write_all(&bytes[sent..at]).await?;
        self.from_client.extend_from_slice(&bytes[at..]);
        Ok(None)
    }

    /// Forwards complete replies.
    async fn replies(&mut self) -> io::Result<Option<End>> {
        let bytes = std::mem::take(&mut self.from_server);
        let mut at = 0;
        while let Some(length) = self.reply(&bytes[at..]) {
            let message = frame::is_message(&bytes[at..at + length], self.subscribed);
            let fault = if message { None } else { self.awaited.pop_front().flatten() };
            let passes = match fault {
                Some(Fault::CutAfterApply | Fault::HalfOpenAfterApply) => 0,
                Some(Fault::CutMidReply) => length.div_ceil(2),
                _ => {
                    at += length;
                    self.plan.replies.fetch_add(u64::from(!message), SeqCst);
                    continue;
                }
            };
            self.client.write_all(&bytes[..at + passes]).await?;
            self.plan.meet();
            self.silent = fault == Some(Fault::HalfOpenAfterApply);
            // Half of a reply must arrive, so the connection ends with a regular shutdown.
            let end = if passes > 0 { End::Closed } else { End::Reset };
            return Ok((!self.silent).then_some(end));
        }
        self.client.write_all(&bytes[..at]).await?;
        self.from_server.extend_from_slice(&bytes[at..]);
        Ok(None)
    }
}

//! A proxy between a client and a real server that injects scripted faults.
//!
//! The proxy knows the boundaries of requests and replies in the Redis protocol, so a fault affects exactly one
//! request, even among many on one connection. Select a request by the bytes of a key or of a script's digest, because
//! clients send their own requests when they connect. The proxy also knows the PostgreSQL protocol, up to the point
//! where a client waits for an answer, and the requests of the MySQL protocol, where it removes the server's offer of TLS.
//! It passes other traffic, such as TLS; a request is then all data that arrives at once.
#![allow(clippy::panic, reason = "a test without its proxy has failed")]
mod connection;
mod frame;
mod mysql;
mod plan;
mod postgres;
mod thread;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use self::plan::Plan;
use self::thread::{Order, Task};
use crate::servers::port::Reserved;

/// The fault of one request.
///
/// A reset loses all traffic on the connection, including other requests and their replies, as in a real failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The request does not reach the server: the connection is reset before any of it is sent.
    CutBeforeSend,
    /// The server executes the request. The connection is reset when the reply has arrived, and the client gets none of
    /// it.
    CutAfterApply,
    /// The server executes the request. Half of the reply arrives, then the connection ends.
    CutMidReply,
    /// The request, and all later traffic on the connection, is delayed by this time.
    Delay(Duration),
    /// Neither the request nor later traffic on this connection reaches the server. The connection stays open.
    HalfOpen,
    /// The server executes the request. Neither its reply nor later traffic returns on this connection, which stays
    /// open.
    HalfOpenAfterApply,
}

/// The traffic so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Passed {
    /// Accepted connections, including those that were reset.
    pub connections: u64,
    /// Requests sent to the server.
    pub requests: u64,
    /// Replies sent to the client.
    pub replies: u64,
}

/// A proxy in front of one server. It works on its own thread, so its methods need no runtime, and it works while the
/// runtime of a test is busy. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    target: String,
    at: SocketAddr,
    plan: Arc<Plan>,
    /// The sender of orders; `None` only while the proxy is dropped.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// The reservation of the port, kept while connections are refused; `None` if the caller chose the port.
    reserved: Option<Reserved>,
}

impl Proxy {
    /// Starts a proxy in front of the server at this address, such as `127.0.0.1:6379`, on a free port. The server need
    /// not run yet: until it does, clients are rejected.
    ///
    /// # Panics
    /// If no port is free.
    ///
    /// # Cancellation
    /// Dropping the future has no lasting effect.
    pub async fn start(target: &str) -> Self {
        let (listener, at, reserved) = thread::bind().unwrap_or_else(|e| panic!("the proxy has no port: {e}"));
        let mut proxy = Self::listening(listener, at, target).await;
        proxy.reserved = Some(reserved);
        proxy
    }

    /// Starts a proxy at this address, for a server that announces an address to its clients.
    ///
    /// # Panics
    /// If the port is in use.
    ///
    /// # Cancellation
    /// Dropping the future has no lasting effect.
    pub async fn start_at(at: SocketAddr, target: &str) -> Self {
        let listener = TcpListener::bind(at).unwrap_or_else(|e| panic!("the proxy cannot be at {at}: {e}"));
        Self::listening(listener, at, target).await
    }

    async fn listening(listener: TcpListener, at: SocketAddr, target: &str) -> Self {
        let plan = Arc::new(Plan::new());
        let (orders, inbox) = mpsc::unbounded_channel();
        let task = Task::new(target.to_owned(), at, Arc::clone(&plan), listener, inbox);
        let thread = std::thread::spawn(move || task.run());
        let proxy =
            Self { target: target.to_owned(), at, plan, orders: Some(orders), thread: Some(thread), reserved: None };
        let (done, heard) = tokio::sync::oneshot::channel();
        proxy.send(Order::Hello(done));
        assert!(heard.await.is_ok(), "the proxy's thread ended");
        proxy
    }

    /// Returns the address for clients: `127.0.0.1:PORT`, unless the proxy was started at another address.
    pub fn address(&self) -> String {
        self.at.to_string()
    }

    /// Returns the port for clients.
    pub fn port(&self) -> u16 {
        self.at.port()
    }

    /// Returns the address as a Redis URL: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the address of the server at the start.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Injects this fault into the next request. Requests that a client sends by itself do not count: HELLO, AUTH,
    /// SELECT, CLIENT, PING, INFO, READONLY, CLUSTER, COMMAND. Two calls affect two requests.
    pub fn fail_next(&self, fault: Fault) {
        self.fail_next_if(|request| !frame::opens(request), fault);
    }

    /// Injects this fault into the next request that contains these bytes, such as a key.
    pub fn fail_next_with(&self, part: impl AsRef<[u8]>, fault: Fault) {
        let part = part.as_ref().to_vec();
        self.fail_next_if(move |request| contains(request, &part), fault);
    }

    /// Injects this fault into the next request for which `wanted` returns true. `wanted` gets the bytes of the request
    /// on the wire.
    pub fn fail_next_if(&self, wanted: impl Fn(&[u8]) -> bool + Send + 'static, fault: Fault) {
        self.plan.arm(Box::new(wanted), fault);
    }

    /// Removes the faults that no request has met. Returns their number.
    pub fn disarm(&self) -> usize {
        self.plan.disarm()
    }

    /// Returns the number of faults that no request has met.
    pub fn armed(&self) -> usize {
        self.plan.left()
    }

    /// Returns the number of injected faults.
    pub fn met(&self) -> u64 {
        *self.plan.met.borrow()
    }

    /// Waits until `count` faults have been injected since the start.
    ///
    /// # Cancellation
    /// Dropping the future has no lasting effect.
    pub async fn until_met(&self, count: u64) {
        // The sender is in this proxy's plan, so the channel is open.
        let _ = self.plan.met.subscribe().wait_for(|met| *met >= count).await;
    }

    /// Delays each request on every connection by this time; zero ends the delay.
    pub fn delay_all(&self, delay: Duration) {
        self.plan.set_delay(delay);
    }

    /// Stops all traffic in both directions, on every existing and new connection. The connections stay open.
    /// [`speak`](Self::speak) ends the silence.
    pub fn silence(&self) {
        self.plan.silent.store(true, SeqCst);
    }

    /// Ends the silence for new connections. A connection that has lost bytes stays silent; [`cut_all`](Self::cut_all)
    /// ends it.
    pub fn speak(&self) {
        self.plan.silent.store(false, SeqCst);
    }

    /// Resets all connections before it returns. New connections are accepted.
    ///
    /// # Panics
    /// Never, as long as the thread of the proxy runs.
    pub fn cut_all(&self) {
        self.order(Order::Cut);
    }

    /// Resets the next `connections` connections as soon as they are established, before any traffic passes: a call
    /// that needs a connection sends nothing. After [`cut_all`](Self::cut_all), the next call needs a connection.
    pub fn reset_next(&self, connections: u64) {
        self.plan.resets.fetch_add(connections, SeqCst);
    }

    /// Refuses new connections, as if the server did not listen. Existing connections continue. The refusal is in
    /// effect when this method returns.
    ///
    /// # Panics
    /// Never, as long as the thread of the proxy runs.
    pub fn refuse(&self) {
        self.order(Order::Refuse);
    }

    /// Listens again on the same port.
    ///
    /// # Panics
    /// If another program has taken the port in the meantime.
    pub fn listen(&self) {
        self.order(Order::Listen);
    }

    /// Begins an outage: all connections stay open without traffic, or they are reset and new ones refused.
    ///
    /// # Panics
    /// Never, as long as the thread of the proxy runs.
    pub fn begin_outage(&self, is_silent: bool) {
        if is_silent {
            return self.silence();
        }
        self.refuse();
        self.cut_all();
    }

    /// Ends an outage, and resets the connections that stayed open.
    ///
    /// # Panics
    /// See [`listen`](Self::listen).
    pub fn end_outage(&self) {
        self.speak();
        self.cut_all();
        self.listen();
    }

    /// Leads new connections to the server at this address, as a virtual address does after a failover. Existing connections stay with
    /// their server.
    ///
    /// # Panics
    /// Never, as long as the thread of the proxy runs.
    pub fn move_to(&self, target: &str) {
        self.order(|done| Order::Move(target.to_owned(), done));
    }

    /// Returns the traffic so far.
    pub fn passed(&self) -> Passed {
        let Plan { connections, requests, replies, .. } = &*self.plan;
        let [connections, requests, replies] = [connections, requests, replies].map(|count| count.load(SeqCst));
        Passed { connections, requests, replies }
    }

    /// Sends an order to the proxy's thread, and waits for its execution.
    fn order(&self, order: impl FnOnce(thread::Done) -> Order) {
        let (done, heard) = std::sync::mpsc::channel();
        self.send(order(done));
        if let Err(why) = heard.recv().unwrap_or_else(|_| Err("its thread ended".to_owned())) {
            panic!("the proxy failed: {why}");
        }
    }

    fn send(&self, order: Order) {
        // A waiting caller notices if the thread has ended.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        // If the thread panicked, the connections have shown it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn contains(request: &[u8], part: &[u8]) -> bool {
    part.is_empty() || request.windows(part.len()).any(|window| window == part)
}

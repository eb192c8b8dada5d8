//! A proxy between a client and a real server that fails where a test tells it to.
//!
//! It knows where the requests and replies of Redis' protocol begin and end, so that a fault strikes one request, also
//! among many on one connection. Aim it at the bytes of a key or of a script's digest: clients send requests of their
//! own when they connect. It knows those of PostgreSQL's protocol as well: up to where a client waits for an answer;
//! and the requests of MySQL's. What is none of these, such as TLS, passes too; a request is then what arrives at once.
#![allow(clippy::panic, reason = "a test without its proxy has failed")]
mod frame;
mod line;
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

/// What happens to one request.
///
/// A reset loses everything that is under way on the connection, also other requests and their replies, as in life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// It does not reach the server: the connection is reset before any of it is sent.
    CutBeforeSend,
    /// The server carries it out: the connection is reset when its reply has come, and the client gets none of it.
    CutAfterApply,
    /// The server carries it out; half of its reply arrives, then the connection ends.
    CutMidReply,
    /// It is held for this long, and what follows on the connection with it.
    Delay(Duration),
    /// It does not reach the server, and nothing else does on this connection, which stays open.
    HalfOpen,
    /// The server carries it out; neither its reply nor anything else comes back on this connection, which stays open.
    HalfOpenAfterApply,
}

/// What has passed so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Passed {
    /// Connections accepted, also those that were reset.
    pub connections: u64,
    /// Requests sent on to the server.
    pub requests: u64,
    /// Replies handed to the client.
    pub replies: u64,
}

/// A proxy before one server. It works on a thread of its own, so that its methods need no runtime, and it works while
/// a test's runtime is busy. Dropped, it ends with all its connections.
#[derive(Debug)]
pub struct Proxy {
    target: String,
    at: SocketAddr,
    plan: Arc<Plan>,
    /// None only while it is dropped.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// The reservation of the port, kept while connections are refused; `None` if the caller chose the port.
    reserved: Option<Reserved>,
}

impl Proxy {
    /// One before the server at this address, such as `127.0.0.1:6379`, on a free port of its own. The server need not
    /// be there yet; a client that comes before it is turned away.
    ///
    /// # Panics
    /// Where no port is free.
    ///
    /// # Cancellation
    /// A drop leaves nothing behind.
    pub async fn start(target: &str) -> Self {
        let (listener, at, reserved) = thread::bind().unwrap_or_else(|e| panic!("the proxy has no port: {e}"));
        let mut proxy = Self::listening(listener, at, target).await;
        proxy.reserved = Some(reserved);
        proxy
    }

    /// One at this address, for a server that tells its clients where to connect to.
    ///
    /// # Panics
    /// Where somebody has this port.
    ///
    /// # Cancellation
    /// A drop leaves nothing behind.
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

    /// `127.0.0.1:PORT`, where clients connect to, unless it was started at another address.
    pub fn address(&self) -> String {
        self.at.to_string()
    }

    /// The port clients connect to.
    pub fn port(&self) -> u16 {
        self.at.port()
    }

    /// The same as a URL of Redis: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The server's address.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The next request meets this fault; those a client sends on its own account do not count: HELLO, AUTH, SELECT,
    /// CLIENT, PING, INFO, READONLY, CLUSTER, COMMAND. Twice said, it is two requests.
    pub fn fail_next(&self, fault: Fault) {
        self.fail_next_if(|request| !frame::opens(request), fault);
    }

    /// The next request that contains these bytes, say a key, meets this fault.
    pub fn fail_next_with(&self, part: impl AsRef<[u8]>, fault: Fault) {
        let part = part.as_ref().to_vec();
        self.fail_next_if(move |request| contains(request, &part), fault);
    }

    /// The next request of which this is true, given as its bytes on the wire, meets this fault.
    pub fn fail_next_if(&self, wanted: impl Fn(&[u8]) -> bool + Send + 'static, fault: Fault) {
        self.plan.arm(Box::new(wanted), fault);
    }

    /// Takes back the faults no request has met; how many these were.
    pub fn disarm(&self) -> usize {
        self.plan.disarm()
    }

    /// Faults no request has met.
    pub fn armed(&self) -> usize {
        self.plan.left()
    }

    /// Faults that have struck.
    pub fn met(&self) -> u64 {
        *self.plan.met.borrow()
    }

    /// Waits until so many faults have struck since the start.
    ///
    /// # Cancellation
    /// A drop leaves nothing behind.
    pub async fn until_met(&self, count: u64) {
        // Its sender is in our own plan.
        let _ = self.plan.met.subscribe().wait_for(|met| *met >= count).await;
    }

    /// Each request is held for this long, on every connection; zero for none.
    pub fn delay_all(&self, delay: Duration) {
        self.plan.set_delay(delay);
    }

    /// Nothing passes any more, in neither direction, on every connection there is or comes; they stay open.
    /// [`speak`](Self::speak) ends it.
    pub fn silence(&self) {
        self.plan.silent.store(true, SeqCst);
    }

    /// New connections work again. One that has lost bytes in the silence stays silent; [`cut_all`](Self::cut_all)
    /// ends it.
    pub fn speak(&self) {
        self.plan.silent.store(false, SeqCst);
    }

    /// Resets all connections; it is done when this returns. New ones are welcome.
    ///
    /// # Panics
    /// Never, as long as its thread runs.
    pub fn cut_all(&self) {
        self.order(Order::Cut);
    }

    /// Resets the next so many connections as soon as they are made, before anything passes: nothing of a call that
    /// needs one is sent. With [`cut_all`](Self::cut_all) before it, the next call needs one.
    pub fn reset_next(&self, connections: u64) {
        self.plan.resets.fetch_add(connections, SeqCst);
    }

    /// Refuses new connections, as if nobody listened; those there are go on. It is done when this returns.
    ///
    /// # Panics
    /// Never, as long as its thread runs.
    pub fn refuse(&self) {
        self.order(Order::Refuse);
    }

    /// Listens again, on the same port.
    ///
    /// # Panics
    /// Where the port was taken in between.
    pub fn listen(&self) {
        self.order(Order::Listen);
    }

    /// What has passed so far.
    pub fn passed(&self) -> Passed {
        let Plan { connections, requests, replies, .. } = &*self.plan;
        let [connections, requests, replies] = [connections, requests, replies].map(|count| count.load(SeqCst));
        Passed { connections, requests, replies }
    }

    /// Waits for it to be carried out, on the proxy's own thread.
    fn order(&self, order: fn(thread::Done) -> Order) {
        let (done, heard) = std::sync::mpsc::channel();
        self.send(order(done));
        if let Err(why) = heard.recv().unwrap_or_else(|_| Err("its thread ended".to_owned())) {
            panic!("the proxy failed: {why}");
        }
    }

    fn send(&self, order: Order) {
        // Whoever waits for the answer notices that nobody is there.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        // If it panicked, the connections have shown it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn contains(request: &[u8], part: &[u8]) -> bool {
    part.is_empty() || request.windows(part.len()).any(|window| window == part)
}

//! The thread of the proxy: it accepts connections and executes orders.
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener as Blocking};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc as blocking};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::connection;
use super::plan::Plan;
use crate::servers::port::{self, Reserved};

/// The number of tries, since another program may take a port that was free.
const TRIES: usize = 20;

pub(super) type Done = blocking::Sender<Result<(), String>>;

pub(super) enum Order {
    Hello(oneshot::Sender<()>),
    Cut(Done),
    Refuse(Done),
    Listen(Done),
    /// Leads new connections to another server.
    Move(String, Done),
}

pub(super) struct Task {
    target: String,
    at: SocketAddr,
    plan: Arc<Plan>,
    listener: Option<Blocking>,
    inbox: mpsc::UnboundedReceiver<Order>,
}

/// Binds a listener to a free port.
///
/// # Errors
/// If no port is free.
pub(super) fn bind() -> Result<(Blocking, SocketAddr, Reserved), String> {
    for _ in 0..TRIES {
        let reserved = port::free(false)?;
        let at = (Ipv4Addr::LOCALHOST, reserved.number).into();
        if let Ok(listener) = Blocking::bind(at) {
            return Ok((listener, at, reserved));
        }
    }
    Err(format!("{TRIES} ports were free and then taken"))
}

impl Task {
    pub(super) fn new(
        target: String,
        at: SocketAddr,
        plan: Arc<Plan>,
        listener: Blocking,
        inbox: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        Self { target, at, plan, listener: Some(listener), inbox }
    }

    /// Runs until no sender of orders is left.
    #[allow(clippy::expect_used, reason = "without a runtime there is no proxy, and a waiting caller notices")]
    pub(super) fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(self.obey());
    }

    async fn obey(mut self) {
        let mut listener = self.listener.take().and_then(|listener| adopt(listener).ok());
        let (mut lines, cuts) = (JoinSet::new(), watch::Sender::new(0));
        loop {
            tokio::select! {
                order = self.inbox.recv() => match order {
                    // A shutdown of a listening socket does not fail on Linux, and no caller waits for the result.
                    None => return listener.as_ref().map(close).map_or((), drop),
                    Some(Order::Hello(done)) => drop(done.send(())),
                    Some(Order::Cut(done)) => {
                        // Connections that were established before the order are cut, too.
                        while let Some(Ok(client)) = waiting(listener.as_ref()) {
                            self.serve(client, &mut lines, &cuts);
                        }
                        cuts.send_modify(|cuts| *cuts += 1);
                        while lines.join_next().await.is_some() {}
                        drop(done.send(Ok(())));
                    }
                    Some(Order::Move(target, done)) => {
                        self.target = target;
                        drop(done.send(Ok(())));
                    }
                    Some(Order::Refuse(done)) => {
                        let closed = listener.take().map_or(Ok(()), |listener| close(&listener));
                        drop(done.send(closed.map_err(|e| e.to_string())));
                    }
                    Some(Order::Listen(done)) if listener.is_some() => drop(done.send(Ok(()))),
                    Some(Order::Listen(done)) => {
                        let again = Blocking::bind(self.at).and_then(adopt);
                        drop(done.send(again.map(|again| listener = Some(again)).map_err(|e| e.to_string())));
                    }
                },
                client = accept(listener.as_ref()) => self.serve(client, &mut lines, &cuts),
                // Removes ended connections.
                Some(_) = lines.join_next() => {}
            }
        }
    }

    fn serve(&self, client: TcpStream, lines: &mut JoinSet<()>, cuts: &watch::Sender<u64>) {
        self.plan.connections.fetch_add(1, SeqCst);
        lines.spawn(connection::serve(client, self.target.clone(), Arc::clone(&self.plan), cuts.subscribe()));
    }
}

fn adopt(listener: Blocking) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Ends the socket itself. A process that another test starts at this moment holds a copy of the descriptor until it
/// executes its program; a dropped listener would accept connections as long as that copy is open.
fn close(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).shutdown(Shutdown::Both)
}

/// Returns the next connection; never, if the proxy does not listen.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            Some(listener) => {
                if let Ok((client, _)) = listener.accept().await {
                    return client;
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// Returns a connection that is already established.
fn waiting(listener: Option<&TcpListener>) -> Option<io::Result<TcpStream>> {
    let accepted = std::pin::pin!(listener?.accept());
    match accepted.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(accepted) => Some(accepted.map(|(client, _)| client)),
        std::task::Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_closed_listener_refuses_although_a_copy_of_its_descriptor_is_open() {
        let (listener, at, _reserved) = bind().unwrap();
        let copy = listener.try_clone().unwrap();
        let listener = adopt(listener).unwrap();
        drop(TcpStream::connect(at).await.unwrap());
        close(&listener).unwrap();
        drop(listener);
        assert_eq!(TcpStream::connect(at).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let again = Blocking::bind(at).unwrap();
        drop((copy, again));
    }
}

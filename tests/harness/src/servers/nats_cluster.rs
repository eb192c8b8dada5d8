//! A NATS cluster.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::nats::NatsServer;
use super::port::{self, Reserved};
use super::{or_panic, until};

/// The number of nodes.
const NODES: usize = 3;

/// A private NATS cluster of three nodes with JetStream, whose names are `n0`, `n1` and `n2`.
#[derive(Debug)]
pub struct NatsCluster {
    nodes: Vec<NatsServer>,
    /// The ports of the nodes' pages with their state.
    pages: Vec<Reserved>,
    _routes: Vec<Reserved>,
}

impl NatsCluster {
    /// Starts three nodes. When this method returns, the cluster has a leader, and streams may have three replicas.
    ///
    /// # Panics
    /// If a node cannot start or join.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::new())
    }

    fn new() -> Result<Self, String> {
        let ports = || (0..NODES).map(|_| port::free(false)).collect::<Result<Vec<_>, _>>();
        let (pages, routes) = (ports()?, ports()?);
        let urls: Vec<_> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{}\"", port.number)).collect();
        let node = |index: usize| {
            NatsServer::with(&format!(
                "server_name: n{index}\nhttp: \"127.0.0.1:{}\"\n\
                 cluster {{ name: idempotent, listen: \"127.0.0.1:{}\", routes: [{}] }}",
                pages[index].number,
                routes[index].number,
                urls.join(", ")
            ))
        };
        let nodes = (0..NODES).map(node).collect();
        let cluster = Self { nodes, pages, _routes: routes };
        until("the cluster has a leader and three current nodes", || cluster.is_complete())?;
        Ok(cluster)
    }

    /// Returns the URLs of all nodes, separated by commas.
    #[must_use]
    pub fn url(&self) -> String {
        let urls: Vec<_> = self.nodes.iter().map(NatsServer::url).collect();
        urls.join(",")
    }

    /// Returns the node with this name, as the information of a stream contains the name of its leader.
    ///
    /// # Panics
    /// If no node has this name.
    #[must_use]
    pub fn node(&self, name: &str) -> &NatsServer {
        let index = name.strip_prefix('n').and_then(|index| index.parse::<usize>().ok());
        or_panic(index.and_then(|index| self.nodes.get(index)).ok_or_else(|| format!("no node is named {name}")))
    }

    /// Starts a killed node again, and waits until its streams contain all that the other nodes have.
    ///
    /// # Panics
    /// If the node does not start, or does not catch up.
    pub fn restart(&self, name: &str) {
        self.node(name).restart();
        or_panic(until("all nodes are healthy", || {
            self.is_complete() && self.pages.iter().all(|page| get(page.number, "/healthz").is_some())
        }));
    }

    /// Returns whether each node knows the same complete cluster.
    fn is_complete(&self) -> bool {
        let states: Vec<_> = self.pages.iter().filter_map(|page| get(page.number, "/jsz")).collect();
        let has_leader = |state: &Value| {
            let cluster = &state["meta_cluster"];
            cluster["cluster_size"] == NODES && cluster["leader"].as_str().is_some_and(|leader| !leader.is_empty())
        };
        let has_followers = |state: &Value| {
            let followers = state["meta_cluster"]["replicas"].as_array();
            followers.is_some_and(|all| all.len() == NODES - 1 && all.iter().all(|one| one["current"] == true))
        };
        states.len() == NODES && states.iter().all(has_leader) && states.iter().any(has_followers)
    }
}

/// Returns a page of a node in JSON, or `None` if the node does not answer, or answers with an error.
fn get(port: u16, path: &str) -> Option<Value> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(connection, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_ok = head.lines().next()?.contains(" 200 ");
    if is_ok { serde_json::from_str(body).ok() } else { None }
}

//! Servers that say what a test wants: a node that has all slots and does not do what scripts are sent for, and a
//! sentinel.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::words::command;

pub(crate) struct Fake {
    port: u16,
    scripts: Arc<AtomicUsize>,
    /// Before it says anything on a new connection, ms.
    silent: Arc<AtomicU64>,
    serves: JoinHandle<()>,
}

/// What it says.
#[derive(Clone, Default)]
struct Script {
    port: u16,
    to_script: String,
    primary: u16,
    epoch: u64,
}

impl Fake {
    /// `answer` is that to a script, by the node's port.
    pub(crate) async fn start(answer: fn(u16) -> String) -> Self {
        Self::new(|port| Script { port, to_script: answer(port), ..Script::default() }).await
    }

    /// Names the server at this port.
    pub(crate) async fn sentinel(primary: u16, epoch: u64) -> Self {
        Self::new(|port| Script { port, primary, epoch, ..Script::default() }).await
    }

    /// Says nothing for so long on each new connection.
    pub(crate) fn hesitate(&self, millis: u64) {
        self.silent.store(millis, Ordering::SeqCst);
    }

    async fn new(says: impl FnOnce(u16) -> Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (scripts, says) = (Arc::new(AtomicUsize::new(0)), says(port));
        let silent: Arc<AtomicU64> = Arc::default();
        let (counted, before) = (scripts.clone(), silent.clone());
        let serves = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let silent = Duration::from_millis(before.load(Ordering::SeqCst));
                tokio::spawn(serve(stream, silent, says.clone(), counted.clone()));
            }
        });
        Self { port, scripts, silent, serves }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.port)
    }

    /// How often a script was asked for.
    pub(crate) fn scripts(&self) -> usize {
        self.scripts.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

/// What a store looks at before it uses a server.
const INFO: &str = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

async fn serve(stream: TcpStream, silent: Duration, says: Script, scripts: Arc<AtomicUsize>) {
    let Script { port, to_script, primary, epoch } = says;
    tokio::time::sleep(silent).await;
    let mut stream = BufReader::new(stream);
    while let Some(words) = command(&mut stream).await {
        let said = match (words[0].to_ascii_uppercase().as_str(), words.get(1).map(String::as_str)) {
            ("HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            ("SUBSCRIBE", _) => (1..words.len())
                .map(|at| format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:{at}\r\n", words[at].len(), words[at]))
                .collect(),
            ("SENTINEL", Some("get-master-addr-by-name")) => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{primary}\r\n")
            }
            ("SENTINEL", Some("master")) => format!("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n{epoch}\r\n"),
            ("SENTINEL", _) => "*0\r\n".to_owned(),
            ("GET", _) => "$1\r\n1\r\n".to_owned(),
            ("INFO", _) => format!("${}\r\n{INFO}\r\n", INFO.len()),
            ("CLUSTER", Some("INFO")) => "$16\r\ncluster_state:ok\r\n".to_owned(),
            ("CLUSTER", _) => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n"),
            ("EVALSHA", _) => {
                scripts.fetch_add(1, Ordering::SeqCst);
                to_script.clone()
            }
            _ => "+PONG\r\n".to_owned(),
        };
        if stream.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

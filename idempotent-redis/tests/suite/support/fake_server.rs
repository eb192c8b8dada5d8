//! Fake servers: a node that owns all slots and answers scripts as a test wants, and a sentinel.
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

#[derive(Default)]
pub(crate) struct Says {
    port: u16,
    to_script: String,
    primary: AtomicU16,
    epoch: AtomicU64,
    /// Delay in ms before the first reply on a new connection.
    hesitates: AtomicU64,
    pub(crate) holds_role: AtomicBool,
    pub(crate) role_asked: AtomicUsize,
    pub(crate) role_said: Notify,
    scripts: AtomicUsize,
    pub(crate) is_replica: AtomicBool,
    pub(crate) connections: Mutex<Vec<mpsc::UnboundedSender<Option<String>>>>,
}

pub(crate) struct Fake {
    pub(crate) port: u16,
    pub(crate) says: Arc<Says>,
    serves: JoinHandle<()>,
}

impl Fake {
    /// Starts a primary that grants each claim.
    pub(crate) async fn start() -> Self {
        Self::answering(|_| "*1\r\n:1795187175068457\r\n".to_owned()).await
    }

    /// Starts a primary that replies to scripts with `answer`, which gets the node's port.
    pub(crate) async fn answering(answer: impl FnOnce(u16) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let says = Arc::new(Says { port, to_script: answer(port), ..Says::default() });
        let kept = says.clone();
        let serves = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, kept.clone()));
            }
        });
        Self { port, says, serves }
    }

    /// Starts a sentinel that reports the server at this port.
    pub(crate) async fn sentinel(primary: u16, epoch: u64) -> Self {
        let fake = Self::start().await;
        fake.names(primary, epoch);
        fake
    }

    pub(crate) fn names(&self, primary: u16, epoch: u64) {
        self.says.primary.store(primary, Ordering::SeqCst);
        self.says.epoch.store(epoch, Ordering::SeqCst);
    }

    /// Delays the first reply on each new connection.
    pub(crate) fn hesitate(&self, millis: u64) {
        self.says.hesitates.store(millis, Ordering::SeqCst);
    }

    /// Announces a switch to all subscribers, as a sentinel does.
    pub(crate) fn tells_of_switch(&self, old: &Fake, new: &Fake) {
        let told = format!("main 127.0.0.1 {} 127.0.0.1 {}", old.port, new.port);
        let push = format!(">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{told}\r\n", told.len());
        for connection in &*self.says.connections.lock().unwrap() {
            let _ = connection.send(Some(push.clone()));
        }
    }

    pub(crate) fn cuts_all(&self) {
        for connection in self.says.connections.lock().unwrap().drain(..) {
            let _ = connection.send(None);
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn scripts(&self) -> usize {
        self.says.scripts.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

/// The `INFO` lines that a store checks.
const INFO: &str = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

async fn serve(stream: TcpStream, says: Arc<Says>) {
    tokio::time::sleep(Duration::from_millis(says.hesitates.load(Ordering::SeqCst))).await;
    let (read, mut write) = stream.into_split();
    let (tx, mut rx) = mpsc::unbounded_channel::<Option<String>>();
    says.connections.lock().unwrap().push(tx.clone());
    tokio::spawn(async move {
        while let Some(Some(text)) = rx.recv().await {
            if write.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut read = BufReader::new(read);
    while let Some(words) = command(&mut read).await {
        let said = match (words[0].to_ascii_uppercase().as_str(), words.get(1).map(String::as_str)) {
            ("HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            ("SUBSCRIBE", _) => (1..words.len())
                .map(|at| format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:{at}\r\n", words[at].len(), words[at]))
                .collect(),
            ("SENTINEL", Some("get-master-addr-by-name")) => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{:05}\r\n", says.primary.load(Ordering::SeqCst))
            }
            ("SENTINEL", Some("master")) => {
                format!("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n{}\r\n", says.epoch.load(Ordering::SeqCst))
            }
            ("SENTINEL", _) => "*0\r\n".to_owned(),
            ("ROLE", _) => {
                says.role_asked.fetch_add(1, Ordering::SeqCst);
                if says.holds_role.load(Ordering::SeqCst) {
                    says.role_said.notified().await;
                }
                "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned()
            }
            ("GET", _) => "$1\r\n1\r\n".to_owned(),
            ("INFO", _) => format!("${}\r\n{INFO}\r\n", INFO.len()),
            ("CLUSTER", Some("INFO")) => "$16\r\ncluster_state:ok\r\n".to_owned(),
            ("CLUSTER", _) => {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{}\r\n$2\r\nid\r\n", says.port)
            }
            ("EVALSHA", _) => {
                says.scripts.fetch_add(1, Ordering::SeqCst);
                if says.is_replica.load(Ordering::SeqCst) {
                    "-READONLY You can't write against a read only replica.\r\n".to_owned()
                } else {
                    says.to_script.clone()
                }
            }
            _ => "+PONG\r\n".to_owned(),
        };
        if tx.send(Some(said)).is_err() {
            return;
        }
    }
}

/// Reads a command, or returns `None` at the end of the stream.
async fn command(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn number(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

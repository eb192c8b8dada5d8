//! The shop in a separate process: the test binary starts itself as the server.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use axum::serve::ListenerExt;
use idempotent_tower::IdempotencyLayer;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::shop::principal;
use super::{PATIENCE, Shop, server, stores, until};

/// The settings of a server process.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) store: String,
    /// The directory for its run log.
    pub(crate) folder: PathBuf,
    pub(crate) lease: Duration,
    /// The grace period after SIGTERM.
    pub(crate) grace: Duration,
}

impl Settings {
    pub(crate) fn new(store: String, folder: &Path) -> Self {
        Self { store, folder: folder.to_owned(), lease: Duration::from_secs(30), grace: PATIENCE }
    }

    fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    /// Returns the runs of all processes in order: article, number, and the number of the run taken over.
    pub(crate) fn runs(&self, sku: &str) -> Vec<(u64, Option<u64>)> {
        let ledger = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let run = |line: &str| {
            let [of, number, taken_over] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            (of == sku).then(|| (number.parse().unwrap(), taken_over.parse().ok()))
        };
        ledger.lines().filter_map(run).collect()
    }
}

/// A server process, killed on drop.
pub(crate) struct ServerProcess {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl ServerProcess {
    pub(crate) async fn start(settings: &Settings) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sockets::support::process::server_process"]).env("SERVER_STORE", &settings.store);
        command.env("SERVER_FOLDER", &settings.folder).env("SERVER_LEASE", settings.lease.as_millis().to_string());
        command.env("SERVER_GRACE", settings.grace.as_millis().to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let file = settings.folder.join(child.id().to_string());
        until("a server that listens", async || {
            assert!(child.try_wait().unwrap().is_none(), "the server has ended: its error is on stderr");
            file.exists()
        })
        .await;
        let address = std::fs::read_to_string(file).unwrap().parse().unwrap();
        Self { address, child }
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), None, "by a signal");
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        until("the server's end", async || !self.is_running()).await;
        self.child.wait().unwrap()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The entry point of the server process. Does nothing as a test. On SIGTERM it drains and exits.
#[test]
fn server_process() {
    let told = |name: &str| std::env::var(format!("SERVER_{name}"));
    let (Ok(store), Ok(folder), Ok(lease), Ok(grace)) = (told("STORE"), told("FOLDER"), told("LEASE"), told("GRACE"))
    else {
        return;
    };
    let millis = |text: String| Duration::from_millis(text.parse().unwrap());
    let settings = Settings { store, folder: folder.into(), lease: millis(lease), grace: millis(grace) };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(serve(settings));
}

async fn serve(settings: Settings) {
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let executor = stores::open(&settings.store).await;
    let layer = IdempotencyLayer::new(executor.clone(), principal()).lease(settings.lease);
    let router = Shop::new(Some(settings.ledger())).router(layer);
    let (listener, address) = server::listen().await;
    let (drained, heard) = oneshot::channel();
    let serving = axum::serve(listener.tap_io(|tcp| tcp.set_nodelay(true).unwrap()), router)
        .with_graceful_shutdown(async move { drop(heard.await) });
    let name = std::process::id().to_string();
    let part = settings.folder.join(format!("{name}.part"));
    std::fs::write(&part, address.to_string()).unwrap();
    std::fs::rename(part, settings.folder.join(name)).unwrap();
    tokio::spawn(async move {
        terminated.recv().await;
        // New requests are rejected during the drain, and the listener closes after it.
        executor.drain(settings.grace).await;
        drained.send(()).unwrap();
    });
    serving.await.unwrap();
}

//! A process of the service.
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use crate::example;
use crate::rest::client::{Answer, curl};

/// The service, not started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BINARY.get_or_init(|| example::binary("shop")));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("RUST_BACKTRACE", "0");
    command
}

/// The service, listening. Ends with its value.
pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
}

/// The end of a service.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The output after the service was ready.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Service {
    /// On the memory store.
    pub(crate) fn start() -> Self {
        Self::with(&["--store", "memory"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = command(&arguments).spawn().unwrap();
        let (mut stdout, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        stdout.read_line(&mut line).unwrap();
        let Some(url) = line.trim_end().strip_prefix("listening on ").map(str::to_owned) else {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("not ready: {line}{stderr}");
        };
        Self { child, stdout, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// A JSON body with POST.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, headers: &[&str], body: &str) -> Answer {
        curl(&self.post_arguments(path, headers, body))
    }

    pub(crate) fn post_arguments(&self, path: &str, headers: &[&str], body: &str) -> Vec<String> {
        let mut arguments = vec![format!("{}{path}", self.url), "--data-binary".to_owned(), body.to_owned()];
        for header in [&["Content-Type: application/json"], headers].concat() {
            arguments.extend(["--header".to_owned(), header.to_owned()]);
        }
        arguments
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        curl(&[format!("{}{path}", self.url)])
    }

    /// Returns the number of handler runs.
    #[track_caller]
    pub(crate) fn executions(&self, sku: &str) -> u64 {
        self.get(&format!("/executions?sku={sku}")).json()["count"].as_u64().unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// SIGKILL, to this process alone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn ended(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ended { status: self.child.wait().unwrap(), stdout, stderr }
    }

    /// SIGTERM.
    pub(crate) fn terminate(self) -> Ended {
        self.signal("TERM");
        self.ended()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A Prometheus that scrapes the metrics of a test.
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::daemon::{Daemon, Kind, Place};
use super::{missing, or_panic, unpacked, until};

/// The environment variable that names the folder of `prometheus` and `promtool`. Without the variable, it is the folder into
/// which `cargo xtask setup` unpacks both.
pub const PROMETHEUS_BIN: &str = "IDEMPOTENT_PROMETHEUS_BIN";

/// A private Prometheus that scrapes one target five times a second and evaluates rules as often. Dropping the value stops the
/// process and removes its folder.
pub type PrometheusServer = Daemon<Scraper>;

/// The settings of a server.
#[derive(Debug)]
pub struct Scraper {
    target: String,
    rules: String,
}

impl Daemon<Scraper> {
    /// Starts a server that scrapes `http://TARGET/metrics` as the job `test`, with these rules.
    ///
    /// # Panics
    /// If the server cannot start, e.g. because of an invalid rule.
    #[must_use]
    pub fn start(target: &str, rules: &str) -> Self {
        or_panic(Self::of(Scraper { target: target.to_owned(), rules: rules.to_owned() }, "prometheus"))
    }

    /// Evaluates a query, and returns the series of its result.
    ///
    /// # Panics
    /// If the server does not answer, or the query is invalid.
    #[must_use]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let answer = get(&self.address(), &path).ok_or_else(|| "Prometheus does not answer".to_owned());
        let answer: Value = or_panic(serde_json::from_str(&or_panic(answer)).map_err(|e| e.to_string()));
        match &answer["data"]["result"] {
            Value::Array(series) => series.clone(),
            _ => or_panic(Err(format!("{query}: {answer}"))),
        }
    }

    /// Waits until the query has a result, and returns its first series.
    ///
    /// # Panics
    /// If the query has no result within 3 minutes.
    #[must_use]
    pub fn wait_for(&self, query: &str) -> Value {
        let mut found = None;
        or_panic(until(&format!("a result of {query}"), || {
            found = self.query(query).into_iter().next();
            found.is_some()
        }));
        found.unwrap_or_default()
    }

    /// Runs `promtool` in this folder, with this text as its input. Returns the output, as an error if the tool failed.
    ///
    /// # Errors
    /// The tool has found an error.
    ///
    /// # Panics
    /// If the tool cannot be started.
    pub fn promtool(folder: &Path, arguments: &[&str], input: &str) -> Result<String, String> {
        let (program, file) = (bin("promtool"), or_panic(tempfile::NamedTempFile::new().map_err(|e| e.to_string())));
        or_panic(fs::write(file.path(), input).map_err(|e| e.to_string()));
        let input = or_panic(fs::File::open(file.path()).map_err(|e| e.to_string()));
        let output = Command::new(&program).args(arguments).current_dir(folder).stdin(input).output();
        let output = or_panic(output.map_err(|e| missing(&program.to_string_lossy(), &e)));
        let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        if output.status.success() { Ok(text) } else { Err(text) }
    }
}

impl Kind for Scraper {
    const NAME: &'static str = "Prometheus";
    const USERS: [&'static str; 2] = ["root", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "PROM";
    const TAKEN: &'static str = "address already in use";

    fn init(&self, place: &Place) -> Result<(), String> {
        let target = &self.target;
        let settings = format!(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\nrule_files: [rules.yaml]\n\
             scrape_configs:\n  - job_name: test\n    static_configs:\n      - targets: ['{target}']\n"
        );
        let files = [("prometheus.yaml", &settings), ("rules.yaml", &self.rules)];
        files
            .into_iter()
            .try_for_each(|(name, text)| fs::write(place.folder.file(name), text).map_err(|e| e.to_string()))
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>(bin("prometheus"));
        command.args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command
    }

    fn greets(port: u16) -> bool {
        get(&format!("127.0.0.1:{port}"), "/-/ready").is_some()
    }
}

/// Returns the path of a program of Prometheus.
fn bin(program: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(PROMETHEUS_BIN) {
        return Path::new(&folder).join(program);
    }
    unpacked("prometheus/usr/bin").join(program)
}

/// Returns the body of an answer with status 200.
fn get(address: &str, path: &str) -> Option<String> {
    let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    // HTTP 1.0: the body ends with the connection.
    write!(connection, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200")?;
    Some(body.to_owned())
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

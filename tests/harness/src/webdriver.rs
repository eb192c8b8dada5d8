//! A browser for tests of pages: Chromium, driven by the W3C WebDriver protocol.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test ends if its browser fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A Chromium without a window, and its driver. Dropping the value ends both.
#[derive(Debug)]
pub struct WebDriver {
    driver: Child,
    /// Read no more, and open, so that the driver can go on writing.
    _stdout: BufReader<ChildStdout>,
    address: String,
    session: String,
    /// The browser's folder.
    _profile: tempfile::TempDir,
}

/// The name of an element's id in the JSON of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Flags that block all addresses except the page's, and disable updates, accounts and the screen. The browser loads a
/// page again when it goes back, which is the harder case.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=BackForwardCache",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
];

/// The number of attempts to start a driver. With port 0, chromedriver takes a free port of IPv6, and ends if IPv4 has another
/// user of this port.
const DRIVER_STARTS: usize = 5;

/// Starts chromedriver. Returns the process, its output and its port.
fn start_driver() -> (Child, BufReader<ChildStdout>, u16) {
    let mut told = String::new();
    for _ in 0..DRIVER_STARTS {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().unwrap_or_else(|error| {
            panic!("`chromedriver`: {error}: `cargo xtask setup --browser` installs Chromium and its driver")
        });
        let mut stdout = BufReader::new(driver.stdout.take().unwrap());
        told.clear();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                break;
            }
            if let Some((_, port)) = line.trim_end().trim_end_matches('.').rsplit_once(" on port ")
                && let Ok(port) = port.parse()
                && port > 0
            {
                return (driver, stdout, port);
            }
            told += &line;
        }
        driver.wait().unwrap();
    }
    panic!("chromedriver did not start in {DRIVER_STARTS} attempts: {told}");
}

impl WebDriver {
    /// Starts a browser.
    ///
    /// # Panics
    /// If chromedriver or Chromium is missing.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a browser with more flags, such as `--window-size=320,700`.
    ///
    /// # Panics
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with(more: &[&str]) -> Self {
        let (driver, stdout, port) = start_driver();
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let mut started = Self {
            driver,
            _stdout: stdout,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            _profile: profile,
        };
        let flags = [&FLAGS[..], &[&folder], more].concat();
        let options = json!({ "args": flags });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let session = started.send("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        started.session = session["sessionId"].as_str().unwrap().to_owned();
        started
    }

    /// Sends a command of the session, and returns its value.
    pub fn post(&self, command: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{command}", self.session), body)
    }

    /// Reads a value of the session.
    pub fn get(&self, command: &str) -> Value {
        self.send("GET", &format!("/session/{}/{command}", self.session), &Value::Null)
    }

    /// Returns the first element of a CSS selector.
    pub fn element(&self, selector: &str) -> Element<'_> {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }));
        Element { driver: self, id: found[ELEMENT].as_str().unwrap().to_owned() }
    }

    /// Returns the visible text of the first element of a CSS selector, or `None` while a navigation replaces the page.
    #[must_use]
    pub fn try_text(&self, selector: &str) -> Option<String> {
        let session = format!("/session/{}", self.session);
        let body = json!({ "using": "css selector", "value": selector });
        let (status, found) = self.exchange("POST", &format!("{session}/element"), &body).ok()?;
        let id = found["value"][ELEMENT].as_str().filter(|_| status == 200)?;
        let (status, text) = self.exchange("GET", &format!("{session}/element/{id}/text"), &Value::Null).ok()?;
        text["value"].as_str().filter(|_| status == 200).map(str::to_owned)
    }

    /// Executes the body of a function in the page, and returns its result.
    pub fn script(&self, body: &str) -> Value {
        self.post("execute/sync", &json!({ "script": body, "args": [] }))
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, told) = self.exchange(method, path, body).unwrap_or_else(|error| panic!("chromedriver: {error}"));
        assert_eq!(status, 200, "{method} {path}: {told}");
        told["value"].clone()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = TcpStream::connect(&self.address)?;
        connection.set_read_timeout(Some(Duration::from_secs(120)))?;
        let (host, length) = (&self.address, body.len());
        let head = "Content-Type: application/json; charset=utf-8\r\nConnection: close";
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{head}\r\nContent-Length: {length}\r\n\r\n");
        connection.write_all((request + &body).as_bytes())?;
        let mut answer = BufReader::new(connection);
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.split(' ').next().and_then(|status| status.parse().ok()).unwrap_or_default();
            } else if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok((status, serde_json::from_slice(&body)?))
    }
}

/// The browser first, which the driver ends; then the driver.
impl Drop for WebDriver {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// An element of the page.
#[derive(Debug)]
pub struct Element<'a> {
    driver: &'a WebDriver,
    id: String,
}

impl Element<'_> {
    /// Returns a value of the element, such as `text` or `attribute/href`.
    pub fn get(&self, what: &str) -> String {
        self.driver.get(&format!("element/{}/{what}", self.id)).as_str().unwrap_or_default().to_owned()
    }

    /// Returns the visible text.
    pub fn text(&self) -> String {
        self.get("text")
    }

    /// Returns a picture of the element as PNG.
    pub fn picture(&self) -> Vec<u8> {
        BASE64_STANDARD.decode(self.get("screenshot")).unwrap()
    }

    /// Clears the field, and types this text.
    pub fn fill(&self, text: &str) {
        self.driver.post(&format!("element/{}/clear", self.id), &json!({}));
        self.type_in(text);
    }

    /// Types this text.
    pub fn type_in(&self, text: &str) {
        self.driver.post(&format!("element/{}/value", self.id), &json!({ "text": text }));
    }

    /// Scrolls to the element, and clicks in its middle.
    pub fn press(&self) {
        self.driver.post(&format!("element/{}/click", self.id), &json!({}));
    }

    /// Moves the mouse to the element, and clicks this number of times.
    pub fn click(&self, times: usize) {
        let origin = json!({ ELEMENT: &self.id });
        let there = json!({ "type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin });
        let (down, up) = (json!({ "type": "pointerDown", "button": 0 }), json!({ "type": "pointerUp", "button": 0 }));
        let clicks = (0..times).flat_map(|_| [down.clone(), up.clone()]);
        let actions: Vec<Value> = std::iter::once(there).chain(clicks).collect();
        let mouse =
            json!({ "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": actions });
        self.driver.post("actions", &json!({ "actions": [mouse] }));
    }
}

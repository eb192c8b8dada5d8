//! A browser that is driven by W3C WebDriver. The program `curl` sends the commands.
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

type Answer = Result<Value, Box<dyn Error>>;

/// The name of an element's id in the JSON of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Flags that block all addresses except the page's, and disable updates, accounts and the screen. The scale factor enlarges
/// the text of the page.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1.25",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
];

/// A process that ends with the value.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Open, so that the process can continue to write.
    _stdout: BufReader<ChildStdout>,
    /// The address that the process printed.
    pub(super) address: String,
}

impl Process {
    /// Starts a program, and waits until a line of its output contains the address.
    ///
    /// # Errors
    /// The program cannot be started, or ends before that line.
    pub(super) fn start(
        command: &mut Command,
        address: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Box<dyn Error>> {
        let name = command.get_program().to_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", name.display()))?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 {
                child.wait()?;
                return Err(format!("{} ended before it was ready", name.display()).into());
            }
            if let Some(address) = address(line.trim_end()) {
                return Ok(Self { child, _stdout: stdout, address });
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A headless Chromium. The browser and its folder are removed with the value.
#[derive(Debug)]
pub(super) struct Browser {
    driver: Process,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// Starts Chromium with a new profile in the folder.
    ///
    /// # Errors
    /// Chromium or its driver cannot be started.
    pub(super) fn start(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let profile = folder.join(format!("profile-{}", std::process::id()));
        fs::create_dir_all(&profile)?;
        let driver = Process::start(Command::new("chromedriver").arg("--port=0").stderr(Stdio::null()), |line| {
            let (_, port) = line.trim_end_matches('.').rsplit_once(" on port ")?;
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some(format!("http://127.0.0.1:{port}"))
        })?;
        let mut browser = Self { driver, session: String::new(), profile };
        let profile = format!("--user-data-dir={}", browser.profile.display());
        let flags = [&FLAGS[..], &[&profile]].concat();
        let options = json!({ "args": flags });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.send("POST", "/session", Some(&wanted))?;
        browser.session = session["sessionId"].as_str().ok_or("chromedriver: no session")?.to_owned();
        Ok(browser)
    }

    pub(super) fn post(&self, command: &str, body: &Value) -> Answer {
        self.send("POST", &format!("/session/{}/{command}", self.session), Some(body))
    }

    /// Runs the body of a function in the page, and returns its result.
    pub(super) fn script(&self, body: &str) -> Answer {
        self.post("execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Clicks an element with the mouse, several times in quick succession.
    pub(super) fn click(&self, selector: &str, times: usize) -> Result<(), Box<dyn Error>> {
        let origin = json!({ ELEMENT: self.element(selector)? });
        let there = json!({ "type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin });
        let click = [json!({ "type": "pointerDown", "button": 0 }), json!({ "type": "pointerUp", "button": 0 })];
        let actions: Vec<_> = std::iter::once(there).chain(std::iter::repeat_n(click, times).flatten()).collect();
        self.post("actions", &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": actions }] }))?;
        Ok(())
    }

    /// Returns a picture of an element as PNG.
    pub(super) fn picture(&self, selector: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let path = format!("/session/{}/element/{}/screenshot", self.session, self.element(selector)?);
        let picture = self.send("GET", &path, None)?;
        let text = picture.as_str().ok_or("chromedriver: no picture")?;
        Ok(BASE64_STANDARD.decode(text).map_err(|e| format!("chromedriver: the picture is not Base64: {e}"))?)
    }

    /// Returns the id of the element that a CSS selector matches.
    fn element(&self, selector: &str) -> Result<String, Box<dyn Error>> {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }))?;
        Ok(found[ELEMENT].as_str().ok_or("chromedriver: no element")?.to_owned())
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--request", method]);
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let output = curl.arg(format!("{}{path}", self.driver.address)).output()?;
        if !output.status.success() {
            return Err(format!("chromedriver: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let mut answer: Value = serde_json::from_slice(&output.stdout)?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("chromedriver: {path}: {error}: {}", answer["value"]["message"]).into()),
            None => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.send("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ = fs::remove_dir_all(&self.profile);
    }
}

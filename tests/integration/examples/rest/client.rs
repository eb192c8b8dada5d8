//! `curl`, and what it is answered.
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In their order, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A request on its way.
pub(crate) struct Asking(Child);

/// Asks, and waits for the answer.
#[track_caller]
pub(crate) fn curl(arguments: &[String]) -> Answer {
    ask(arguments).answer()
}

/// Asks.
#[track_caller]
pub(crate) fn ask(arguments: &[String]) -> Asking {
    let mut command = Command::new("curl");
    // `Expect` would make two answers of one.
    command.args(["--silent", "--show-error", "--include", "--max-time", "120", "--header", "Expect:"]);
    // Requests to the service go to the service, whatever the environment says.
    command.args(["--noproxy", "*"]).args(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Asking(child.unwrap_or_else(|error| panic!("`curl`: {error}: `cargo xtask setup` installs what the tests need")))
}

impl Asking {
    #[track_caller]
    pub(crate) fn answer(self) -> Answer {
        self.try_answer().unwrap_or_else(|error| panic!("{error}"))
    }

    /// # Errors
    /// What `curl` said where nothing came back.
    pub(crate) fn try_answer(self) -> Result<Answer, String> {
        let output = self.0.wait_with_output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let end = output.stdout.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let head = std::str::from_utf8(&output.stdout[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Ok(Answer { status, headers: lines.map(header).collect(), body: output.stdout[end + 4..].to_vec() })
    }

    /// The client goes away.
    pub(crate) fn leave(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn order_id(&self) -> String {
        assert!(matches!(self.status, 200 | 201), "{self:?}");
        self.json()["order_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Answered by the handler, just now.
    #[track_caller]
    pub(crate) fn ran(self) -> Self {
        assert!(matches!(self.status, 200 | 201) && !self.is_replay(), "{self:?}");
        self
    }

    /// Checks that the response equals `other` and is marked as a replay, without date and cookies.
    #[track_caller]
    pub(crate) fn replays(&self, other: &Self) {
        assert!(self.is_replay() && !other.is_replay(), "{self:?}");
        assert_eq!(self.kept(), other.kept());
    }

    /// Returns the response without the fields that differ each time.
    fn kept(&self) -> Self {
        let mut kept = self.clone();
        kept.headers.retain(|(name, _)| !["date", "set-cookie", "idempotent-replayed"].contains(&name.as_str()));
        kept
    }

    /// A problem as RFC 9457 has it, with this status and code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()), "{problem}");
        for member in ["type", "title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "no {member} in {problem}");
        }
        assert!(problem["type"].as_str().unwrap().ends_with(code) && problem["retryable"].is_boolean(), "{problem}");
        problem
    }

    /// Whole seconds, one at least.
    #[track_caller]
    pub(crate) fn retry_after(&self) -> u64 {
        let after = self.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {self:?}")).parse().unwrap();
        assert!(after >= 1);
        after
    }
}

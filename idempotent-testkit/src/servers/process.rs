//! A process that ends with its value, or at the latest with the process that started it.
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{LOOK, missing, until};

/// How long it may take to end in good order.
const ORDERLY: Duration = Duration::from_secs(2);

/// It waits for its stdin to end. A line before that says: no longer needed.
const WATCHDOG: &str = r#"read -r _ || { kill -KILL "$1"; rm -rf -- "$2"; }"#;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// stdout and stderr go to the end of `log`. Where the test's process is gone, so is this one, and `folder`.
    ///
    /// # Errors
    /// Where it or its watchdog cannot be started.
    pub(super) fn start(mut command: Command, folder: &Path, log: &Path) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let out = fs::OpenOptions::new().create(true).append(true).open(log).map_err(|e| e.to_string())?;
        let err = out.try_clone().map_err(|e| e.to_string())?;
        // In groups of their own: what ends the test's group must not end the watchdog before its time.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let mut child = command.spawn().map_err(|e| missing(&program, &e))?;
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "sh", &child.id().to_string()]).arg(folder).process_group(0);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match watchdog.spawn() {
            Ok(watchdog) => Ok(Self { child, watchdog, ended: None }),
            Err(e) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(missing("sh", &e))
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_some() {
                self.dismiss();
            }
        }
        self.ended
    }

    /// SIGSTOP; it has stopped when this returns.
    ///
    /// # Errors
    /// Where it has not stopped.
    pub(super) fn pause(&mut self) -> Result<(), String> {
        self.signal("STOP");
        let pid = self.pid();
        until("stopped", || state(pid) == Some('T'))
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// Where it stays stopped.
    pub(super) fn resume(&mut self) -> Result<(), String> {
        self.signal("CONT");
        let pid = self.pid();
        until("resumed", || state(pid) != Some('T'))
    }

    /// SIGKILL; it is gone when this returns.
    pub(super) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
        self.dismiss();
    }

    /// SIGTERM, and SIGKILL where it does not help; it is gone when this returns.
    pub(super) fn stop(&mut self) {
        self.signal("TERM");
        self.signal("CONT");
        let start = Instant::now();
        while self.ended().is_none() && start.elapsed() < ORDERLY {
            std::thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Only as long as the process has not been waited for, so that the number cannot be another's by now. By the
    /// shell, whose `kill` is everywhere: the standard library has SIGKILL only.
    fn signal(&mut self, signal: &str) {
        if self.ended().is_none() {
            let pid = self.pid().to_string();
            let _ = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "sh", signal, &pid]).status();
        }
    }

    fn dismiss(&mut self) {
        if let Some(mut stdin) = self.watchdog.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.watchdog.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The letter behind the program's name, which may itself contain brackets.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

//! The command line.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use idempotent::{OnInFlight, Policy};

/// An order service that receives repeated requests.
#[derive(Debug, Parser)]
#[command(
    name = "shop",
    after_help = "\
Prints `listening on http://…` when it is ready. SIGTERM and Ctrl-C stop it: running requests have 30 s to complete.

Exit codes: 0 stopped by a signal; 2 failed to start, or stopped by a second signal before all runs completed"
)]
pub(crate) struct Args {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// Record store: `memory`, an SQLite file, or redis://HOST:PORT, redis+sentinel://HOST,HOST/PRIMARY,
    /// redis+cluster://HOST,HOST [default: target/shop/store.db]
    #[arg(long, value_name = "memory|PATH|URL")]
    store: Option<String>,

    /// Lease: how long a run holds its key without a renewal [default: 30s, or half of --ttl if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,

    /// The time after completion in which an equal request to /param is a duplicate
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) param_window: Duration,

    /// The retention of responses
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = humantime::parse_duration)]
    ttl: Duration,

    /// The time that a duplicate of a running request waits for its response [default: 409 at once]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

impl Args {
    /// Returns the policy of all routes, for layers and annotated handlers alike.
    pub(crate) fn policy(&self) -> Policy {
        // The retention of a response must exceed the lease of its run.
        let lease = self.lease.unwrap_or(Duration::from_secs(30).min(self.ttl / 2));
        let policy = Policy::new().lease(lease).retain(self.ttl);
        match self.wait {
            Some(most) => policy.on_in_flight(OnInFlight::Wait(most)),
            None => policy,
        }
    }

    /// Returns the URL of the store.
    pub(crate) fn store(&self) -> anyhow::Result<String> {
        match self.store.as_deref() {
            None => {
                let folder = home().join("target/shop");
                fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
                Ok(format!("sqlite://{}", folder.join("store.db").display()))
            }
            Some("memory") => Ok("memory:".to_owned()),
            Some("") => bail!("--store is empty: set `memory`, a path or a URL"),
            Some(url) if is_url(url) => Ok(url.to_owned()),
            Some(path) => Ok(format!("sqlite://{path}")),
        }
    }
}

/// Returns the directory of the checkout, independent of the working directory.
fn home() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(""));
    if checkout.is_dir() { checkout.to_owned() } else { PathBuf::new() }
}

/// Returns whether the text has a URL scheme. A single letter is the drive of a Windows path.
fn is_url(store: &str) -> bool {
    store.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

//! The command line.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use idempotent::{OnInFlight, Policy};

/// An order service that may be asked twice.
#[derive(Debug, Parser)]
#[command(
    name = "rest_axum",
    after_help = "\
Prints `listening on http://…` when it is ready. SIGTERM and Ctrl-C end it: no connection is accepted, what runs has 30 s.

Exit codes: 0 ended when told to; 2 it cannot start, or was told twice and left what ran"
)]
pub(crate) struct Args {
    /// Where to listen; port 0 picks one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// Where keys are remembered: `memory`, an SQLite file, or redis://HOST:PORT, redis+sentinel://HOST,HOST/PRIMARY,
    /// redis+cluster://HOST,HOST [default: target/rest_axum/store.db]
    #[arg(long, value_name = "memory|PATH|URL")]
    store: Option<String>,

    /// How long a run that stopped renewing holds its key [default: 30s, or half of --ttl if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,

    /// How long after its end an equal request to /param is a duplicate
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) param_window: Duration,

    /// How long answers are kept
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = humantime::parse_duration)]
    ttl: Duration,

    /// A duplicate waits this long for the answer to what is running [default: 409 at once]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

impl Args {
    /// For all routes, layers and annotated handlers alike.
    pub(crate) fn policy(&self) -> Policy {
        // An answer has to be kept for longer than its run may hold the key.
        let lease = self.lease.unwrap_or(Duration::from_secs(30).min(self.ttl / 2));
        let policy = Policy::new().lease(lease).retain(self.ttl);
        match self.wait {
            Some(most) => policy.on_in_flight(OnInFlight::Wait(most)),
            None => policy,
        }
    }

    /// The store's URL.
    pub(crate) fn store(&self) -> anyhow::Result<String> {
        match self.store.as_deref() {
            None => {
                let folder = home().join("target/rest_axum");
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                Ok(format!("sqlite://{}", folder.join("store.db").display()))
            }
            Some("memory") => Ok("memory:".to_owned()),
            Some("") => bail!("--store is empty: give `memory`, a path or a URL"),
            Some(url) if is_url(url) => Ok(url.to_owned()),
            Some(path) => Ok(format!("sqlite://{path}")),
        }
    }
}

/// Returns the checkout's folder, also when started from another one.
fn home() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(""));
    if checkout.is_dir() { checkout.to_owned() } else { PathBuf::new() }
}

/// Longer than a drive's letter, and of a scheme's characters.
fn is_url(store: &str) -> bool {
    store.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

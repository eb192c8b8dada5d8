//! The store of the records, and the line to it.
use std::path::Path;
use std::time::Duration;

use idempotent_harness::proxy::{Fault, Proxy};

use crate::args::Topology;
use crate::plan::Harm;
use crate::target::{Done, Target};

pub(super) struct Store {
    /// The proxy, or `None` for a store without a server.
    line: Option<Proxy>,
    pub(super) target: Target,
}

/// In this time some call is made.
const SOON: Duration = Duration::from_millis(50);

impl Store {
    pub(super) async fn start(topology: &Topology, folder: &Path) -> anyhow::Result<Self> {
        let target = Target::start(topology, folder)?;
        let line = match target.address() {
            Some(address) => Some(Proxy::start(&address).await),
            None => None,
        };
        Ok(Self { line, target })
    }

    /// Returns the URL for workers.
    pub(super) fn url(&self) -> String {
        self.line.as_ref().map_or_else(|| self.target.url(), Proxy::url)
    }

    /// Does it, and waits until it is done. Blocks.
    pub(super) fn suffer(&self, harm: Harm) -> anyhow::Result<Done> {
        match (&self.line, harm) {
            (Some(line), Harm::Cut) => {
                // The next call is executed, and its response is lost. Then all other connections are closed.
                line.fail_next(Fault::CutAfterApply);
                std::thread::sleep(SOON);
                line.disarm();
                line.cut_all();
                Ok(Done::new(harm))
            }
            _ => self.target.suffer(harm),
        }
    }
}

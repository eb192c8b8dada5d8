//! The store under test, and what its servers can be made to do.
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use idempotent::Store;
use idempotent_testkit::history::{Kind, Label, Line};

use crate::args::Topology;
use crate::plan::{Faults, Harm};

/// Opens what a URL names.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    idempotent::connect(url).await.with_context(|| format!("the store {url} cannot be opened"))
}

/// What was done to the store.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) harm: Harm,
    /// Records that were rolled back by it, and by when.
    pub(crate) lost: Vec<String>,
    at: u64,
}

impl Done {
    pub(crate) fn lost_line(&self, key: &str, worker: Label) -> Line {
        Line { key: Some(key.to_owned()), ..Line::new(self.at, worker, Kind::RecordLost) }
    }
}

/// Servers of our own, or somebody else's.
#[derive(Debug)]
pub(crate) enum Target {
    /// A file, or a server that is not ours to harm.
    Outside(String),
}

impl Target {
    pub(crate) fn start(topology: &Topology, folder: &Path) -> anyhow::Result<Self> {
        Ok(match topology {
            Topology::Outside(url) => Self::Outside(url.clone()),
            Topology::File => Self::Outside(format!("sqlite:{}", folder.join("store.db").display())),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Outside(url) => url.clone(),
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        match self {
            Self::Outside(_) => Faults::default(),
        }
    }

    /// Does it, and waits until it is done.
    pub(crate) fn suffer(&self, harm: Harm) -> anyhow::Result<Done> {
        match self {
            Self::Outside(_) => anyhow::bail!("{harm:?} is not for a store that is not ours"),
        }
    }
}

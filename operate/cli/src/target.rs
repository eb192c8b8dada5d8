//! The store that a command works on.
use std::fs;
use std::sync::Arc;

use anyhow::Context;
use idempotent::Store;

use crate::arguments::GlobalOptions;
use crate::exit::Failure;

/// An open store.
pub(crate) struct Target {
    pub(crate) store: Arc<dyn Store>,
    /// The URL without passwords.
    pub(crate) name: String,
}

/// Opens the store of `--store`. Creates neither a file nor a table.
pub(crate) async fn open(options: &GlobalOptions) -> anyhow::Result<Target> {
    let url = url(options)?;
    if url.split(':').next() == Some("memory") {
        let why = "a memory store belongs to its process, so another process cannot read it";
        return Err(Failure::Usage(why.into()).into());
    }
    let request = idempotent::connect(url).create(false);
    let name = request.to_string();
    Ok(Target { store: request.await?, name })
}

/// Returns the URL of the argument, of the environment or of the file that `@FILE` names.
fn url(options: &GlobalOptions) -> anyhow::Result<String> {
    let Some(url) = &options.store else {
        let why = "no store: set IDEMPOTENT_STORE, or pass --store URL, such as --store redis://localhost";
        return Err(Failure::Usage(why.into()).into());
    };
    let Some(path) = url.strip_prefix('@') else { return Ok(url.clone()) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the store's URL from `{path}`"))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(Failure::Usage(format!("the file `{path}` has no URL in its first line")).into());
    }
    Ok(line.to_owned())
}

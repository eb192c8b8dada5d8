//! The store that a command works on.
use std::fs;
use std::sync::Arc;

use anyhow::Context;
use idempotent::Store;

use crate::arguments::{Division, GlobalOptions, TableNames};
use crate::backend::Backend;
use crate::failure::Failure;

/// An open store.
pub(crate) struct Target {
    pub(crate) store: Arc<dyn Store>,
    /// The URL without passwords.
    pub(crate) name: String,
}

/// The purpose for which a store is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Read,
    Write,
    /// Write access that also applies the missing migrations.
    Migrate(Division),
}

/// Opens the store of `--store`. Only [`Access::Migrate`] creates a file or a table.
pub(crate) async fn open(options: &GlobalOptions, access: Access) -> anyhow::Result<Target> {
    let url = url(options)?;
    if url.split(':').next() == Some("memory") {
        let why = "a memory store belongs to its process, so another process cannot read it";
        return Err(Failure::Usage(why.into()).into());
    }
    check_names(&url, &options.names)?;
    let mut request = idempotent::connect(url)
        .create(matches!(access, Access::Migrate(_)))
        .read_only(matches!(access, Access::Read))
        .namespace(&options.namespace);
    if let Some(table) = &options.names.table {
        request = request.table(table);
    }
    if let Some(schema) = &options.names.schema {
        request = request.schema(schema);
    }
    if let Access::Migrate(Division { partitions: Some(partitions) }) = access {
        request = request.partitions(partitions);
    }
    let name = request.to_string();
    Ok(Target { store: request.await?, name })
}

/// Checks `--table` and `--schema` without asking the database.
fn check_names(url: &str, names: &TableNames) -> anyhow::Result<()> {
    // `connect` reports an unknown scheme.
    let Some(backend) = Backend::of(url).filter(|_| names.table.is_some() || names.schema.is_some()) else {
        return Ok(());
    };
    // The migrations of these names need no connection.
    let backend =
        if backend == Backend::Tiered { url.strip_prefix("tiered:").and_then(Backend::of) } else { Some(backend) };
    backend.map_or(Ok(()), |backend| backend.migrations(names, Division::default()).map(|_| ()))
}

/// Returns the backend of `--store`.
pub(crate) fn backend(options: &GlobalOptions) -> anyhow::Result<Backend> {
    let url = url(options)?;
    let unknown = || {
        format!("`{}` has no schema and no checks: expected a URL such as redis://localhost", idempotent::connect(&url))
    };
    Ok(Backend::of(&url).ok_or_else(|| Failure::Usage(unknown()))?)
}

/// Returns the URL of the argument, of the environment or of the file that `@FILE` names.
pub(crate) fn url(options: &GlobalOptions) -> anyhow::Result<String> {
    let missing = "no store: set IDEMPOTENT_STORE, or pass --store URL, such as --store redis://localhost";
    read_url(options.store.as_deref(), missing)
}

/// Returns a URL, or the first line of the file that `@FILE` names. `missing` is the error for no URL.
pub(crate) fn read_url(url: Option<&str>, missing: &str) -> anyhow::Result<String> {
    let url = url.ok_or_else(|| Failure::Usage(missing.into()))?;
    let Some(path) = url.strip_prefix('@') else { return Ok(url.to_owned()) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read a URL from `{path}`"))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(Failure::Usage(format!("the file `{path}` has no URL in its first line")).into());
    }
    Ok(line.to_owned())
}

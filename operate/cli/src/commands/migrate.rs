//! The command `migrate`: the schema of a database.
use std::io::{self, Write};

use super::{open_for_writing, within};
use crate::arguments::{Dialect, Division, Format, GlobalOptions, MigrateCommand};
use crate::backend::{Backend, Schema};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::target::{self, Access};

pub(super) async fn migrate(global: &GlobalOptions, command: &MigrateCommand) -> anyhow::Result<()> {
    match command {
        MigrateCommand::Status { division } => status(global, *division).await,
        MigrateCommand::Up { yes, division } => up(global, *yes, *division).await,
        MigrateCommand::Sql { from, dialect, division } => sql(global, *from, dialect.map(Into::into), *division),
    }
}

async fn schema(global: &GlobalOptions, division: Division) -> anyhow::Result<Schema> {
    let (backend, url) = (target::backend(global)?, target::url(global)?);
    within(Some(super::OPENING), backend.schema(&url, &global.names, division)).await
}

async fn status(global: &GlobalOptions, division: Division) -> anyhow::Result<()> {
    let schema = schema(global, division).await?;
    let Schema { table, found, known, pending, problem } = &schema;
    let mut out = io::stdout().lock();
    if output::format(global.output) == Format::Table {
        writeln!(out, "table `{table}`: version {found} of {known}")?;
        for step in pending {
            writeln!(out, "missing: {} {}", step.version, step.name)?;
        }
    } else {
        let pending: Vec<_> = pending.iter().map(|step| step.version).collect();
        let line = serde_json::json!({
            "table": table, "found": found, "known": known, "pending": pending, "problem": problem,
        });
        writeln!(out, "{line}")?;
    }
    match (problem, pending.is_empty()) {
        (Some(problem), _) => Err(Failure::Unfit(problem.clone()).into()),
        (None, false) => Err(Failure::Findings("migrations are missing; run `idempotent migrate up`").into()),
        (None, true) => Ok(()),
    }
}

/// Applies the missing migrations. A second process waits for the first one, and then finds nothing to do.
async fn up(global: &GlobalOptions, yes: bool, division: Division) -> anyhow::Result<()> {
    let schema = schema(global, division).await?;
    if let Some(problem) = schema.problem {
        return Err(Failure::Unfit(problem).into());
    }
    if schema.pending.is_empty() {
        output::note(format_args!("table `{}` has version {}: nothing to do", schema.table, schema.found));
        return Ok(());
    }
    for step in &schema.pending {
        output::note(format_args!("{} {}: {} statements", step.version, step.name, step.statements.len()));
    }
    if !yes && !global.read_only {
        confirm("These migrations change the database.").await?;
    }
    open_for_writing(global, Access::Migrate(division)).await?;
    output::note(format_args!("done: table `{}` has version {}", schema.table, schema.known));
    Ok(())
}

/// Prints the migrations after the version `from` as SQL text. Needs no connection.
fn sql(global: &GlobalOptions, from: u32, dialect: Option<Backend>, division: Division) -> anyhow::Result<()> {
    let backend = match dialect {
        Some(dialect) => dialect,
        None => target::backend(global)?,
    };
    let mut out = io::stdout().lock();
    for step in backend.migrations(&global.names, division)?.iter().filter(|step| step.version > from) {
        writeln!(out, "-- {} {}", step.version, step.name)?;
        for statement in &step.statements {
            writeln!(out, "{};", statement.trim_end_matches(';'))?;
        }
    }
    Ok(())
}

impl From<Dialect> for Backend {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Mysql => Self::MySql,
            Dialect::Postgres => Self::Postgres,
            Dialect::Sqlite => Self::Sqlite,
        }
    }
}

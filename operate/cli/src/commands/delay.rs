//! The command `delay status`.
use std::time::Duration;

use anyhow::Context;
use idempotent::__private::url::masked;

use super::{OPENING, within};
use crate::arguments::{DelayCommand, DelayOptions, GlobalOptions};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::output::{self, Count};
use crate::queue;
use crate::target::read_url;

const PLACES: &str = "redis+delay://HOST for a delay queue, or postgres://HOST/DATABASE, mysql://HOST/DATABASE or sqlite:PATH for \
                      a delay table";

pub(super) async fn run(global: &GlobalOptions, command: &DelayCommand) -> anyhow::Result<()> {
    let DelayCommand::Status(options) = command;
    let url =
        read_url(options.queue.as_deref(), &format!("no queue: set IDEMPOTENT_QUEUE, or pass --queue URL: {PLACES}"))?;
    let shown = masked(&url);
    let counted = within(Some(OPENING), count(global, options, &url)).await;
    let (counts, oldest) = counted.with_context(|| format!("{} on {shown}", options.name))?;
    Ok(output::counts(output::format(global.output), &counts, ("oldest_ready", oldest))?)
}

/// The counts with their names, and the age of the oldest ready message.
type Counted = ([(&'static str, Count); 4], Option<Duration>);

async fn count(global: &GlobalOptions, options: &DelayOptions, url: &str) -> anyhow::Result<Counted> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if queue::is_delay_queue(scheme) {
        return of_queue(global, options, url).await;
    }
    match Backend::of(url) {
        Some(Backend::Sqlite | Backend::Postgres | Backend::MySql) => of_table(options, url).await,
        _ => Err(Failure::Usage(format!("--queue `{}`: use {PLACES}", masked(url))).into()),
    }
}

#[cfg(feature = "delay")]
async fn of_queue(global: &GlobalOptions, options: &DelayOptions, url: &str) -> anyhow::Result<Counted> {
    let queue = queue::delay_queue(url, (&options.name, options.slots), &global.namespace).await?;
    let counts = queue.counts().await.map_err(queue::delay_error)?;
    let [ready, waiting] = [("ready", counts.ready.into()), ("waiting", counts.waiting.into())];
    Ok(([ready, waiting, ("in_flight", counts.in_flight.into()), ("dead", counts.dead.into())], counts.oldest))
}

#[cfg(not(feature = "delay"))]
async fn of_queue(_: &GlobalOptions, _: &DelayOptions, _: &str) -> anyhow::Result<Counted> {
    let why = "this binary was built without delay queues; install it with the feature `delay`";
    Err(Failure::Usage(why.into()).into())
}

#[cfg(feature = "database")]
async fn of_table(options: &DelayOptions, url: &str) -> anyhow::Result<Counted> {
    use idempotent::delay::{DelayDb, DelayTable};
    use idempotent::sqlx::Pool;

    use crate::database::{self, Database};

    /// The largest number that is counted.
    const CAP: u32 = 10_000;

    async fn backlog<Db: DelayDb>(pool: Pool<Db>, name: &str) -> anyhow::Result<Counted> {
        let table = DelayTable::builder(pool).table(name).open().await?;
        let backlog = table.backlog(CAP).await.map_err(queue::delay_error)?;
        let [ready, waiting] = [("ready", backlog.ready.into()), ("waiting", backlog.waiting.into())];
        Ok(([ready, waiting, ("in_flight", backlog.in_flight.into()), ("dead", backlog.dead.into())], backlog.oldest))
    }
    database::check_table(&options.name)?;
    match database::connect(url).await? {
        #[cfg(feature = "mysql")]
        Database::MySql(pool) => backlog(pool, &options.name).await,
        #[cfg(feature = "postgres")]
        Database::Postgres(pool) => backlog(pool, &options.name).await,
        #[cfg(feature = "sqlite")]
        Database::Sqlite(pool) => backlog(pool, &options.name).await,
    }
}

#[cfg(not(feature = "database"))]
async fn of_table(_: &DelayOptions, _: &str) -> anyhow::Result<Counted> {
    let why = "this binary was built without databases; install it with `postgres`, `mysql` or `sqlite`";
    Err(Failure::Usage(why.into()).into())
}

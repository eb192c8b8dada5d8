//! The command `delay status`.
use anyhow::Context;
use idempotent::__private::url::masked;
use idempotent_operate::DelayAccess;

use super::{OPENING, within};
use crate::arguments::{DelayCommand, DelayOptions, GlobalOptions};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::output;
use crate::queue;
use crate::target::read_url;

const PLACES: &str = "redis+delay://HOST for a delay queue, or postgres://HOST/DATABASE, mysql://HOST/DATABASE or sqlite:PATH for \
                      a delay table";

pub(super) async fn run(global: &GlobalOptions, command: &DelayCommand) -> anyhow::Result<()> {
    let DelayCommand::Status(options) = command;
    let url = url(options)?;
    let shown = masked(&url);
    let depth = within(Some(OPENING), async {
        let access = open(global, options).await?;
        Ok(access.depth().await.map_err(queue::delay_error)?)
    });
    let depth = depth.await;
    let depth = depth.with_context(|| format!("{} on {shown}", options.name))?;
    let [ready, waiting] = [("ready", depth.ready), ("waiting", depth.waiting)];
    let counts = [ready, waiting, ("in_flight", depth.in_flight), ("dead", depth.dead)];
    Ok(output::counts(output::format(global.output), &counts, ("oldest_ready", depth.oldest_ready))?)
}

/// Opens the delay queue or the delay table of the options.
pub(super) async fn open(global: &GlobalOptions, options: &DelayOptions) -> anyhow::Result<Box<dyn DelayAccess>> {
    let url = url(options)?;
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if queue::is_delay_queue(scheme) {
        return of_queue(global, options, &url).await;
    }
    match Backend::of(&url) {
        Some(Backend::Sqlite | Backend::Postgres | Backend::MySql) => of_table(options, &url).await,
        _ => Err(Failure::Usage(format!("--queue `{}`: use {PLACES}", masked(&url))).into()),
    }
}

fn url(options: &DelayOptions) -> anyhow::Result<String> {
    let missing = format!("no queue: set IDEMPOTENT_QUEUE, or pass --queue URL: {PLACES}");
    read_url(options.queue.as_deref(), &missing)
}

#[cfg(feature = "delay")]
async fn of_queue(global: &GlobalOptions, options: &DelayOptions, url: &str) -> anyhow::Result<Box<dyn DelayAccess>> {
    Ok(Box::new(queue::delay_queue(url, (&options.name, options.slots), &global.namespace).await?))
}

#[cfg(not(feature = "delay"))]
async fn of_queue(_: &GlobalOptions, _: &DelayOptions, _: &str) -> anyhow::Result<Box<dyn DelayAccess>> {
    let why = "this binary was built without delay queues; install it with the feature `delay`";
    Err(Failure::Usage(why.into()).into())
}

#[cfg(feature = "database")]
async fn of_table(options: &DelayOptions, url: &str) -> anyhow::Result<Box<dyn DelayAccess>> {
    use idempotent::delay::{DelayDb, DelayTable};
    use idempotent::sqlx::Pool;

    use crate::database::{self, Database};

    async fn table<Db: DelayDb>(pool: Pool<Db>, name: &str) -> anyhow::Result<Box<dyn DelayAccess>> {
        Ok(Box::new(DelayTable::builder(pool).table(name).open().await?))
    }
    database::check_table(&options.name)?;
    match database::connect(url).await? {
        #[cfg(feature = "mysql")]
        Database::MySql(pool) => table(pool, &options.name).await,
        #[cfg(feature = "postgres")]
        Database::Postgres(pool) => table(pool, &options.name).await,
        #[cfg(feature = "sqlite")]
        Database::Sqlite(pool) => table(pool, &options.name).await,
    }
}

#[cfg(not(feature = "database"))]
async fn of_table(_: &DelayOptions, _: &str) -> anyhow::Result<Box<dyn DelayAccess>> {
    let why = "this binary was built without databases; install it with `postgres`, `mysql` or `sqlite`";
    Err(Failure::Usage(why.into()).into())
}

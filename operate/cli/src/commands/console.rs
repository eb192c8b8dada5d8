//! The command `console`: the web console for one store, and for queues, outboxes and delay queues.
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use idempotent_console::{Access, Console, ConsoleBuilder, Role, TokenList, User};
use tokio::net::TcpListener;

use super::{OPENING, delay, within};
use crate::arguments::{ConsoleArguments, DelayOptions, GlobalOptions, NamedUrl, QueueOptions};
use crate::failure::Failure;
use crate::target::{self, Access as StoreAccess, read_url};
use crate::{output, queue};

pub(super) async fn console(global: &GlobalOptions, arguments: &ConsoleArguments) -> anyhow::Result<()> {
    if arguments.allow_write && global.read_only {
        return Err(Failure::Refused("--read-only forbids --allow-write".into()).into());
    }
    let is_local = arguments.bind.ip().is_loopback();
    if !is_local && (arguments.tokens.is_none() || arguments.host.is_empty()) {
        let why = format!(
            "other machines reach --bind {}: pass --tokens FILE for the users and --host NAME for the name in their browsers",
            arguments.bind
        );
        return Err(Failure::Usage(why).into());
    }
    if global.store.is_none() && arguments.has_no_target() {
        let why = "nothing to show: pass --store, --queue, --outbox or --delay, or set IDEMPOTENT_STORE";
        return Err(Failure::Usage(why.into()).into());
    }
    let (access, login) = access(arguments)?;
    let unusable = |error| Failure::CannotListen(format!("cannot listen on {}: {error}", arguments.bind));
    let listener = TcpListener::bind(arguments.bind).await.map_err(unusable)?;
    let builder = Console::builder().access(access).read_only(!arguments.allow_write).secure_cookie(!is_local);
    let mut builder = targets(global, arguments, builder).await?;
    if let Some(path) = &arguments.audit {
        builder = builder.audit_file(path)?;
    }
    let address = listener.local_addr()?;
    let console = builder.hosts(hosts(address, &arguments.host)).build()?;
    let link = login.map(|token| format!("login?token={token}")).unwrap_or_default();
    writeln!(io::stdout(), "http://{address}/{link}")?;
    output::note(if link.is_empty() {
        "the console is running"
    } else {
        "the link is valid for one login within 10 minutes"
    });
    let service = console.router().into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// Returns the users, and the token of the link without a file of users.
fn access(arguments: &ConsoleArguments) -> anyhow::Result<(Access, Option<String>)> {
    let unusable = |error: idempotent_console::TokenError| Failure::Usage(error.to_string());
    if let Some(path) = &arguments.tokens {
        return Ok((Access::tokens(TokenList::open(path).map_err(unusable)?), None));
    }
    let name = std::env::var("IDEMPOTENT_BY").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "operator".into());
    let role = if arguments.allow_write { Role::Admin } else { Role::Viewer };
    let (tokens, token) = TokenList::one_time(User::new(name, role))?;
    Ok((Access::tokens(tokens), Some(token)))
}

/// Adds the targets of the arguments. Each is opened once, so that a wrong URL is an error of the start.
async fn targets(
    global: &GlobalOptions,
    arguments: &ConsoleArguments,
    mut builder: ConsoleBuilder,
) -> anyhow::Result<ConsoleBuilder> {
    let (queues, delays) = (all(&arguments.queue)?, all(&arguments.delay)?);
    #[cfg(feature = "database")]
    let outboxes = all(&arguments.outbox)?;
    let mut store = None;
    if global.store.is_some() {
        let access = if arguments.allow_write { StoreAccess::Write } else { StoreAccess::Read };
        let target = within(Some(OPENING), target::open(global, access)).await?;
        builder = builder.store(target.name, target.store.clone());
        store = Some(target.store);
    }
    for named in &queues {
        let (options, namespace) = (Arc::new(queue_options(named, arguments.slots)?), global.namespace.clone());
        within(Some(OPENING), queue::open(&options, &Default::default(), &namespace)).await?.letters.close().await;
        let open = move || {
            let (options, namespace) = (options.clone(), namespace.clone());
            async move { Ok::<_, anyhow::Error>(queue::open(&options, &Default::default(), &namespace).await?.letters) }
        };
        builder = match &store {
            Some(store) => builder.queue_with_store(&named.name, open, store.clone()),
            None => builder.queue(&named.name, open),
        };
    }
    #[cfg(feature = "database")]
    for named in &outboxes {
        let place = crate::arguments::OutboxOptions { outbox: Some(named.url.clone()), name: named.name.clone() };
        let target = within(Some(OPENING), crate::outbox::open(global, &place)).await?;
        builder = builder.outbox(&named.name, target.outbox.into());
    }
    for named in &delays {
        let options = DelayOptions { queue: Some(named.url.clone()), name: named.name.clone(), slots: arguments.slots };
        let access = within(Some(OPENING), delay::open(global, &options)).await?;
        builder = builder.delay(&named.name, access.into());
    }
    Ok(builder)
}

fn all(arguments: &[String]) -> Result<Vec<NamedUrl>, Failure> {
    arguments.iter().map(|argument| NamedUrl::parse(argument)).collect()
}

fn queue_options(named: &NamedUrl, slots: u16) -> anyhow::Result<QueueOptions> {
    let url = read_url(Some(&named.url), "no queue")?;
    // Only RocketMQ has groups: `TOPIC/GROUP`.
    let (name, group) = match named.name.split_once('/').filter(|_| url.starts_with("rocketmq")) {
        Some((topic, group)) => (topic.to_owned(), Some(group.to_owned())),
        None => (named.name.clone(), None),
    };
    Ok(QueueOptions {
        queue: Some(url),
        name,
        group,
        dead_stream: None,
        slots,
        assume_delivery_limit: idempotent_operate::DeliveryLimited::RABBITMQ,
    })
}

/// Returns the accepted values of `Host`.
fn hosts(address: SocketAddr, names: &[String]) -> Vec<String> {
    let port = address.port();
    let own = [address.to_string(), format!("localhost:{port}")].into_iter();
    own.chain(names.iter().flat_map(|name| [name.clone(), format!("{name}:{port}")])).collect()
}

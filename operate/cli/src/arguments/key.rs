//! The arguments that name one key or one stream.
use clap::{Args, Subcommand};
use idempotent_operate::{KeyAddress, KeyTenant};

/// The name of one key.
#[derive(Args, Debug)]
pub(crate) struct KeyArguments {
    /// The storage key, as logs and listings show it.
    #[arg(value_name = "KEY", required_unless_present = "part", conflicts_with = "part")]
    key: Option<String>,
    /// A part of the handler's key, for each part once. `-` reads the part from stdin.
    #[arg(long, requires = "scope", value_name = "TEXT")]
    part: Vec<String>,
    /// The handler's scope.
    #[arg(long, requires = "part", value_name = "NAME")]
    scope: Option<String>,
    /// The handler's scene: `mq`, `rest` or a custom one.
    #[arg(long, requires = "part", default_value_if("part", clap::builder::ArgPredicate::IsPresent, "mq"))]
    scene: Option<String>,
    /// A part of the tenant, for each part once.
    #[arg(long, requires = "part", value_name = "TEXT")]
    tenant: Vec<String>,
    /// The name of the HTTP or gRPC caller, which is the tenant of the key.
    #[arg(long, requires = "part", conflicts_with_all = ["tenant", "caller_anonymous"], value_name = "NAME")]
    caller: Option<String>,
    /// The tenant of the key is the anonymous caller.
    #[arg(long, requires = "part", conflicts_with = "tenant")]
    caller_anonymous: bool,
}

impl KeyArguments {
    /// Returns the address. Reads a part `-` from stdin.
    pub(crate) fn address(&self, namespace: &str) -> anyhow::Result<KeyAddress> {
        if let Some(key) = &self.key {
            return Ok(KeyAddress::Text(key.clone()));
        }
        let mut parts = self.part.clone();
        if let Some(place) = parts.iter_mut().find(|part| *part == "-") {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            *place = line.trim_end_matches(['\r', '\n']).to_owned();
        }
        let tenant = match &self.caller {
            Some(name) => KeyTenant::Caller(name.clone()),
            None if self.caller_anonymous => KeyTenant::AnonymousCaller,
            None if self.tenant.is_empty() => KeyTenant::None,
            None => KeyTenant::Parts(self.tenant.clone()),
        };
        Ok(KeyAddress::Parts {
            namespace: namespace.to_owned(),
            tenant,
            scene: self.scene.clone().unwrap_or_else(|| "mq".to_owned()),
            scope: self.scope.clone().unwrap_or_default(),
            parts,
        })
    }
}

/// The commands for streams of numbered calls.
#[derive(Debug, Subcommand)]
pub(crate) enum OrderCommand {
    /// Lists the streams in which a delivered number waits. Redis cannot list its streams.
    ///
    /// The store keeps a hash of each stream, so the list cannot show the key of a stream. The list shows the scope of the call
    /// that ran last, and the readable part of the call that blocks, if its policy stores one (`display_key`).
    /// A stream whose first number was never delivered has neither: its producer knows which streams it has registered.
    #[command(visible_alias = "ls", after_help = "Example:\n  idempotent order list --store postgres://localhost/shop")]
    List(OrderListArguments),
    /// Shows the order of one stream, and the state of the call that blocks it.
    #[command(
        after_help = "Example:\n  idempotent order show --scope points --part ann\n\nThe key is that of the stream, not that of a call."
    )]
    Show(KeyArguments),
}

#[derive(Args, Debug)]
pub(crate) struct OrderListArguments {
    /// Lists streams in which nothing waits, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// The largest number of streams to print.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: u32,
    /// The largest number of streams that the store examines.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) budget: u32,
}

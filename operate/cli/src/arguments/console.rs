//! The arguments of the web console.
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;

/// The address, the targets and the users of a console.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct ConsoleArguments {
    /// The address to listen on. An address that other machines reach needs --tokens, --host and a TLS proxy.
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    pub(crate) bind: SocketAddr,
    /// The users, one `NAME:ROLE:SHA256` per line: the role is viewer, operator or admin, and SHA256 the hash of the token. Without
    /// a file, the console prints a link that is valid for one login.
    #[arg(long, env = "IDEMPOTENT_CONSOLE_TOKENS", value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Offers the actions: forget, release, redrive, discard, resend and void.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// A host name that browsers use for the console, such as `console.example.com`. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// A queue with dead letters, such as `orders=amqp://localhost/shop`, or `orders=@FILE` with the URL in the first line of the
    /// file. Repeatable.
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) queue: Vec<String>,
    /// The table of an outbox, such as `outbox=postgres://localhost/shop`. Repeatable.
    #[cfg(feature = "database")]
    #[arg(long, value_name = "TABLE=URL")]
    pub(crate) outbox: Vec<String>,
    /// The topic of a delay queue or the name of a delay table, such as `timeouts=redis+delay://localhost`. Repeatable.
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) delay: Vec<String>,
    /// The number of slots of the delay queues, as their consumers set it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_024), value_name = "N")]
    pub(crate) slots: u16,
    /// A file for the audit log, one JSON object per line, which the console shows, too [default: the log on stderr].
    #[arg(long, env = "IDEMPOTENT_AUDIT", value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
}

impl ConsoleArguments {
    /// Returns whether no queue, outbox and delay queue is named.
    pub(crate) fn has_no_target(&self) -> bool {
        #[cfg(feature = "database")]
        let outboxes = self.outbox.len();
        #[cfg(not(feature = "database"))]
        let outboxes = 0;
        self.queue.len() + self.delay.len() + outboxes == 0
    }
}

const AFTER: &str = "\
Examples:
  idempotent console --store redis://localhost
  idempotent console --allow-write --audit audit.jsonl --queue orders=amqp://localhost/shop
  idempotent console --bind 0.0.0.0:7070 --tokens tokens --host console.example.com";

/// The name of a target and its URL.
#[derive(Clone, Debug)]
pub(crate) struct NamedUrl {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl NamedUrl {
    /// Parses an argument, which may contain a password. The parser of the command line would repeat the argument in its error.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once('=') {
            Some((name, url)) if !name.is_empty() && !url.is_empty() && !name.contains("://") => {
                Ok(Self { name: name.to_owned(), url: url.to_owned() })
            }
            _ => Err(Failure::Usage("a target is NAME=URL, such as orders=amqp://localhost/shop".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_precedes_the_url_which_may_contain_any_character() {
        let parsed = NamedUrl::parse("orders=amqp://localhost/shop?a=b").map(|named| (named.name, named.url));
        assert_eq!(parsed.ok(), Some(("orders".to_owned(), "amqp://localhost/shop?a=b".to_owned())));
        for bad in ["amqp://localhost/shop?a=b", "orders", "=amqp://localhost", "orders="] {
            assert!(NamedUrl::parse(bad).is_err(), "{bad}");
        }
    }
}

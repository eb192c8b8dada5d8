//! A primary, a replica, and three sentinels that watch them.
use super::builder::RedisBuilder;
use super::replicas::is_linked;
use super::single::RedisServer;
use super::{or_panic, until};

/// The name of the primary at the sentinels.
const MASTER: &str = "mymaster";

const SENTINELS: usize = 3;

/// A primary, a replica and three sentinels with a quorum of two. A primary that does not answer for a second is
/// replaced.
#[derive(Debug)]
pub struct RedisSentinels {
    sentinels: Vec<RedisServer>,
    replica: RedisServer,
    primary: RedisServer,
    password: String,
}

impl RedisSentinels {
    /// Starts the servers with the defaults of [`RedisBuilder`].
    ///
    /// # Panics
    /// Like [`RedisBuilder::start_sentinels`].
    #[must_use]
    pub fn start() -> Self {
        RedisServer::builder().start_sentinels()
    }

    pub(super) fn new(builder: &RedisBuilder) -> Result<Self, String> {
        let primary = RedisServer::new(builder.clone())?;
        let follow = ["--replicaof", "127.0.0.1", &primary.port().to_string()].map(str::to_owned);
        let replica = RedisServer::new(builder.clone().args(follow))?;
        let config = config(primary.port(), builder.secret());
        let sentinel = || RedisServer::builder().binary(builder.program()).config(config.clone());
        let sentinels: Result<Vec<_>, _> = (0..SENTINELS).map(|_| RedisServer::new(sentinel())).collect();
        let password = builder.secret().map(|password| format!(":{password}@")).unwrap_or_default();
        let group = Self { sentinels: sentinels?, replica, primary, password };
        until("the sentinels know of the replica and of each other", || {
            is_linked(&group.replica) && group.sentinels.iter().all(knows_all)
        })?;
        Ok(group)
    }

    /// Returns `redis+sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/mymaster`. A password applies to the
    /// servers; the sentinels have none.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(RedisServer::address).collect();
        format!("redis+sentinel://{}{}/{MASTER}", self.password, addresses.join(","))
    }

    /// Returns the name of the primary at the sentinels.
    pub fn master_name(&self) -> &str {
        MASTER
    }

    /// Returns the initial primary.
    pub fn primary(&self) -> &RedisServer {
        &self.primary
    }

    /// Returns the initial replica.
    pub fn replica(&self) -> &RedisServer {
        &self.replica
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the current primary, as reported by the first sentinel that answers.
    ///
    /// # Panics
    /// If no sentinel answers.
    pub fn current_primary(&self) -> &RedisServer {
        let named = self.sentinels.iter().find_map(named_by);
        let port = or_panic(named.ok_or_else(|| "no sentinel names a primary".to_owned()));
        if port == self.replica.port() { &self.replica } else { &self.primary }
    }

    /// Kills (SIGKILL) the current primary, and returns it. The sentinels notice within about a second, and replace it
    /// some seconds later.
    ///
    /// # Panics
    /// Like [`current_primary`](Self::current_primary).
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.current_primary();
        primary.kill();
        primary
    }

    /// Blocks until all sentinels that answer name another primary than `old`, and that server reports to be the
    /// primary. Returns the new primary.
    ///
    /// # Panics
    /// If this does not happen within three minutes.
    pub fn wait_for_failover(&self, old: &RedisServer) -> &RedisServer {
        let new = if old.port() == self.primary.port() { &self.replica } else { &self.primary };
        or_panic(until("a new primary", || {
            let mut named = self.sentinels.iter().filter_map(named_by).peekable();
            named.peek().is_some() && named.all(|port| port == new.port()) && is_primary(new)
        }));
        new
    }
}

fn config(primary: u16, password: Option<&str>) -> String {
    let password = password.map(|password| format!("sentinel auth-pass {MASTER} {password}\n")).unwrap_or_default();
    format!(
        "sentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {MASTER} 1000\n\
         sentinel failover-timeout {MASTER} 5000\n\
         sentinel parallel-syncs {MASTER} 1\n{password}"
    )
}

/// Returns the port of the primary that a sentinel names.
fn named_by(sentinel: &RedisServer) -> Option<u16> {
    let answer = sentinel.try_command(&["SENTINEL", "get-master-addr-by-name", MASTER]).ok()?;
    u16::try_from(answer.items().get(1)?.integer()?).ok()
}

fn knows_all(sentinel: &RedisServer) -> bool {
    let master = sentinel.command(&["SENTINEL", "master", MASTER]);
    let is = |name: &str, value: &str| {
        master.items().chunks(2).any(|pair| pair.iter().map(super::Value::text).eq([name, value]))
    };
    is("num-slaves", "1") && is("num-other-sentinels", &(SENTINELS - 1).to_string())
}

fn is_primary(server: &RedisServer) -> bool {
    let role = server.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.items().first().is_some_and(|role| role.text() == "master"))
}

//! The three processes, each over proxies of its own to private servers.
use std::time::{Duration, Instant};

use idempotent::Store;
use idempotent::store::{KeyFilter, PageLimits, StateKind};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{PostgresServer, RabbitServer, RedisServer};
use tokio::runtime::Runtime;

use super::orders::Clients;
use super::rights::{DATABASE, Rights};
use crate::example::{self, Running};

const APP: &str = "order_service";
/// The number of orders that clients place while a process starts.
const WAITING: u64 = 8;

/// A process of the application.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Serve,
    Relay,
    Work,
}

impl Role {
    pub(super) const ALL: [Self; 3] = [Self::Serve, Self::Relay, Self::Work];

    /// Returns the arguments that bound the time of a stop.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Serve => &["serve", "--grace", "30s"],
            Self::Relay => &["relay", "--lease", "20s"],
            Self::Work => &["work", "--grace", "10s", "--drain", "5s"],
        }
    }

    /// Returns the stop budget that `guides/shutting-down.md` derives from these arguments.
    fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Serve => 30 + 1,
            Self::Relay => 20 + 1,
            Self::Work => 10 + 2 + 5 + 1,
        })
    }
}

/// A process, and the proxies that count its requests.
struct Member {
    running: Option<Running>,
    proxies: Vec<Proxy>,
    urls: Vec<String>,
    /// The requests of earlier processes.
    before: u64,
}

impl Member {
    fn requests(&self) -> u64 {
        self.proxies.iter().map(|proxy| proxy.passed().requests).sum()
    }
}

/// The servers, the processes and the clients.
pub(super) struct Fleet {
    members: Vec<(Role, Member)>,
    clients: Clients,
    postgres: PostgresServer,
    redis: RedisServer,
    rabbit: RabbitServer,
    runtime: Runtime,
}

impl Fleet {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (postgres, redis, rabbit) = (PostgresServer::start(), RedisServer::start(), RabbitServer::start());
        let rights = Rights::of_the_sample();
        rights.apply(&postgres, &redis);
        let migrator = rights.migrator(&postgres);
        runtime.block_on(async { idempotent::connect(&migrator).create(true).await }).unwrap();
        example::run(APP, &["migrate", "--database", &migrator]);
        let (database, keys) = (rights.database(&postgres), rights.keys(&redis));
        let member = |role: Role| {
            let second = match role {
                Role::Serve => ("--keys", keys.clone(), redis.address()),
                Role::Relay | Role::Work => ("--broker", rabbit.url(), rabbit.address()),
            };
            let mut member = Member { running: None, proxies: Vec::new(), urls: Vec::new(), before: 0 };
            for (option, url, address) in [("--database", database.clone(), postgres.address()), second] {
                let proxy = runtime.block_on(Proxy::start(&address));
                let through = url.replace(&address, &proxy.address());
                assert_ne!(through, url, "{address} is no part of the URL");
                member.urls.extend([option.to_owned(), through]);
                member.proxies.push(proxy);
            }
            (role, member)
        };
        let members = Role::ALL.map(member).into();
        let mut fleet = Self { members, clients: Clients::start(), postgres, redis, rabbit, runtime };
        Role::ALL.into_iter().for_each(|role| fleet.restart(role));
        fleet
    }

    fn member(&mut self, role: Role) -> &mut Member {
        self.members.iter_mut().find(|(of, _)| *of == role).map(|(_, member)| member).unwrap()
    }

    /// Starts the process of a role.
    pub(super) fn restart(&mut self, role: Role) {
        // Orders wait for the process.
        self.clients.allow(WAITING);
        let member = self.member(role);
        member.before = member.requests();
        let urls = member.urls.iter().map(String::as_str);
        let arguments: Vec<&str> =
            role.arguments().iter().copied().chain(urls).chain(["--listen", "127.0.0.1:0"]).collect();
        let mut running = Running::start(APP, &arguments);
        if role == Role::Serve {
            let line = running.says(1).remove(0);
            self.clients.use_address(line.strip_prefix("listening on http://").unwrap());
        }
        self.member(role).running = Some(running);
    }

    /// Stops the process of a role once it has sent more than `moment` requests, while clients place orders.
    pub(super) fn stop_after(&mut self, role: Role, moment: u64) {
        let member = self.members.iter().find(|(of, _)| *of == role).map(|(_, member)| member).unwrap();
        let clients = &self.clients;
        crate::wait::until("the moment", || {
            let is_reached = member.requests() > member.before + moment;
            if !is_reached {
                clients.allow(1);
            }
            is_reached
        });
        let running = self.member(role).running.take().unwrap();
        running.signal("-TERM");
        let stopped = Instant::now();
        running.ends();
        let took = stopped.elapsed();
        assert!(took <= role.budget(), "{role:?} took {took:?} at moment {moment}");
        let url = if role == Role::Serve { self.redis.url() } else { self.postgres.url_of(DATABASE) };
        if role != Role::Relay {
            assert_eq!(self.held(&url), Vec::<String>::new(), "{role:?} at moment {moment}");
        }
    }

    /// Returns the keys that a store contains as held.
    fn held(&self, url: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let store = idempotent::connect(url).await.unwrap();
            let mut filter = KeyFilter::default();
            (filter.states, filter.unreadable) = (vec![StateKind::Consuming], true);
            let page = store.capabilities().search.unwrap().search(&filter, None, PageLimits::default()).await.unwrap();
            page.entries.iter().map(|entry| entry.key.as_str().to_owned()).collect()
        })
    }

    /// Waits until all orders are shipped, and checks that none is lost or shipped twice.
    ///
    /// # Panics
    /// If there were fewer orders than `least`, so that the test shows nothing.
    pub(super) fn settles(self, least: usize) {
        let accepted = self.clients.end();
        assert!(accepted.len() >= least, "only {} orders", accepted.len());
        let count = |sql: &str| self.postgres.psql(DATABASE, sql).trim().parse::<usize>().unwrap();
        crate::wait::until("each order is shipped", || {
            count("SELECT count(DISTINCT order_number) FROM shipments") >= accepted.len()
        });
        crate::wait::until("no message is left", || self.rabbit.queues("/", "messages").values().sum::<u64>() == 0);
        assert_eq!(count("SELECT count(*) FROM orders"), accepted.len());
        assert_eq!(count("SELECT count(*) FROM shipments"), accepted.len());
        for order in self.postgres.psql(DATABASE, "SELECT order_number FROM shipments").lines().map(str::trim) {
            assert!(accepted.contains(order), "{order} was not accepted");
        }
    }
}

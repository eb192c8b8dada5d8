//! A primary that is demoted at its address while connections to it stay open: the same for every server.
use std::any::Any;
use std::sync::Arc;

use futures_util::future::join_all;
use idempotent_core::{Claim, ClaimMode, Completion, InFlight, Store, TransactionSource};
use idempotent_harness::proxy::Proxy;
use idempotent_sqlx::{DelayTable, Outbox, ScheduledTask};
use sqlx::pool::PoolOptions;
use sqlx::{Pool, Transaction};

use super::fixture::{Db, Server, Store as ServerStore, admit, creating, demote};
use crate::support::{held, key, request};

/// An address that leads to the first of two servers.
struct Address {
    servers: [Server; 2],
    proxy: Proxy,
}

impl Address {
    async fn new() -> Self {
        let servers = [Server::start(), Server::start()];
        for server in &servers {
            admit(server);
            creating(ServerStore::builder(server.url())).connect().await.unwrap();
            let pool: Pool<Db> = PoolOptions::new().connect_lazy(&server.url()).unwrap();
            Outbox::builder(pool.clone()).create(true).open().await.unwrap();
            DelayTable::builder(pool).create(true).open().await.unwrap();
        }
        let proxy = Proxy::start(&servers[0].address()).await;
        Self { servers, proxy }
    }

    /// The URL for a user without administrative privileges, which would lift the refusal.
    fn url(&self) -> String {
        let [primary, _] = &self.servers;
        admit(primary).replace(&primary.address(), &self.proxy.address())
    }

    fn pool(&self) -> Pool<Db> {
        // As a user of a proxy would set it: nothing tests a connection before its use.
        PoolOptions::new().max_connections(4).test_before_acquire(false).connect_lazy(&self.url()).unwrap()
    }

    /// Checks that writes follow the address once the primary has refused one: a connection to the primary that stays in a pool would
    /// be used again among the next ones. Returns the number of refused writes.
    async fn is_followed(&self, mut write: impl AsyncFnMut(usize) -> Result<(), String>) -> usize {
        write(0).await.unwrap();
        demote(&self.servers[0]);
        self.proxy.move_to(&self.servers[1].address());
        let (mut refused, mut in_a_row) = (0, 0);
        for number in 1..200_000 {
            match write(number).await {
                // The open sessions learn of the demotion one after the other.
                Ok(()) if refused == 0 => {}
                Ok(()) => in_a_row += 1,
                Err(text) => {
                    assert!(text.contains("read-only") || text.contains("takes no writes"), "{text}");
                    (refused, in_a_row) = (refused + 1, 0);
                }
            }
            if in_a_row == 50 {
                return refused;
            }
            assert!(refused < 10, "the refusing connections are used again and again");
            tokio::task::yield_now().await;
        }
        panic!("the primary was not demoted");
    }
}

async fn claimed(store: &ServerStore, number: usize) -> Result<(), String> {
    let key = key(&number.to_string());
    for _ in 0..10 {
        match store.claim(&request(&key, 1)).await.map_err(|error| error.to_string())? {
            Claim::Acquired(_) => return Ok(()),
            // On MySQL, a claim is a write and a read, which may reach one server each.
            Claim::InFlight(InFlight::Busy) => {}
            claim => panic!("{claim:?}"),
        }
    }
    panic!("{number} stays busy")
}

#[tokio::test]
async fn one_refused_claim_is_enough_for_all_connections_to_follow_the_address() {
    let address = Address::new().await;
    let store = ServerStore::builder(address.url()).connections(4).connect().await.unwrap();
    let warm: Vec<_> = (0..4).map(|n| request(&key(&format!("warm {n}")), 1)).collect();
    assert!(join_all(warm.iter().map(|request| store.claim(request))).await.iter().all(Result::is_ok));
    assert_eq!(address.is_followed(async |number| claimed(&store, number).await).await, 1);
}

#[tokio::test]
async fn claims_on_a_pool_of_the_users_follow_the_address() {
    let address = Address::new().await;
    let store = ServerStore::on_pool(address.pool()).connect().await.unwrap();
    address.is_followed(async |number| claimed(&store, number).await).await;
}

async fn committed(store: &ServerStore, number: usize) -> Result<(), String> {
    let run: Box<dyn Any> = store.capabilities().transact.unwrap().transactional_run(ClaimMode::Inside);
    let run = run.downcast::<Arc<dyn TransactionSource<Transaction<'static, Db>>>>().unwrap();
    let key = key(&number.to_string());
    let done = Completion { value: None, retain: std::time::Duration::from_secs(60) };
    run.claim(&request(&key, 1)).await.map_err(|error| error.to_string())?;
    run.complete(&held(&key, 1), &done).await.map_err(|error| error.to_string()).map(drop)
}

#[tokio::test]
async fn transactions_of_the_inbox_follow_the_address() {
    let address = Address::new().await;
    let store = ServerStore::connect(address.url()).await.unwrap();
    address.is_followed(async |number| committed(&store, number).await).await;
}

#[tokio::test]
async fn transactions_of_the_inbox_on_a_pool_of_the_users_follow_the_address() {
    let address = Address::new().await;
    let store = ServerStore::on_pool(address.pool()).connect().await.unwrap();
    address.is_followed(async |number| committed(&store, number).await).await;
}

#[tokio::test]
async fn the_tables_of_outbox_and_delay_follow_the_address() {
    let address = Address::new().await;
    let (outbox, table) = (address.pool(), address.pool());
    let outbox = Outbox::open(outbox).await.unwrap();
    let table = DelayTable::open(table).await.unwrap();
    let purge = || outbox.purge(std::time::Duration::ZERO, 1);
    purge().await.unwrap();
    let put = async |number: usize| {
        let task = ScheduledTask::after(number.to_string(), std::time::Duration::ZERO, b"");
        table.put(&task).await.map(drop).map_err(|error| error.to_string())
    };
    address.is_followed(put).await;
    // The primary is demoted by now.
    let mut refused = 0;
    while let Err(error) = purge().await {
        refused += 1;
        assert!(refused < 10 && error.to_string().contains("takes no writes"), "{error}");
    }
    assert!(refused > 0);
}

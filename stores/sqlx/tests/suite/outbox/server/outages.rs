//! A relay during and after an outage of its database.
use idempotent_harness::proxy::{Fault, Proxy};

use super::backend::Server;
use super::common::outage::{Outage, pool};

#[tokio::test]
async fn a_relay_outlives_a_database_that_is_cut_off_and_killed_and_tells_of_each_once() {
    let server = Server::start_durable();
    let proxy = Proxy::start(&server.address()).await;
    let outage = Outage::of(server.url().replace(&server.address(), &proxy.address()).parse().unwrap()).await;
    let direct = async || pool(server.url().parse().unwrap()).await;
    outage.sends(direct().await, "at first").await;

    // A cut connection of the pool is made again, unnoticed; so it is the new one that is cut.
    proxy.fail_next_with("t.due_at", Fault::CutAfterApply);
    server.close_all_connections();
    outage.has_told(1, 1).await;
    outage.sends(direct().await, "after a cut").await;

    server.kill();
    outage.has_told(2, 1).await;
    outage.tries_again_and_says_no_more().await;
    server.restart();
    outage.has_told(2, 2).await;
    outage.sends(direct().await, "after a restart").await;
    outage.ends_with(&["after a cut", "after a restart", "at first"]).await;
}

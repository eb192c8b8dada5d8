//! A relay whose database is away, and is back again [B29].
use idempotent_testkit::proxy::{Fault, Proxy};
use idempotent_testkit::servers::PostgresServer;

use super::laws::outage::{Outage, pool};

#[tokio::test]
async fn b29_a_relay_outlives_a_database_that_is_cut_off_killed_and_read_only_and_tells_of_each_once() {
    let server = PostgresServer::start_durable();
    let proxy = Proxy::start(&server.address()).await;
    let outage = Outage::of(server.url().replace(&server.address(), &proxy.address()).parse().unwrap()).await;
    let direct = async || pool(server.url().parse().unwrap()).await;
    outage.sends(direct().await, "at first").await;

    // A cut connection of the pool is made again, unnoticed; so it is the new one that is cut.
    proxy.fail_next_with("t.due_at", Fault::CutAfterApply);
    server.close_all_connections();
    outage.has_told(1, 1).await;
    outage.sends(direct().await, "after a cut").await;

    // A row that is there, and that it cannot lease.
    server.psql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    server.psql("postgres", "SELECT pg_reload_conf()");
    let read_only = "BEGIN READ WRITE; INSERT INTO idempotent_outbox (id,topic,headers,body,digest,due_at,created_at) \
        SELECT 'read only','orders',headers,'',digest,1,1 FROM idempotent_outbox LIMIT 1; COMMIT";
    server.psql("postgres", read_only);
    outage.has_told(2, 1).await;
    server.psql("postgres", "ALTER SYSTEM RESET default_transaction_read_only");
    server.psql("postgres", "SELECT pg_reload_conf()");
    outage.has_sent(&direct().await, "read only").await;
    outage.has_told(2, 2).await;

    server.kill();
    outage.has_told(3, 2).await;
    outage.tries_again_and_says_no_more().await;
    server.restart();
    outage.has_told(3, 3).await;
    outage.sends(direct().await, "after a restart").await;
    outage.ends_with(&["after a cut", "after a restart", "at first", "read only"]).await;
}

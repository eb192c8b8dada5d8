//! A relay whose database accepts no writes for a while.
use super::backend::Server;
use super::common::outage::{Outage, pool};

#[tokio::test]
async fn a_relay_outlives_a_database_that_is_read_only_and_tells_of_it_once() {
    let server = Server::start();
    let outage = Outage::of(server.url().parse().unwrap()).await;
    let direct = async || pool(server.url().parse().unwrap()).await;
    outage.sends(direct().await, "at first").await;

    // A row that is there, and that it cannot lease.
    server.psql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    server.psql("postgres", "SELECT pg_reload_conf()");
    let read_only = "BEGIN READ WRITE; INSERT INTO idempotent_outbox (id,topic,headers,body,digest,nonce,due_at,created_at) \
        SELECT 'read only','orders',headers,'',digest,nonce,1,1 FROM idempotent_outbox LIMIT 1; COMMIT";
    server.psql("postgres", read_only);
    outage.has_told(1, 0).await;
    server.psql("postgres", "ALTER SYSTEM RESET default_transaction_read_only");
    server.psql("postgres", "SELECT pg_reload_conf()");
    outage.has_sent(&direct().await, "read only").await;
    outage.has_told(1, 1).await;
    outage.ends_with(&["at first", "read only"]).await;
}

//! The answers of PostgreSQL to a client that connects.
use idempotent_core::StoreErrorKind::{Denied, NotApplied};
use idempotent_harness::servers::PostgresServer;

use crate::mysql::fixture as mysql;
use crate::postgres::explained::{all_are_explained, case};

/// Rules of pg_hba.conf. `hostssl` refuses a login without TLS, and the client does not support `gss`.
const RULES: &str = "host all secured 127.0.0.1/32 scram-sha-256\nhost all kerberos 127.0.0.1/32 gss\n\
                     hostssl all by_tls 127.0.0.1/32 trust\nhost all postgres 127.0.0.1/32 trust\n";

#[tokio::test]
async fn each_refusal_of_the_server_names_its_cause_and_remedy() {
    let server = PostgresServer::start();
    server.psql(
        "postgres",
        "CREATE ROLE secured LOGIN PASSWORD 'right'; CREATE ROLE by_tls LOGIN; CREATE ROLE kerberos LOGIN",
    );
    let folder = server.psql("postgres", "SHOW data_directory");
    std::fs::write(format!("{folder}/pg_hba.conf"), RULES).unwrap();
    server.restart();
    let (address, user) = (server.address(), |user: &str| server.url().replace("postgres@", &format!("{user}@")));
    all_are_explained(vec![
        case(user("secured:wrong"), Denied, &[&address, "password authentication failed", "user or password rejected"]),
        case(user("nobody"), Denied, &[&address, "no pg_hba.conf entry", "check the user and `sslmode`"]),
        case(user("by_tls"), Denied, &[&address, "no encryption", "`sslmode`"]),
        case(user("kerberos"), Denied, &[&address, "authentication method: 7", "another method, such as a password"]),
        case(server.url_of("nowhere"), Denied, &["/nowhere`", "does not exist", "create it"]),
        case(server.url() + "?sslmode=require", Denied, &[&address, "does not support TLS", "check `sslmode`"]),
        case(
            format!("postgres://me@{}/shop", mysql::server().address()),
            NotApplied,
            &[&mysql::server().address(), "does not answer as PostgreSQL", "check the host and the port"],
        ),
    ])
    .await;
}

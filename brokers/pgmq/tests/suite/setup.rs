//! Opening a source: what is created, what is refused, and by which error.
use idempotent_harness::servers::{CLOSED, HTTP, PostgresServer, SILENT, stranger};
use idempotent_mq::{DeadLetters, OutboundMessage, Publish, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_pgmq::{PgmqDeadLetters, PgmqPublisher, PgmqSource, PgmqSourceBuilder, Server};

use crate::world::{Database, World, ms, one, pgmq_url, settle, until};

/// Checks the kind of an error, and a part of its text.
#[track_caller]
fn refused(opened: Result<PgmqSource, SourceError>, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(part), "{error}");
}

fn existing(world: &World) -> PgmqSourceBuilder {
    PgmqSource::builder(world.url(), "orders")
}

/// Returns the URL for another user.
fn url_of(world: &World, user: &str) -> String {
    world.url().replace("postgres@", &format!("{user}@"))
}

#[tokio::test]
async fn what_does_not_exist_is_named_with_its_remedy_and_created_on_request() {
    let world = World::new().await;
    refused(existing(&world).connect().await, "SELECT pgmq.create('orders')");
    world.execute("SELECT pgmq.create('orders')").await;
    refused(existing(&world).connect().await, "queue `orders_dead`: it does not exist; create it by `declare`");
    for _ in 0..2 {
        world.source().await;
    }
    existing(&world).connect().await.unwrap();
    let longest = existing(&world).visibility_timeout(ms(12 * 3_600_000)).poll(ms(60_000));
    longest.dead_letters("buried").declare().connect().await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM pgmq.list_queues()").await, 3);
}

#[tokio::test]
async fn the_options_of_a_pool_connect_a_source_a_publisher_and_the_dead_letters() {
    let world = World::new().await;
    let own = || Server::on_client(world.client.connect_options().as_ref().clone());
    let mut source = PgmqSource::builder(own(), "orders").declare().connect().await.unwrap();
    let message = OutboundMessage::new("orders", "m-1", "body");
    PgmqPublisher::new(own()).publish(&[message]).await.pop().unwrap().unwrap();
    assert_eq!(one(&mut source).await.0.body, b"body");
    assert_eq!(PgmqDeadLetters::new(own(), "orders").count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_database_without_pgmq_or_with_an_old_version_is_refused() {
    let world = World::new().await;
    let none = format!("{}_none", world.database.name);
    let url = pgmq_url(&world.database.server.database(&none));
    for builder in [PgmqSource::builder(&*url, "orders"), PgmqSource::builder(&*url, "orders").declare()] {
        refused(builder.connect().await, "`CREATE EXTENSION pgmq`");
    }
    // A queue that was created before headers existed.
    world.source().await;
    world.execute("ALTER TABLE pgmq.q_orders DROP COLUMN headers").await;
    refused(existing(&world).connect().await, "no column `headers`; PGMQ 1.5 or later is required");
    world
        .execute("ALTER TABLE pgmq.q_orders ADD COLUMN headers jsonb; DROP FUNCTION pgmq.read(text, int, int, jsonb)")
        .await;
    let mut source = existing(&world).connect().await.unwrap();
    let error = source.receive(1).await.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("PGMQ 1.5 or later"), "{error}");
}

#[tokio::test]
async fn missing_privileges_are_named_with_the_grant() {
    let world = World::new().await;
    world.source().await;
    let user = format!("reader_{}", world.database.name);
    world.execute(&format!("CREATE ROLE {user} LOGIN")).await;
    let connect = || PgmqSource::builder(url_of(&world, &user), "orders").connect();
    refused(connect().await, "GRANT USAGE ON SCHEMA pgmq");
    world.execute(&format!("GRANT USAGE ON SCHEMA pgmq TO {user}")).await;
    refused(connect().await, "GRANT SELECT, INSERT, UPDATE, DELETE ON pgmq.\"q_orders\"");
    refused(PgmqSource::builder(url_of(&world, &user), "payments").declare().connect().await, "CREATE on the schema");
    for table in ["q_orders", "q_orders_dead"] {
        world.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON pgmq.{table} TO {user}")).await;
    }
    // These grants suffice for each operation.
    let mut source = connect().await.unwrap();
    let settler = source.settler();
    for how in [crate::world::retry(ms(1)), Settlement::GiveBack, Settlement::Ack] {
        if world.open().await == 0 {
            world.send("1").await;
        }
        let held = one(&mut source).await;
        settler.keep_alive(&[&held.1]).await.unwrap();
        settle(&settler, &held, how).await;
    }
    world.send("2").await;
    let held = one(&mut source).await;
    let letter = idempotent_mq::DeadLetter::because("no stock", idempotent_core::Timestamp(9));
    settle(&settler, &held, Settlement::DeadLetter(letter)).await;
    let mut letters = PgmqDeadLetters::new(url_of(&world, &user), "orders");
    assert_eq!(letters.count().await.unwrap(), 1);
    letters.next().await.unwrap().unwrap();
    assert!(letters.put_back().await.unwrap());
}

#[tokio::test]
async fn a_read_only_server_is_refused() {
    let world = World::new().await;
    world.source().await;
    let name = &world.database.name;
    world.execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    refused(existing(&world).connect().await, "read-only; name the primary in the URL");
}

#[tokio::test]
async fn a_hot_standby_is_refused_and_the_promoted_one_is_used() {
    let world = World::of(Database::alone().await).await;
    world.source().await;
    let server = world.database.server.clone();
    let standby = |sql: &'static str| {
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.psql("postgres", sql))
    };
    let folder = standby("SHOW data_directory").await.unwrap();
    // With this file, the server starts as a standby of no primary.
    std::fs::write(format!("{folder}/standby.signal"), "").unwrap();
    let restarted = server.clone();
    tokio::task::spawn_blocking(move || restarted.restart()).await.unwrap();
    assert_eq!(standby("SELECT pg_is_in_recovery()").await.unwrap(), "t");
    for builder in [existing(&world), existing(&world).declare()] {
        refused(builder.connect().await, "read-only; name the primary in the URL");
    }
    assert_eq!(standby("SELECT pg_promote()").await.unwrap(), "t");
    existing(&world).connect().await.unwrap();
}

#[tokio::test]
async fn bad_settings_and_addresses_are_refused_before_anything_is_created() {
    let world = World::new().await;
    let builder = |queue: &str| PgmqSource::builder(world.url(), queue).declare();
    let long = "q".repeat(48);
    for queue in ["", "or.ders", "a\"b", "größe", &long] {
        refused(builder(queue).connect().await, "use 1 to 47 letters, digits, `-` and `_`");
    }
    refused(builder(&"q".repeat(45)).connect().await, "`dead_letters` is `");
    refused(builder("Orders").dead_letters("orders").connect().await, "the queue itself");
    for outside in [ms(999), ms(12 * 3_600_000 + 1)] {
        refused(builder("orders").visibility_timeout(outside).connect().await, "set it to 1 s to 12 h");
    }
    for outside in [ms(9), ms(60_001)] {
        refused(builder("orders").poll(outside).connect().await, "set it to 10 ms to 1 min");
    }
    let by_tls = format!("{}?sslmode=require", world.url());
    let error = PgmqSource::connect(by_tls, "orders").await.map(drop).unwrap_err();
    assert_eq!(error.to_string().contains("enable the feature `pgmq-tls`"), !cfg!(feature = "tls"), "{error}");
    for url in ["pgmq://", "amqp://localhost", "", "pgmq://ann:hush@[::1/shop"] {
        let error = PgmqSource::connect(url, "orders").await.map(drop).unwrap_err();
        assert!(error.to_string().contains("pgmq://USER[:PASSWORD]@HOST[:PORT]/DATABASE"), "{error}");
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
    let untrusted = format!("{}?sslrootcert=ca.pem", world.url());
    refused(PgmqSource::connect(untrusted, "orders").await, "add `sslmode=verify-full`");
    assert_eq!(world.number("SELECT count(*) FROM pgmq.list_queues()").await, 0);
}

/// Connects by each URL, and checks the kind of the error, the words in its text, and that no password is shown.
async fn all_are_explained(kind: SourceErrorKind, cases: &[(String, &[&str])]) {
    for (url, words) in cases {
        let builder = PgmqSource::builder(&**url, "orders");
        assert!(!format!("{builder:?}").contains("hush"), "{builder:?}");
        let error = builder.connect().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for word in *words {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    let [silent, closed, http] = [SILENT, CLOSED, HTTP].map(stranger);
    let at = |address: &str| format!("pgmq://me:hush@{address}/db");
    let cases: [(String, &[&str]); 5] = [
        (at("127.0.0.1:1"), &["127.0.0.1:1", "refused", "check that the server is running, and the port"]),
        (at("no.such.host.invalid:7"), &["no.such.host.invalid:7", "lookup", "check the host name"]),
        (at(&http), &[&http, "no answer of PostgreSQL (unexpected response", "check the host and the port"]),
        (at(&closed), &[&closed, "closes the connection: check the host and port, whether it requires TLS"]),
        (at(&silent), &[&silent, "no connection within 5 s", "the host and the port are its own"]),
    ];
    all_are_explained(SourceErrorKind::Transient, &cases).await;
}

/// Rules of pg_hba.conf. `hostssl` refuses a login without TLS, and the client does not support `gss`.
const RULES: &str = "host all secured 127.0.0.1/32 scram-sha-256\nhost all kerberos 127.0.0.1/32 gss\n\
                     hostssl all by_tls 127.0.0.1/32 trust\nhost all postgres 127.0.0.1/32 trust\n";

#[tokio::test]
async fn each_refusal_of_the_server_names_its_cause_and_remedy() {
    let refusing = || {
        let server = PostgresServer::start();
        server.psql("postgres", "CREATE ROLE secured LOGIN PASSWORD 'right'");
        let folder = server.psql("postgres", "SHOW data_directory");
        std::fs::write(format!("{folder}/pg_hba.conf"), RULES).unwrap();
        server.restart();
        server
    };
    let server = tokio::task::spawn_blocking(refusing).await.unwrap();
    let (address, url) = (server.address(), pgmq_url(&server.url()));
    let user = |user: &str| url.replace("postgres@", &format!("{user}:hush@"));
    let cases: [(String, &[&str]); 6] = [
        (user("secured"), &[&address, "password authentication failed", "check the user and the password in the URL"]),
        (
            user("nobody"),
            &[&address, "no pg_hba.conf entry", "check the user and `sslmode` in the URL, and pg_hba.conf"],
        ),
        (user("by_tls"), &[&address, "no encryption", "check the user and `sslmode` in the URL, and pg_hba.conf"]),
        (user("kerberos"), &[&address, "authentication method: 7", "let the user log in by a password"]),
        (pgmq_url(&server.url_of("nowhere")), &[&address, "\"nowhere\" does not exist", "create the database"]),
        (format!("{url}?sslmode=require"), &[&address, "does not support TLS", "check `sslmode`"]),
    ];
    all_are_explained(SourceErrorKind::Fatal, &cases).await;
}

#[tokio::test]
async fn tls_is_verified() {
    let server = tokio::task::spawn_blocking(PostgresServer::start_with_tls).await.unwrap();
    server.install_pgmq("postgres");
    let url = pgmq_url(&server.url());
    let authority = server.certificates().ca().display().to_string();
    let connect = |parameters: String| PgmqSource::builder(format!("{url}?{parameters}"), "orders").declare().connect();
    connect(format!("sslmode=verify-ca&sslrootcert={authority}")).await.unwrap();
    refused(connect("sslmode=verify-full".to_owned()).await, "`sslrootcert`");
}

#[tokio::test]
async fn a_source_listens_where_pgmq_notifies_and_polls_elsewhere() {
    let world = World::new().await;
    let source = world.source().await;
    assert!(format!("{source:?}").contains("listens: false"), "{source:?}");
    drop(source);
    world.execute("SELECT pgmq.enable_notify_insert('orders')").await;
    let listens = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"pgmq.q_orders.INSERT\"' \
                   AND datname = current_database()";
    let mut source = world.source().await;
    until("the source listens", async || world.number(listens).await == 1).await;
    world.send("17").await;
    assert_eq!(one(&mut source).await.0.body, b"17");
    drop(source);
    until("the connection is closed", async || world.number(listens).await == 0).await;
}

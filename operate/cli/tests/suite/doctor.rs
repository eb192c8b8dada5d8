//! The checks and migrations of real servers, in states that would lose records.
use idempotent_harness::servers::{PgBouncer, PostgresServer, RabbitServer, RedisServer};

use crate::sqlite::file;
use crate::support::{done, fill, run};

/// Returns the findings as (severity, check, text).
fn findings(out: &str) -> Vec<(String, String, String)> {
    let finding = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| line[name].as_str().unwrap().to_owned();
        (field("severity"), field("check"), field("text"))
    };
    out.lines().map(finding).collect()
}

#[tokio::test]
async fn a_redis_that_evicts_records_fails_and_one_without_persistence_is_a_warning() {
    let server = RedisServer::start();
    let healthy = run(&server.url(), &["doctor"]);
    assert_eq!(healthy.code, 0, "{healthy:?}");
    let strict = run(&server.url(), &["doctor", "--fail-on", "warn"]);
    let found = findings(&strict.out);
    assert!(strict.code == 3 && found.iter().any(|(severity, check, _)| severity == "warn" && check == "persistence"));

    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let evicting = run(&server.url(), &["doctor"]);
    let found = findings(&evicting.out);
    let eviction = found.iter().find(|(_, check, _)| check == "eviction").unwrap();
    assert!(evicting.code == 3 && eviction.0 == "fail" && eviction.2.contains("noeviction"), "{evicting:?}");
}

#[tokio::test]
async fn a_check_of_redis_writes_nothing() {
    let server = RedisServer::start();
    for arguments in [&["doctor"][..], &["list"], &["count"], &["inspect", "--scope", "orders", "--part", "7"]] {
        run(&server.url(), arguments);
        assert_eq!(server.cli(&["DBSIZE"]).trim(), "0", "{arguments:?}");
    }
}

#[tokio::test]
async fn a_database_without_tables_fails_until_the_migrations_are_applied() {
    let server = PostgresServer::start_durable();
    let url = server.url();
    let before = run(&url, &["doctor"]);
    let found = findings(&before.out);
    assert!(before.code == 3 && found.len() == 1 && found[0].2.contains("run `idempotent migrate up`"), "{before:?}");
    let status = run(&url, &["migrate", "status"]);
    assert!(status.code == 3 && status.out.contains("\"found\":0"), "{status:?}");

    let refused = [(&["migrate", "up"][..], "pass --yes"), (&["migrate", "up", "--yes", "--read-only"], "--read-only")];
    for (arguments, text) in refused {
        let ran = run(&url, arguments);
        assert!(ran.code == 6 && ran.err.contains(text), "{ran:?}");
    }
    done(&url, &["migrate", "up", "--yes"]);
    assert!(run(&url, &["migrate", "up", "--yes"]).err.contains("nothing to do"));
    assert!(done(&url, &["migrate", "status"]).contains("\"pending\":[]"));
    fill(&idempotent::connect(&url).await.unwrap()).await;
    let after = findings(&done(&url, &["doctor", "--fail-on", "warn"]));
    let checks: Vec<_> = after.iter().map(|(severity, check, _)| (severity.as_str(), check.as_str())).collect();
    let of_server =
        ["rights", "pooler", "version", "durability", "isolation", "indexes", "bloat", "connections", "space", "purge"];
    let expected = [&["schema"], &of_server[..], &["clock", "orphans"]].concat();
    assert_eq!(checks, expected.into_iter().map(|check| ("ok", check)).collect::<Vec<_>>());

    server.psql("postgres", "CREATE INDEX ON idempotent_record (expires_at)");
    let strict = run(&url, &["doctor", "--fail-on", "warn"]);
    let index = findings(&strict.out).into_iter().find(|(_, check, _)| check == "indexes").unwrap();
    assert!(strict.code == 3 && index.0 == "warn" && index.2.contains("drop it"), "{strict:?}");
}

#[tokio::test]
async fn a_pooler_is_a_failure_with_the_remedy() {
    let server = PostgresServer::start();
    done(&server.url(), &["migrate", "up", "--yes"]);
    for more in ["", "ignore_startup_parameters = options\n"] {
        let pooler = PgBouncer::start(&server, &format!("pool_mode = transaction\n{more}"));
        let ran = run(&pooler.url_of("postgres"), &["doctor"]);
        let found = findings(&ran.out);
        let open = found.iter().find(|(_, check, _)| check == "open").unwrap_or_else(|| panic!("{ran:?}"));
        assert!(ran.code == 3 && open.0 == "fail" && open.2.contains("connect to the server directly"), "{ran:?}");
    }
}

#[tokio::test]
async fn the_printed_statements_create_the_tables_that_the_store_needs() {
    let server = PostgresServer::start();
    let url = server.url();
    let sql = done("", &["migrate", "sql", "--dialect", "postgres"]);
    server.psql("postgres", &sql);
    done(&url, &["migrate", "status"]);
    for dialect in ["mysql", "sqlite"] {
        assert!(done("", &["migrate", "sql", "--dialect", dialect]).contains("CREATE TABLE"));
    }
    let versions = |from: &str| -> Vec<u32> {
        let sql = done(&url, &["migrate", "sql", "--from", from]);
        let titles = sql.lines().filter_map(|line| line.strip_prefix("-- "));
        titles.map(|title| title.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let all = versions("0");
    assert!(all.len() > 1 && versions("1") == all[1..] && versions("1000").is_empty(), "{all:?}");
}

#[tokio::test]
async fn partitions_are_created_and_printed_and_another_number_is_refused() {
    let server = PostgresServer::start();
    let (url, table) = (server.url(), ["--table", "printed"]);
    server.psql("postgres", &done(&url, &[&["migrate", "sql", "--partitions", "16"][..], &table].concat()));
    done(&url, &[&["migrate", "status", "--partitions", "16"][..], &table].concat());
    done(&url, &["migrate", "up", "--yes", "--partitions", "16"]);
    for table in ["printed", "idempotent_record", "idempotent_record_steps"] {
        let count = format!("SELECT count(*) FROM pg_inherits WHERE inhparent = '{table}'::regclass");
        assert_eq!(server.psql("postgres", &count), "16", "{table}");
    }
    done(&url, &["migrate", "status"]);
    for command in [&["migrate", "status"][..], &["migrate", "up", "--yes"]] {
        let ran = run(&url, &[command, &["--partitions", "8"]].concat());
        assert!(ran.code == 5 && ran.err.contains("has 16 partitions"), "{ran:?}");
    }
    let other = run("", &["migrate", "sql", "--dialect", "mysql", "--partitions", "16"]);
    assert!(other.code == 2 && other.err.contains("only tables in PostgreSQL"), "{other:?}");
}

#[tokio::test]
async fn a_table_of_another_program_is_a_failure_that_names_it() {
    let server = PostgresServer::start();
    server.psql("postgres", "CREATE TABLE idempotent_record (id bigint primary key)");
    let url = server.url();
    for (arguments, code) in [(&["doctor"][..], 3), (&["migrate", "status"], 5), (&["migrate", "up", "--yes"], 5)] {
        let ran = run(&url, arguments);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(ran.code == code && said.contains("idempotent_record"), "{arguments:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_file_has_a_schema_and_no_clock_of_its_own() {
    let (_folder, url) = file().await;
    let found = findings(&done(&url, &["doctor"]));
    let checks: Vec<_> = found.iter().map(|(severity, check, _)| (severity.as_str(), check.as_str())).collect();
    assert_eq!(checks, ["schema", "journal", "file", "space", "orphans"].map(|check| ("ok", check)));
    assert!(run("mongodb://host", &["doctor"]).err.contains("expected a URL"));
    let redis = run("redis://localhost", &["migrate", "status"]);
    assert!(redis.code == 2 && redis.err.contains("has no schema"), "{redis:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_blocks_publishers_fails_with_its_reason_until_the_alarm_ends() {
    let (server, (_folder, store)) = (RabbitServer::start(), file().await);
    let doctor = || {
        let run = run(&store, &["doctor", "--queue", &server.url()]);
        let alarm = findings(&run.out).into_iter().find(|(_, check, _)| check == "alarm").unwrap();
        (run.code, alarm.0, alarm.2)
    };
    let limit = |limit: &str| {
        server.eval(&format!("_ = vm_memory_monitor:set_vm_memory_high_watermark({limit}), \"done\"."));
    };
    assert_eq!(doctor(), (0, "ok".to_owned(), "the broker accepts messages".to_owned()));
    limit("0.0");
    let (code, severity, text) = loop {
        let found = doctor();
        if found.0 != 0 {
            break found;
        }
    };
    assert_eq!((code, &*severity), (3, "fail"));
    assert!(text.contains("(low on memory)") && text.contains("`vm_memory_high_watermark`"), "{text}");
    limit("{absolute, \"512MB\"}");
    while doctor().0 != 0 {}
    assert!(server.queues("/", "messages").is_empty());
    let other = run(&store, &["doctor", "--queue", "nats://u:s3cret@localhost"]);
    assert!(
        other.code == 2 && other.err.contains("only RabbitMQ has alarms") && !other.err.contains("s3cret"),
        "{other:?}"
    );
}

//! Store URLs: what is refused, by which words, and what opens.
use idempotent::{ConnectError, Executor, Identity, Outcome, Rejection, Scene, connect, idempotent};
use idempotent_core::__private::url::masked;

/// Polls the call once, because an invalid URL needs no waiting.
fn refused(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async { connect(url).await }).unwrap_err();
    let debug = format!("{error:?}");
    for secret in ["hunter2", "s3cret"] {
        assert!(!debug.contains(secret), "{debug}");
    }
    error.to_string()
}

#[track_caller]
fn says(url: &str, parts: &[&str]) {
    let text = refused(url);
    for part in parts {
        assert!(text.contains(part), "`{url}` is refused by `{text}`, which lacks `{part}`");
    }
}

#[test]
fn a_missing_colon_is_named() {
    says("redis//x", &["invalid store url `redis//x`", "a colon is missing after `redis`", "`redis://…`"]);
    says("redis//:hunter2@x", &["`redis//:***@x`"]);
    says("sqlite", &["a colon and a place are missing after `sqlite`"]);
}

#[test]
fn a_path_is_refused_with_its_url_form() {
    for path in ["store.db", "/tmp/store.db", "./a:b", "C:\\store.db", "1:2", ":x", "//x"] {
        says(path, &["it has no scheme", "`sqlite:PATH`"]);
    }
}

#[test]
fn an_unknown_scheme_lists_what_there_is() {
    says("etcd://x", &["the scheme `etcd` is not known;", "there is `memory:`, `sqlite:PATH`, `redis://HOST`"]);
    for (url, meant) in [
        ("sqlit:x", "sqlite"),
        ("sqlite3:x", "sqlite"),
        ("rediis://x", "redis"),
        ("postgre://x", "postgres"),
        ("valkey://x", "redis"),
        ("file:x.db", "sqlite"),
        ("MEMROY:", "memory"),
    ] {
        says(url, &[&format!("did you mean `{meant}`?")]);
    }
}

#[test]
fn a_known_scheme_names_its_feature() {
    let off = ConnectError::FeatureOff { scheme: "sqlite", feature: "sqlite" }.to_string();
    let line = "say `idempotent = { package = \"idempotent-rs\", version = \"0.1.0\", features = [\"sqlite\"] }`";
    assert!(off.ends_with(line), "{off}");
}

#[test]
fn nothing_is_not_a_url() {
    for url in ["", " ", "\n"] {
        says(url, &["invalid store url: it is empty", "`memory:`"]);
    }
}

#[test]
fn a_port_there_cannot_be_is_named() {
    for port in ["99999", "0", "65536", "99999999999999999999"] {
        says(&format!("redis://u:hunter2@h:{port}/0"), &[&format!("port {port} "), "`redis://u:***@h:"]);
    }
    says("redis+sentinel://a:1,b:70000/main", &["port 70000 "]);
    says("redis://[::1]:70000", &["port 70000 "]);
}

#[test]
fn no_text_shows_a_password() {
    for (url, shown) in [
        ("redis://u:hunter2@h", "redis://u:***@h"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("redis://hunter2@h", "redis://***@h"),
        ("redis://u:hun@ter2@h", "redis://u:***@h"),
        ("redis://u:hun/ter2@h", "redis://u:***@h"),
        ("redis://u:hun?ter2@h", "redis://u:***@h"),
        ("redis:u:hunter2@h", "redis:u:***@h"),
        ("u:hunter2@h", "u:***@h"),
        ("postgres://h/db?password=hunter2&x=1", "postgres://h/db?password=***&x=1"),
        ("postgres://h/db?sslPassword=hunter2", "postgres://h/db?sslPassword=***"),
        ("redis://h\n", "redis://h\\n"),
        ("@", "***@"),
        ("", ""),
    ] {
        assert_eq!(&*masked(url), shown);
    }
    says("etcd://u:hunter2@h", &["`etcd://u:***@h`"]);
    says("redis://u:hunter2/s3cret@h", &["the port is not a number", "percent-encode"]);
    says("redis://u:hunter2@h\n", &["a control character"]);
    says("memory:hunter2@x", &["nothing may follow `memory:`"]);
}

#[test]
fn a_password_that_is_not_encoded_is_refused_with_its_encoded_form() {
    for url in ["redis://u:hunter2@x@h", "redis://u:hunter2%@h", "redis+cluster://u:s3cret%zz@a,b"] {
        says(url, &["invalid store url", "percent-encode", "***@"]);
    }
    says("redis+sentinel://a,b", &["the name of the primary is missing"]);
}

#[test]
fn a_wrong_tier_is_named_with_the_form() {
    says("tiered:redis://h", &["`tiered:postgres://HOST/DATABASE|redis://HOST`"]);
    says("tiered:sqlite:x|redis://a|redis://u:hunter2@b", &["more than two URLs", "`%7C`", "***@b"]);
    says("tiered:redis://u:s3cret@h|memory:", &["`redis://u:***@h`", "the durable tier is a database"]);
    says("tiered:memory:|redis://h", &["the durable tier is a database"]);
    says("tiered:sqlite:x|postgres://u:hunter2@h/d", &["`postgres://u:***@h/d`", "the cache is Redis"]);
    says("tiered:sqlite:x|tiered:y|z", &["more than two URLs"]);
    says("tiered:sqlit:x|memory:", &["did you mean `sqlite`?"]);
    says("tiered:sqlite:x|memory:y", &["nothing may follow `memory:`"]);
    says("tierd:sqlite:x|redis://u:hunter2@h", &["did you mean `tiered`?"]);
}

#[test]
fn a_request_prints_no_password() {
    let request = connect("tiered:postgres://u:hunter2@h/d|redis://:s3cret@c").cache("redis://:s3cret@x").create(true);
    let shown = format!("{request:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("s3cret") && shown.contains("***@c"), "{shown}");
}

/// Opens the store by each URL once its tables exist: `connect` creates them on request only.
async fn opens(urls: &[String]) {
    let error = connect(&urls[0]).await.unwrap_err().to_string();
    assert!(error.contains("is missing") && error.contains("`create(true)`"), "{error}");
    let error = connect(&urls[0]).create(false).await.unwrap_err().to_string();
    assert!(error.contains("is missing") && error.contains("`schema_steps()`"), "{error}");
    connect(&urls[0]).create(true).await.unwrap();
    for url in urls {
        let store = connect(url).await.unwrap();
        assert!(store.capabilities().batch.is_some());
    }
}

#[tokio::test]
async fn postgres_opens_where_its_table_is() {
    let server = idempotent_harness::servers::PostgresServer::start();
    let url = server.url();
    let urls = [url.clone(), url.replace("postgres://", "postgresql://"), url.replace("postgres:", "POSTGRES:")];
    opens(&urls).await;
}

#[tokio::test]
async fn partitions_are_a_setting_of_postgres_tables_only() {
    let server = idempotent_harness::servers::PostgresServer::start();
    connect(server.url()).create(true).partitions(16).await.unwrap();
    let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'idempotent_record'::regclass";
    assert_eq!(server.psql("postgres", count), "16");
    connect(format!("tiered:{}|memory:", server.url())).partitions(16).await.unwrap();
    let other = connect(server.url()).partitions(8).await.unwrap_err().to_string();
    assert!(other.contains("has 16 partitions"), "{other}");
    for url in ["memory:", "sqlite::memory:", "redis://localhost", "mysql://localhost/shop"] {
        let error = connect(url).partitions(16).await.unwrap_err().to_string();
        assert!(error.contains("leave `partitions` out"), "{error}");
    }
}

#[tokio::test]
async fn mysql_opens_where_its_table_is() {
    let server = idempotent_harness::servers::MariaDbServer::start();
    let url = server.url();
    let urls = [url.clone(), url.replace("mysql://", "mariadb://"), url.replace("mysql:", "MySQL:")];
    opens(&urls).await;
}

#[tokio::test]
async fn redis_opens() {
    let server = idempotent_harness::servers::RedisServer::builder().password("hunter2").start();
    let store = connect(server.url()).await.unwrap();
    assert!(store.capabilities().batch.is_some());
    assert!(!format!("{store:?}").contains("hunter2"));
    let wrong = server.url().replace("hunter2", "s3cret");
    let error = connect(&wrong).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.starts_with("the store denied access: ") && text.contains("WRONGPASS"));
    assert!(text.contains(&server.address()) && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn memory_and_sqlite_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let path = path.to_str().unwrap();
    for url in ["memory", "memory:", "memory://", "sqlite::memory:"] {
        connect(url).await.unwrap();
    }
    for url in [format!("sqlite:{path}"), format!("sqlite://{path}"), format!("SQLite:{path}")] {
        let store = connect(&url).await.unwrap();
        assert!(store.capabilities().search.is_some());
    }
}

#[tokio::test]
async fn an_sqlite_file_is_not_created_if_the_caller_forbids_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let url = format!("sqlite:{}", path.display());
    let error = connect(&url).create(false).await.unwrap_err().to_string();
    assert!(error.contains("is missing") && !path.exists(), "{error}");
    connect(&url).await.unwrap();
    connect(&url).create(false).await.unwrap();
}

#[tokio::test]
async fn two_tiers_open_by_a_url_and_by_the_setting() {
    let redis = idempotent_harness::servers::RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("store.db").display());
    let key = Identity::new(Scene::Mq, "ship", "o-1").key("idempotent").unwrap();
    let mut first = None;
    for request in [
        connect(format!("tiered:{database}|{}", redis.url())),
        connect(&database).cache(redis.url()),
        connect(format!("tiered:{database}|memory:")),
        connect(&database).cache("memory:"),
    ] {
        let executor = Executor::new(request.await.unwrap());
        executor.scope(ship("o-1")).await.unwrap();
        let fencing = executor.store().peek(&key).await.unwrap().unwrap().fencing;
        assert_eq!(fencing, *first.get_or_insert(fencing), "one run for all stores");
        // The database knows the key without the cache.
        redis.command(&["FLUSHALL"]);
        let (_, outcome) = Outcome::capture(executor.scope(ship("o-1"))).await;
        assert_eq!(outcome, Some(Outcome::Replayed));
    }
    let both = connect(format!("tiered:{database}|memory:")).cache("memory:").await.unwrap_err().to_string();
    assert!(both.contains("leave `cache` out"), "{both}");
}

#[idempotent(key = order, scope = "ship")]
async fn ship(order: &str) -> Result<u32, Rejection> {
    Ok(1)
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_says_why() {
    let error = connect("sqlite:/no/such/folder/x.db").await.unwrap_err();
    assert!(matches!(error, ConnectError::Store(_)));
    let mut said: &dyn std::error::Error = &error;
    while let Some(source) = said.source() {
        assert!(!said.to_string().contains(&source.to_string()), "said twice: {said} / {source}");
        said = source;
    }
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

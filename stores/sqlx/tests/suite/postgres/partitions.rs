//! Tables with hash partitions. `cargo xtask test extras` also runs all tests of this store on 16 partitions.
use std::collections::BTreeMap;

use idempotent_core::store::{Health, Severity};
use idempotent_core::{Claim, Settled, Store, StoreErrorKind};
use idempotent_harness::servers::PostgresServer;
use idempotent_sqlx::{PostgresStore, PostgresStoreBuilder, SchemaProblemKind};

use crate::postgres::fixture::{Place, row_tables, server, sql};
use crate::postgres::health::shared::expect;
use crate::postgres::plans;
use crate::postgres::setup::refused;
use crate::support::{done, held, key, request};

/// The storage parameters of a table of records.
const STORAGE: &str = " WITH (fillfactor=80)";

/// Returns a builder for the table of a place, without the partitions of the run.
fn builder(place: &Place) -> PostgresStoreBuilder {
    PostgresStore::builder(&place.url).table(&place.table)
}

fn statements(builder: &PostgresStoreBuilder) -> Vec<String> {
    builder.schema_steps().unwrap().iter().flat_map(|step| step.statements().to_vec()).collect()
}

#[test]
fn the_tables_of_records_and_steps_have_partitions_and_the_rest_of_the_text_is_equal() {
    let builder = PostgresStore::builder("postgres://localhost/none").schema("s").table("r");
    let (whole, divided) = (statements(&builder), statements(&builder.partitions(2)));
    assert_eq!(whole.len(), divided.len());
    let parts = |name: &str, condition: &str, storage: &str| {
        let part = |at| {
            format!(
                ";\nCREATE TABLE {condition}\"s\".\"{name}_p{at}\" PARTITION OF \"s\".\"{name}\" FOR VALUES WITH (MODULUS 2, \
                 REMAINDER {at}){storage}"
            )
        };
        format!(" PARTITION BY HASH (id){}{}", part(0), part(1))
    };
    let mut tables = 0;
    for (whole, divided) in whole.iter().zip(divided) {
        let columns = whole.strip_suffix(STORAGE).unwrap_or(whole);
        let expected = match whole.lines().next().unwrap() {
            "CREATE TABLE \"s\".\"r\" (" => columns.to_owned() + &parts("r", "", STORAGE),
            "CREATE TABLE IF NOT EXISTS \"s\".\"r_steps\" (" => {
                columns.to_owned() + &parts("r_steps", "IF NOT EXISTS ", "")
            }
            _ => whole.clone(),
        };
        assert_eq!(divided, expected);
        tables += usize::from(divided.contains("PARTITION BY"));
    }
    assert_eq!(tables, 2);
}

#[test]
fn names_of_partitions_are_not_truncated_and_other_numbers_are_refused() {
    let builder = PostgresStore::builder("postgres://localhost/none").table("r".repeat(52));
    for text in statements(&builder.clone().partitions(128)) {
        assert!(text.split('"').skip(1).step_by(2).all(|name| name.len() <= 63), "{text}");
    }
    for number in [0, 1, 129, u16::MAX] {
        let refusal = [&*format!("partitions({number})"), "between 2 and 128"];
        refused(builder.clone().partitions(number).schema_steps(), StoreErrorKind::Schema, &refusal);
    }
}

#[tokio::test]
async fn each_partition_has_the_storage_parameters_of_one_table() {
    let place = Place::new();
    builder(&place).create(true).partitions(16).connect().await.unwrap();
    for (table, storage) in [(place.table.clone(), "{fillfactor=80}"), (format!("{}_steps", place.table), "")] {
        let partitions = row_tables(server(), &table);
        assert_eq!(partitions.len(), 16, "{partitions:?}");
        for partition in partitions {
            let found = sql(&format!("SELECT reloptions FROM pg_class WHERE oid = '{partition}'::regclass"));
            assert_eq!(found, storage, "{partition}");
        }
    }
    assert_eq!(row_tables(server(), &format!("{}_lines", place.table)).len(), 1);
}

#[tokio::test]
async fn another_number_of_partitions_is_refused_with_the_remedy_and_no_setting_accepts_any() {
    for (created, expected) in [(None, "has no partitions"), (Some(16), "has 16 partitions")] {
        let place = Place::new();
        let create = match created {
            Some(number) => builder(&place).partitions(number),
            None => builder(&place),
        };
        create.create(true).connect().await.unwrap();
        for create in [false, true] {
            let other = builder(&place).partitions(8).create(create).connect().await;
            let words = [&*format!("table `{}` {expected}", place.table), "partitions(8)", "create another `table`"];
            refused(other, StoreErrorKind::Schema, &words);
            let store = builder(&place).create(create).connect().await.unwrap();
            assert!(matches!(store.claim(&request(&key(&format!("{create}")), 1)).await.unwrap(), Claim::Acquired(_)));
        }
        let status = builder(&place).partitions(8).schema_status().await.unwrap();
        assert!(status.pending.is_empty(), "{status:?}");
        assert_eq!(status.problem.unwrap().kind(), SchemaProblemKind::OtherPartitions);
        assert!(builder(&place).schema_status().await.unwrap().is_current());
    }
}

/// The table of the steps is left when an operator drops the records.
#[tokio::test]
async fn a_table_of_steps_without_partitions_is_named_before_anything_is_created() {
    let place = Place::new();
    builder(&place).create(true).connect().await.unwrap();
    sql(&format!("DROP TABLE {0}, {0}_migrations", place.table));
    let open = builder(&place).create(true).partitions(4).connect().await;
    refused(open, StoreErrorKind::Schema, &[&format!("table `{}_steps` has no partitions", place.table)]);
    assert!(!place.has(&place.table));
}

#[tokio::test]
async fn a_store_opens_on_partitions_that_an_administrator_created() {
    let place = Place::new();
    let divided = builder(&place).partitions(4);
    for step in divided.schema_steps().unwrap() {
        sql(&step.to_string());
    }
    assert!(divided.schema_status().await.unwrap().is_current());
    divided.connect().await.unwrap();
    let store = builder(&place).connect().await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
}

/// A position in a table is unique within one partition: a deletion by position would remove live records of the others.
#[tokio::test]
async fn a_purge_of_partitions_removes_the_expired_records_only() {
    let place = Place::new();
    let store = builder(&place).create(true).partitions(16).connect().await.unwrap();
    sql(&format!(
        "INSERT INTO {} SELECT decode(md5(i::text),'hex'),1,'a',2,decode(md5(i::text),'hex'),1,1,0,NULL,NULL,\
         CASE WHEN i%2=0 THEN 1 ELSE 9000000000000000 END,1,1,NULL,NULL,NULL FROM generate_series(1,10000) AS i",
        place.table
    ));
    assert_eq!(store.capabilities().purge.unwrap().purge(4_000).await.unwrap(), 4_000);
    assert_eq!(store.capabilities().purge.unwrap().purge(usize::MAX).await.unwrap(), 1_000);
    let counts = format!("SELECT count(*), count(*) FILTER (WHERE expires_at > 1) FROM {}", place.table);
    assert_eq!(sql(&counts), "5000|5000");
}

/// With the values at hand, the server plans for one partition. A plan for any values removes the others when it starts.
#[tokio::test]
async fn a_statement_about_one_key_searches_one_partition() {
    let server = PostgresServer::start();
    plans::builder(&server, "auto").create(true).partitions(16).connect().await.unwrap();
    plans::fill(&server, 50_000);
    server.psql("postgres", "ANALYZE idempotent_record");
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let read = server.log().len();
        plans::everything(&plans::builder(&server, mode).connect().await.unwrap(), mode).await;
        let of_one_key = |statement: &str| statement.contains(" id=$1") || statement.contains("r.id=$1");
        let plans: BTreeMap<_, _> =
            plans::told(&server.log()[read..]).into_iter().filter(|(statement, _)| of_one_key(statement)).collect();
        assert!(plans.len() >= 8, "{:#?}", plans.keys());
        for (statement, plan) in plans {
            let searched = plans::by_primary_key(&plan);
            assert!(
                searched.len() == 1 && !plan.contains("Seq Scan on idempotent_record_p"),
                "{mode}: {statement}\n{plan}"
            );
        }
    }
}

#[tokio::test]
async fn an_index_of_one_partition_is_found() {
    let place = Place::new();
    let store = builder(&place).create(true).partitions(4).connect().await.unwrap();
    expect(&store.check().await.unwrap(), "indexes", Severity::Ok, &[]);
    sql(&format!("CREATE INDEX ON {}_p3 (expires_at)", place.table));
    expect(&store.check().await.unwrap(), "indexes", Severity::Warn, &["drop it"]);
}

/// Executes the statements of the guide about a move. The workers go on after the first copy.
#[tokio::test]
async fn the_statements_of_the_guide_move_all_records() {
    let guide = include_str!("../../../../../guides/sizing.md");
    let moving = guide.split("### Move records").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let blocks: Vec<_> = moving.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [first, rest] = blocks[..] else { panic!("{blocks:#?}") };

    let url = server().database("moved");
    let execute = |text: &str| server().psql("moved", text);
    let old = PostgresStore::builder(&url).create(true).connect().await.unwrap();
    let divided =
        PostgresStore::builder(&url).table("orders_record").create(true).partitions(16).connect().await.unwrap();
    let consume = async |name: &str| {
        assert!(matches!(old.claim(&request(&key(name), 1)).await.unwrap(), Claim::Acquired(_)));
        assert_eq!(old.complete(&held(&key(name), 1), &done(b"paid")).await.unwrap(), Settled::Done);
    };
    consume("before").await;
    consume("expired").await;
    old.claim(&request(&key("held"), 1)).await.unwrap();
    execute(first);
    consume("after").await;
    assert_eq!(old.complete(&held(&key("held"), 1), &done(b"late")).await.unwrap(), Settled::Done);
    // A key that was copied runs a second time after the end of its retention.
    let expired = format!("'\\x{:032x}'", key("expired").hash());
    execute(&format!("UPDATE idempotent_record SET expires_at = 1 WHERE id = {expired}"));
    assert!(matches!(old.claim(&request(&key("expired"), 2)).await.unwrap(), Claim::Acquired(_)));
    execute(rest);
    let difference = "SELECT count(*) FROM (TABLE idempotent_record EXCEPT TABLE orders_record) AS missing";
    assert_eq!(execute(difference), "0");
    assert_eq!(execute("SELECT count(*) FROM orders_record"), "4");
    for name in ["before", "after", "held"] {
        let claim = divided.claim(&request(&key(name), 3)).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)), "{name}: {claim:?}");
    }
    let claim = divided.claim(&request(&key("expired"), 3)).await.unwrap();
    assert!(matches!(claim, Claim::InFlight(_)), "{claim:?}");
}

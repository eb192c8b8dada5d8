//! The capacity calculator.
use idempotent_harness::servers::{PostgresServer, RedisServer};
use serde_json::Value;

use crate::support::{done, run};

const LOAD: [&str; 5] = ["plan", "--rate", "12000/s", "--retention", "24h"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&LOAD[..], more].concat()
}

#[test]
fn a_plan_needs_no_store_and_has_a_line_for_each_form() {
    let text = done("", &with(&["-o", "table"]));
    for part in
        ["load   12,000 new keys/s, 60,000/s at the peak", "redis, a record for each key", "postgres, batches of 64"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let json: Value = serde_json::from_str(&done("", &LOAD)).unwrap();
    assert_eq!(json["forms"].as_array().unwrap().len(), 3);
    assert_eq!(json["load"]["live"], 12_000.0 * 86_400.0);
    assert!(json.get("steps").is_none());
}

#[test]
fn an_explanation_names_each_formula_and_each_constant() {
    let text = done("", &with(&["--explain", "-o", "table"]));
    let parts = [
        "  masters = ",
        "  WAL in a day = ",
        "  redis memory of a consumed record = measured by `cargo xtask bench scale` = ",
    ];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let json: Value = serde_json::from_str(&done("", &with(&["--explain", "--json", "-o", "table"]))).unwrap();
    assert!(json["steps"].as_array().unwrap().len() > 20, "{json}");
}

#[test]
fn each_bad_argument_is_refused_with_its_rule() {
    for (more, text) in [
        (&["--retenton", "24h"][..], "'--retention'"),
        (&["--replcas", "2"], "'--replicas'"),
        (&["--engine", "redsi"], "'redis'"),
        (&["--node", "8"], "the memory of a server in bytes is 8: expected 100MB"),
        (&["--node", "eight"], "`8GB`"),
        (&["--peak", "0.5"], "the peak factor is 0.5: expected 1 to 1000"),
        (&["--duplicates", "NaN"], "duplicates per key is NaN"),
        (&["--result", "many"], "`many` is no number of bytes"),
        (&["--handler", "5"], "time unit needed"),
        (&["--fail-if", "mastres>8"], "`mastres` is no figure; known are masters"),
        (&["--fail-if", "cost>8"], "--price-gb"),
        (&["--from", "postgres://localhost"], "is no store in Redis or Valkey"),
    ] {
        let ran = run("", &with(more));
        assert!(ran.code == 2 && ran.err.contains(text), "{more:?}: {ran:?}");
        assert_eq!(ran.out, "", "{more:?}");
    }
    let missing = run("", &["plan", "--rate", "1/s"]);
    assert!(missing.code == 2 && missing.err.contains("--retention <DURATION>"), "{missing:?}");
    let rate = run("", &["plan", "--rate", "12000", "--retention", "24h"]);
    assert!(rate.code == 2 && rate.err.contains("`5e7/day`"), "{rate:?}");
}

#[test]
fn a_plan_over_its_budget_is_printed_and_ends_with_exit_code_6() {
    let over = run("", &with(&["--engine", "redis", "--fail-if", "masters>8", "--fail-if", "memory>1TB"]));
    assert!(over.code == 6 && over.err.contains("`masters>8`: masters is") && !over.err.contains("1TB"), "{over:?}");
    assert!(over.out.contains("redis_records"), "{over:?}");
    done("", &with(&["--engine", "redis", "--fail-if", "masters>1000"]));
    // One form within the budget is enough.
    done("", &with(&["--fail-if", "cores>10000"]));
}

#[test]
fn prices_put_the_cheapest_form_first() {
    let first = |prices: &[&str]| {
        let plan: Value = serde_json::from_str(&done("", &with(prices))).unwrap();
        plan["forms"][0]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(first(&["--price-gb", "1", "--price-disk-gb", "100"]), "redis_records");
    assert_eq!(first(&["--price-gb", "100", "--price-disk-gb", "1", "--price-core", "1"]), "postgres_batches");
}

/// Writes records of the same form as consumed ones.
fn fill(server: &RedisServer, records: u64) {
    const EACH: u64 = 100_000;
    // The last digit of the hash of a key has four zero bits.
    let script = "for i=ARGV[1]+0,ARGV[2]+0 do redis.call('SET',string.format('idempotent:mq:orders:{%021dA}',i),\
                  '1790000000000000001','PX',604800000) end";
    for from in (0..records).step_by(EACH as usize) {
        let to = (from + EACH).min(records) - 1;
        server.command(&["EVAL", script, "0", &from.to_string(), &to.to_string()]);
    }
}

/// Asserts that the forecast for a store with this number of records is within a tenth of its memory.
fn forecast(records: u64) {
    let server = RedisServer::start();
    fill(&server, records);
    let plan = done("", &["plan", "--from", &server.url(), "--engine", "redis"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let forecast = plan["forms"][0]["used_bytes"].as_f64().unwrap();
    let used: f64 = server.info("used_memory").parse().unwrap();
    assert!((forecast / used - 1.0).abs() < 0.1, "{forecast} bytes instead of {used}: {plan}");
    let live = plan["load"]["live"].as_f64().unwrap();
    assert!((live / records as f64 - 1.0).abs() < 0.001, "{plan}");
}

#[test]
fn the_memory_of_a_running_store_is_forecast() {
    forecast(100_000);
}

mod extras {
    #[test]
    fn the_memory_of_a_running_store_with_a_million_records_is_forecast() {
        super::forecast(1_000_000);
    }
}

#[test]
fn a_store_without_records_and_a_store_that_is_down_end_with_their_exit_codes() {
    let server = RedisServer::start();
    let empty = run("", &["plan", "--from", &server.url()]);
    assert!(empty.code == 4 && empty.err.contains("no consumed record"), "{empty:?}");
    fill(&server, 10);
    let url = server.url();
    let plan = done("", &["plan", "--from", &url, "--rate", "10/s", "--retention", "1h"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["load"]["live"], 36_000.0, "options override the store");
    server.kill();
    let down = run("", &["plan", "--from", &server.url()]);
    assert_eq!(down.code, 7, "{down:?}");
    assert_eq!(run("", &["plan", "--from", &PostgresServer::start().url()]).code, 2);
}

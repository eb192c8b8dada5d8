//! Samples with one mistake each.
use idempotent_deploy_samples::{complaints, processes};

use crate::{Copy, checkout};

#[test]
fn the_samples_have_no_mistake() {
    assert_eq!(complaints(checkout()).unwrap(), Vec::<String>::new());
    assert!(processes(checkout()).unwrap().len() >= 15);
}

/// A file, a text in the file, its replacement, and a part of the complaint.
const MISTAKES: [[&str; 4]; 30] = [
    ["compose/compose.yaml", "stop_grace_period: 30s", "stop_grace_period: 20s", "the stop budget needs 23s"],
    ["compose/compose.yaml", "    stop_grace_period: 75s\n", "", "sets no grace period"],
    ["compose/compose.yaml", "--grace=10s", "--concurrency=4", "do not set the times"],
    ["compose/compose.yaml", "${APP_PASSWORD:?set it in .env}", "${APP_PASSWORD}", "has no `:?`"],
    ["compose/compose.yaml", "${GRAFANA_PASSWORD:?", "${OTHER_PASSWORD:?", "OTHER_PASSWORD is missing"],
    ["compose/.env.example", "APP_PASSWORD=", "APP_PASSWORD=secret", "is no variable without a value"],
    ["compose/.env.example", "GRAFANA_PASSWORD=", "GRAFANA_PASSWORD=\nUNUSED=", "UNUSED of .env.example is not used"],
    ["compose/compose.yaml", "source: broker-url", "source: brokers-url", "there is no config brokers-url"],
    ["compose/compose.yaml", "alerts.yaml:/etc", "alarms.yaml:/etc", "there is no volume or file"],
    ["compose/compose.yaml", "\"redis:/data\"", "\"cache:/data\"", "there is no volume or file cache"],
    ["compose/compose.yaml", "[prometheus]", "[prometheus, alertmanager]", "there is no service alertmanager"],
    ["compose/compose.yaml", "expose: [\"7070\"]", "ports: [\"127.0.0.1:7070:7070\"]", "is published"],
    [
        "compose/compose.yaml",
        "@/run/urls/redis",
        "@/run/urls/cache",
        "names /run/urls/cache, which the sample does not mount",
    ],
    ["compose/compose.yaml", "--keys=@/run/urls/redis", "--keys=redis://app:secret@redis", "contains a URL"],
    ["compose/compose.yaml", "  read_only: true\n", "", "read_only: true is missing"],
    [
        "compose/compose.yaml",
        "127.0.0.1:8080/readyz",
        "127.0.0.1:8081/readyz",
        "the health check does not ask port 8080",
    ],
    ["compose/prometheus.yaml", "relay:8080", "relay:8081", "differ in relay:8081"],
    [
        "compose/prometheus.yaml",
        "scrape_interval",
        "# idempotent_nothing\n  scrape_interval",
        "idempotent_nothing is no metric",
    ],
    ["kubernetes/worker.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 22", "needs 23s"],
    ["kubernetes/api.yaml", "seconds: 5 }", "seconds: 15 }", "the stop budget needs 51s"],
    ["kubernetes/worker.yaml", "maxUnavailable: 0", "maxUnavailable: 1", "maxUnavailable is not 0"],
    [
        "kubernetes/worker.yaml",
        "minAvailable: 1\n  selector:\n    matchLabels: { app: worker }",
        "minAvailable: 1\n  selector:\n    matchLabels: { app: workers }",
        "selects no pod",
    ],
    ["kubernetes/worker.yaml", "{ key: broker-url,", "{ key: amqp-url,", "no secret shop-urls with amqp-url"],
    ["kubernetes/worker.yaml", "path: broker-url }", "path: broker }", "which the sample does not mount"],
    ["kubernetes/worker.yaml", "- name: urls", "- name: secrets", "there is no volume urls"],
    ["kubernetes/worker.yaml", "path: /healthz", "path: /readyz", "livenessProbe does not ask /healthz"],
    ["kubernetes/worker.yaml", "containerPort: 8080", "containerPort: 8090", "listens on port 8080"],
    ["kubernetes/worker.yaml", "        fsGroup: 65532\n", "", "fsGroup"],
    ["kubernetes/network-policy.yaml", "port: console", "port: web", "has no port web"],
    ["kubernetes/kustomization.yaml", "  - relay.yaml\n", "", "relay.yaml is not both listed and present"],
];

#[test]
fn each_mistake_in_a_sample_is_a_complaint() {
    for [file, old, new, expected] in MISTAKES {
        let copy = Copy::new();
        copy.replace(file, old, new);
        let all = complaints(&copy.path()).unwrap();
        assert!(all.iter().any(|complaint| complaint.contains(expected)), "{file}: {old}: {all:?}");
    }
    let copy = Copy::new();
    copy.replace("systemd/idempotent-worker@.service", "TimeoutStopSec=30s", "TimeoutStopSec=10s");
    let all = complaints(&copy.path()).unwrap();
    assert!(all[0].contains("the grace period is 10s, and the stop budget needs 23s"), "{all:?}");
}

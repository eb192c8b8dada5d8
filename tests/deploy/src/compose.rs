//! The sample for Compose.
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::process::{PROGRAMS, Process};
use crate::yaml::{array, documents, entries, text, texts};
use crate::{Failure, read};

const FILE: &str = "compose.yaml";

/// Returns the processes of this project's programs.
pub(crate) fn processes(deploy: &Path) -> Result<Vec<Process>, Failure> {
    let compose = compose(deploy)?;
    entries(&compose["services"])
        .filter(|(_, service)| is_own(service))
        .map(|(name, service)| process(name, service))
        .collect()
}

/// Returns what is wrong with references, variables, ports and privileges.
pub(crate) fn complaints(deploy: &Path) -> Result<Vec<String>, Failure> {
    let folder = deploy.join("compose");
    let compose = compose(deploy)?;
    let mut all = variables(&read(&folder.join(FILE))?, &read(&folder.join(".env.example"))?);
    for (name, service) in entries(&compose["services"]) {
        all.extend(references(name, service, &compose, &folder));
        if is_own(service) {
            all.extend(privileges(name, service));
            all.extend(probe(name, &process(name, service)?, service));
        }
    }
    all.extend(unused(&compose));
    all.extend(scrape_targets(&documents(&folder.join("prometheus.yaml"))?, &processes(deploy)?));
    Ok(all.into_iter().map(|complaint| format!("{FILE}: {complaint}")).collect())
}

fn compose(deploy: &Path) -> Result<Value, Failure> {
    Ok(documents(&deploy.join("compose").join(FILE))?.pop().ok_or("compose.yaml is empty")?)
}

fn is_own(service: &Value) -> bool {
    PROGRAMS.contains(&text(&service["image"]).as_str())
}

fn process(name: &str, service: &Value) -> Result<Process, Failure> {
    let grace = &service["stop_grace_period"];
    let grace = grace.as_str().map(humantime::parse_duration).transpose();
    Ok(Process {
        place: format!("{FILE}, {name}"),
        program: text(&service["image"]),
        arguments: texts(&service["command"]),
        files: array(&service["configs"]).iter().map(|config| text(&config["target"])).collect(),
        grace: grace.map_err(|error| format!("{name}: stop_grace_period: {error}"))?,
        pre_stop: Duration::ZERO,
    })
}

/// Each variable is required, and `.env.example` lists exactly the variables, without values.
fn variables(compose: &str, example: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut used = BTreeSet::new();
    for part in compose.split("${").skip(1) {
        let expression = part.split('}').next().unwrap_or_default();
        match expression.split_once(":?") {
            Some((name, _)) => _ = used.insert(name),
            None => all.push(format!("${{{expression}}} has no `:?`, so the start does not fail without it")),
        }
    }
    let mut listed = BTreeSet::new();
    for line in example.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once('=') {
            Some((name, "")) => _ = listed.insert(name),
            _ => all.push(format!(".env.example: `{line}` is no variable without a value")),
        }
    }
    all.extend(used.difference(&listed).map(|name| format!("{name} is missing in .env.example")));
    all.extend(listed.difference(&used).map(|name| format!("{name} of .env.example is not used")));
    all
}

/// Each config, volume, folder and service that a service names exists.
fn references(name: &str, service: &Value, compose: &Value, folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for config in array(&service["configs"]) {
        let source = text(&config["source"]);
        if compose["configs"].get(&source).is_none() {
            all.push(format!("{name}: there is no config {source}"));
        }
    }
    for volume in texts(&service["volumes"]) {
        let source = volume.split(':').next().unwrap_or_default();
        let exists = if source.starts_with('.') {
            folder.join(source).exists()
        } else {
            compose["volumes"].get(source).is_some()
        };
        if !exists {
            all.push(format!("{name}: there is no volume or file {source}"));
        }
    }
    let needs = &service["depends_on"];
    for needed in texts(needs).iter().chain(entries(needs).map(|(needed, _)| needed)) {
        if compose["services"].get(needed).is_none() {
            all.push(format!("{name}: there is no service {needed}"));
        }
    }
    for port in texts(&service["ports"]).iter().filter(|port| name == "console" || !port.starts_with("127.0.0.1:")) {
        all.push(format!("{name}: {port} is published"));
    }
    if service.get("environment").is_some_and(|environment| environment.to_string().contains("${")) {
        all.push(format!("{name}: a secret is in the environment; mount a file"));
    }
    all
}

/// Each volume and config is used.
fn unused(compose: &Value) -> Vec<String> {
    let services = compose["services"].to_string();
    let configs = entries(&compose["configs"]).map(|(name, _)| (name, format!("\"source\":\"{name}\"")));
    let volumes = entries(&compose["volumes"]).map(|(name, _)| (name, format!("\"{name}:/")));
    let all = configs.chain(volumes).filter(|(_, used)| !services.contains(used));
    all.map(|(name, _)| format!("no service uses {name}")).collect()
}

/// A container of this project has no privileges, and an init process that passes signals on.
fn privileges(name: &str, service: &Value) -> Vec<String> {
    let conditions = [
        (service["read_only"] == true, "read_only: true"),
        (texts(&service["cap_drop"]) == ["ALL"], "cap_drop: [ALL]"),
        (texts(&service["security_opt"]) == ["no-new-privileges:true"], "no-new-privileges"),
        (service["init"] == true, "init: true"),
        (text(&service["stop_signal"]) == "SIGTERM", "stop_signal: SIGTERM"),
    ];
    conditions.iter().filter(|(holds, _)| !holds).map(|(_, what)| format!("{name}: {what} is missing")).collect()
}

/// The health check asks the port of the process.
fn probe(name: &str, process: &Process, service: &Value) -> Option<String> {
    let test = texts(&service["healthcheck"]["test"]);
    let expected = process.values("--listen").next().and(process.port())?;
    let is_right = test.last().is_some_and(|url| url.contains(&format!("://127.0.0.1:{expected}/readyz")));
    (!is_right).then(|| format!("{name}: the health check does not ask port {expected} whether the process is ready"))
}

/// Prometheus scrapes each process that has metrics, and no other.
fn scrape_targets(prometheus: &[Value], processes: &[Process]) -> Vec<String> {
    let mut scraped = BTreeSet::new();
    for job in prometheus.iter().flat_map(|document| array(&document["scrape_configs"])) {
        scraped.extend(array(&job["static_configs"]).iter().flat_map(|group| texts(&group["targets"])));
        for lookup in array(&job["dns_sd_configs"]) {
            scraped.extend(texts(&lookup["names"]).iter().map(|name| format!("{name}:{}", text(&lookup["port"]))));
        }
    }
    let measured = processes.iter().filter(|process| process.values("--listen").next().is_some());
    let name = |process: &Process| process.place.rsplit(' ').next().unwrap_or_default().to_owned();
    let expected: BTreeSet<String> =
        measured.filter_map(|process| Some(format!("{}:{}", name(process), process.port()?))).collect();
    let different = expected.symmetric_difference(&scraped);
    different.map(|target| format!("prometheus.yaml and the services differ in {target}")).collect()
}

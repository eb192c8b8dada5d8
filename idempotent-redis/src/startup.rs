//! Checks of the servers, before a store is used and on request.
mod health_check;
pub(crate) mod permissions;
pub(crate) mod server_info;

use std::time::{Duration, SystemTime};

use idempotent_core::store::{HealthFinding, Severity};
use redis::{Cmd, Pipeline, Value};

use crate::connection::{Connection, refused, text};
use crate::failure::{CallFailure, FailureKind};
use crate::scripts::Dialect;
use crate::startup::permissions::{MissingPermissions, ProbeSet};
use crate::startup::server_info::{ServerInfo, ServerVersion};

/// The requirements that servers are checked against.
#[derive(Clone, Debug)]
pub(crate) struct StartupChecks {
    /// Prefix of the store's keys, before the colon.
    pub(crate) namespace: String,
    /// User name on the server.
    pub(crate) user: String,
    /// Permissions that only some setups need.
    pub(crate) more: Vec<&'static str>,
    pub(crate) allow_eviction: bool,
    /// Number of replicas that claims wait for.
    pub(crate) replicas: u32,
    /// True if the store only reads, so that permissions to write are not needed.
    pub(crate) read_only: bool,
}

/// The result of checking one server.
#[derive(Debug)]
pub(crate) struct ServerReport {
    pub(crate) dialect: Dialect,
    /// True if the server has `SET … IFEQ`.
    pub(crate) compares_natively: bool,
    pub(crate) findings: Vec<HealthFinding>,
    /// Number of keys that the server has evicted since its start, if reported.
    pub(crate) evicted: Option<u64>,
}

/// Protocol version. Workers of different versions must not share a namespace.
pub(crate) const PROTOCOL: u64 = 1;

/// Difference between the clocks above which a check warns.
const APART: Duration = Duration::from_secs(300);

/// Returns the report of the first server that can be reached.
///
/// # Errors
/// The last error, if no server can be reached.
pub(crate) async fn first_report(
    connections: impl Iterator<Item = Connection>,
    checks: &StartupChecks,
) -> Result<ServerReport, CallFailure> {
    let mut failure = CallFailure::unreachable("no server to connect to");
    for connection in connections {
        match inspect(&connection, checks).await {
            Ok(report) => return Ok(report),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

/// Checks one server, in two round trips.
///
/// # Errors
/// The failure, if the server cannot be reached.
pub(crate) async fn inspect(connection: &Connection, checks: &StartupChecks) -> Result<ServerReport, CallFailure> {
    let namespace = &checks.namespace;
    let first = ProbeSet::first(checks.read_only);
    let mut pipeline = Pipeline::new();
    permissions::ask(&mut pipeline, namespace, first);
    pipeline.cmd("HELLO").arg(3);
    let reply = connection.send_pipeline(&pipeline).await?;
    let short =
        || CallFailure::ambiguous("unexpected number of replies to a pipeline; is a proxy rewriting responses?");
    let (harmless, rest) = reply.split_at_checked(first.count()).ok_or_else(short)?;
    let [hello] = rest else { return Err(short()) };
    // A transient failure says nothing about the server's configuration.
    for reply in harmless {
        if let Err(failure) = refused(reply.clone())
            && failure.kind == FailureKind::Transient
        {
            return Err(failure);
        }
    }

    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    let info = permissions::answer(first, harmless, "info").and_then(text);
    let info = info.map(ServerInfo);
    let found = info.and_then(ServerVersion::of).or_else(|| greeted(hello));
    let compares_natively = found.as_ref().is_some_and(ServerVersion::compares_natively);
    let dialect = version(&mut findings, found, permissions::dialect(harmless));

    let rest = ProbeSet::of(dialect, checks.read_only);
    let mut pipeline = Pipeline::new();
    permissions::ask(&mut pipeline, namespace, rest);
    pipeline.cmd("CONFIG").arg("GET").arg("save");
    let more = connection.send_pipeline(&pipeline).await?;
    let (save, more) = more.split_last().ok_or_else(short)?;
    let mut missing = MissingPermissions::default();
    permissions::missing(&mut missing, first, harmless, namespace);
    permissions::missing(&mut missing, rest, more, namespace);
    rights(&mut findings, checks, missing, dialect, connection.is_listening());
    eviction(&mut findings, info, checks.allow_eviction);
    persistence(&mut findings, info, save);
    replication(&mut findings, info, checks.replicas);
    clock(&mut findings, permissions::answer(first, harmless, "time"));
    let evicted = info.and_then(|info| info.number("evicted_keys"));
    Ok(ServerReport { dialect, compares_natively, findings: findings.all, evicted })
}

/// Returns the version in the reply to `HELLO`, which needs no permissions.
fn greeted(hello: &Value) -> Option<ServerVersion> {
    let Value::Map(pairs) = hello else { return None };
    let reply = |name: &str| pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value));
    ServerVersion::greeted(reply("server")?, reply("version")?)
}

/// Checks the version and returns the dialect. A probe takes precedence over the version number.
fn version(findings: &mut ServerFindings<'_>, version: Option<ServerVersion>, takes: Option<Dialect>) -> Dialect {
    let Some(version) = version else {
        findings.warn("version", "the server reports no version; Redis 6.2 or later is required");
        return takes.unwrap_or(Dialect::Flags);
    };
    if version.is_too_old() {
        findings.refuse("version", format!("{version} is too old; use Redis 6.2 or later, or Valkey"));
    } else if version.is_tested() {
        findings.ok("version", version.to_string());
    } else {
        findings.warn("version", format!("{version} is untested; use Redis or Valkey"));
    }
    takes.unwrap_or_else(|| version.dialect())
}

fn rights(
    findings: &mut ServerFindings<'_>,
    checks: &StartupChecks,
    mut missing: MissingPermissions,
    dialect: Dialect,
    hears: bool,
) {
    if !hears && !checks.read_only && missing.partly.iter().all(|rule| !rule.starts_with('&')) {
        missing.partly.push("+subscribe".to_owned());
    }
    let StartupChecks { namespace, user, more, read_only, .. } = checks;
    let describe = |rules: &[String]| {
        let (rules, rule) = (rules.join(" "), permissions::rule(namespace, dialect, more, *read_only));
        format!(
            "the user `{user}` lacks `{rules}`; grant it with `ACL SETUSER {user} {rules}`; the whole rule is `{rule}`"
        )
    };
    if !missing.needed.is_empty() {
        findings.deny("rights", describe(&missing.needed));
    }
    if !missing.partly.is_empty() {
        let what = "without it, waiters poll, nothing is cached, or records cannot be listed or checked";
        findings.warn("rights", format!("{}; {what}", describe(&missing.partly)));
    }
    if missing == MissingPermissions::default() {
        findings.ok("rights", format!("the user `{user}` has all required permissions"));
    }
}

/// Checks the eviction policy, past evictions, and whether the memory is full. Eviction removes leases first, and with them the
/// guarantees.
pub(crate) fn eviction(findings: &mut ServerFindings<'_>, info: Option<ServerInfo<'_>>, allowed: bool) {
    let found = info.and_then(|info| Some((info.number("maxmemory")?, info.line("maxmemory_policy")?)));
    let number = |name: &str| info.and_then(|info| info.number(name)).unwrap_or_default();
    let (evicted, used) = (number("evicted_keys"), number("used_memory"));
    let (text, harmless) = match found {
        Some((0, _)) => ("maxmemory is 0; nothing is evicted".to_owned(), true),
        Some((_, "noeviction")) => ("noeviction; new claims are rejected when memory is full".to_owned(), true),
        Some((bytes, policy)) => {
            let text = "records can be evicted while their keys are in flight or retained";
            (format!("maxmemory-policy is `{policy}` with maxmemory {bytes}; {text}"), false)
        }
        None => (
            "whether the server evicts records is unknown: `INFO` is denied (grant `+info`) or incomplete".to_owned(),
            false,
        ),
    };
    let past = "keys were evicted since the server started, and each may have been a record";
    let text = if evicted == 0 { text } else { format!("{text}; {evicted} {past}") };
    match (harmless, allowed) {
        (true, _) if evicted > 0 => {
            findings.warn("eviction", format!("{text}; duplicates may run; `CONFIG RESETSTAT` resets the number"));
        }
        (true, _) if found.is_some_and(|(bytes, _)| bytes > 0 && used >= bytes) => {
            let remedy = "raise `maxmemory`, or shorten `retain`";
            findings.warn("eviction", format!("{text}; the memory is full now: {used} bytes are used; {remedy}"));
        }
        (true, _) => findings.ok("eviction", text),
        (false, true) => findings.warn("eviction", format!("{text}; allowed by `allow_eviction`")),
        (false, false) => findings.refuse(
            "eviction",
            format!(
                "{text}; set `maxmemory-policy noeviction`, or allow it with `RedisStoreBuilder::allow_eviction(true)`"
            ),
        ),
    }
}

fn persistence(findings: &mut ServerFindings<'_>, info: Option<ServerInfo<'_>>, save: &Value) {
    let Some(info) = info else { return };
    if info.line("aof_enabled") == Some("1") {
        return findings.ok("persistence", "an append-only file");
    }
    match snapshots(save) {
        Some(true) => findings.ok("persistence", "snapshots; a restart loses the writes since the last one"),
        Some(false) => findings.warn(
            "persistence",
            "no persistence: a restart loses every record, and consumed keys run again; set `appendonly yes`, also in redis.conf",
        ),
        None => findings.warn(
            "persistence",
            "no append-only file, and snapshots are unknown; a restart loses the writes since the last one",
        ),
    }
}

/// Returns whether the server takes snapshots. Returns `None` if `CONFIG` is denied, as on managed services.
fn snapshots(save: &Value) -> Option<bool> {
    let rules = match save {
        Value::Map(pairs) => text(&pairs.first()?.1)?,
        Value::Array(words) => text(words.get(1)?)?,
        _ => return None,
    };
    Some(!rules.is_empty())
}

fn replication(findings: &mut ServerFindings<'_>, info: Option<ServerInfo<'_>>, wanted: u32) {
    let Some(info) = info else { return };
    let replicas = info.number("connected_slaves").unwrap_or_default();
    if info.line("role") == Some("slave") {
        findings.warn(
            "replication",
            "this is a replica and rejects writes; connect to the primary or use redis+sentinel://",
        );
    } else if replicas < u64::from(wanted) {
        findings.warn(
            "replication",
            format!(
                "durability requires {wanted} replicas and {replicas} are connected; every claim is rejected until enough \
                 are"
            ),
        );
    } else if replicas == 0 {
        findings.ok("replication", "a primary without replicas");
    } else if info.line("min_slaves_good_slaves").is_some() {
        findings.ok("replication", format!("a primary with {replicas} replicas, and min-replicas-to-write is set"));
    } else {
        findings.warn(
            "replication",
            format!(
                "{replicas} replicas, and min-replicas-to-write is 0; a primary that is cut off keeps granting claims, and \
                 writes not yet replicated are lost with it"
            ),
        );
    }
}

/// Compares the clocks. The finding is only informative, because records use the server's clock.
fn clock(findings: &mut ServerFindings<'_>, time: Option<&Value>) {
    let local = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let Some(Value::Array(parts)) = time else { return };
    let Some(seconds) = parts.first().and_then(text).and_then(|seconds| seconds.parse().ok()) else { return };
    let apart = local.abs_diff(Duration::from_secs(seconds));
    if apart > APART {
        let minutes = apart.as_secs() / 60;
        let text = "records use the server's clock, and a clock that is set back delays takeovers";
        findings.warn("clock", format!("differs by {minutes} minutes from the local clock; {text}"));
    } else {
        findings.ok("clock", "agrees with the local clock within 5 minutes");
    }
}

/// Reads the namespace's epoch. With `create`, writes a missing epoch.
///
/// # Errors
/// The failure, if the server cannot be reached or does not own the key.
pub(crate) async fn epoch(
    connection: &Connection,
    namespace: &str,
    create: bool,
) -> Result<Vec<HealthFinding>, CallFailure> {
    let key = permissions::epoch_key(namespace);
    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    let mut found = read(connection, &key).await;
    if create && matches!(found, Ok(None)) {
        let mut set = Cmd::new();
        set.arg("SET").arg(&key).arg(PROTOCOL).arg("NX");
        match connection.send(&set).await {
            // Another process may have written the epoch at the same moment.
            Ok(_) => found = read(connection, &key).await,
            Err(failure) if is_of_state(&failure) => {
                let text = "cannot be written now; workers of another version go unnoticed";
                findings.warn("epoch", format!("`{key}` {text}: {}", failure.text()));
                return Ok(findings.all);
            }
            Err(failure) => return Err(failure),
        }
    }
    match found {
        Ok(Some(number)) if number == PROTOCOL.to_string() => findings.ok("epoch", format!("`{key}` is {PROTOCOL}")),
        Ok(Some(number)) if number.parse::<u64>().is_ok() => findings.refuse(
            "epoch",
            format!(
                "`{key}` is {number}, but this version uses protocol {PROTOCOL}; workers of both must not share a namespace; \
                 use another namespace, or stop the other workers and delete the key"
            ),
        ),
        Ok(None) if create => {
            findings.warn("epoch", format!("`{key}` was written and is gone; is something flushing this server?"));
        }
        Ok(None) => findings.warn(
            "epoch",
            format!(
                "`{key}` is missing; no worker has opened this namespace, or the server has lost its keys; opening the \
                 store without `read_only` writes the key"
            ),
        ),
        Ok(Some(_)) => findings.refuse("epoch", format!("`{key}` is not a number; the key was not written by this library")),
        Err(failure) if failure.text().starts_with("WRONGTYPE") => {
            findings.refuse("epoch", format!("`{key}` is not a number; the key was not written by this library"));
        }
        Err(failure) => return Err(failure),
    }
    Ok(findings.all)
}

async fn read(connection: &Connection, key: &str) -> Result<Option<String>, CallFailure> {
    match connection.send(Cmd::new().arg("GET").arg(key)).await? {
        Value::Nil => Ok(None),
        reply => Ok(Some(text(&reply).unwrap_or_default().to_owned())),
    }
}

/// Returns whether the server accepts no writes at the moment, which is not an error of the check.
fn is_of_state(failure: &CallFailure) -> bool {
    failure.kind == FailureKind::NotPrimary
        || failure.kind == FailureKind::Store(idempotent_core::StoreErrorKind::NotApplied)
}

/// A collector for the findings about one server.
#[derive(Debug)]
pub(crate) struct ServerFindings<'a> {
    pub(crate) server: &'a str,
    pub(crate) all: Vec<HealthFinding>,
}

impl ServerFindings<'_> {
    pub(crate) fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Ok, subject, text);
    }

    pub(crate) fn warn(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Warn, subject, text);
    }

    pub(crate) fn refuse(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Refuse, subject, text);
    }

    /// Adds a finding of severity `Refuse` for missing permissions.
    pub(crate) fn deny(&mut self, subject: &'static str, text: impl Into<String>) {
        self.all.push(HealthFinding::denied(subject, self.server, text));
    }

    fn add(&mut self, severity: Severity, subject: &'static str, text: impl Into<String>) {
        self.all.push(HealthFinding::new(severity, subject, self.server, text));
    }
}

//! What is looked at before a store is used, and whenever somebody asks.
mod health_check;
pub(crate) mod health_report;
pub(crate) mod permissions;
pub(crate) mod server_info;

use std::time::{Duration, SystemTime};

use redis::{Cmd, Pipeline, Value};

use crate::connection::{Connection, refused};
use crate::failure::{CallFailure, FailureKind};
use crate::scripts::Dialect;
use crate::startup::health_report::{Finding, ServerFindings};
use crate::startup::permissions::{MissingPermissions, ProbeSet};
use crate::startup::server_info::{ServerInfo, ServerVersion};

/// What servers are held against.
#[derive(Clone, Debug)]
pub(crate) struct StartupChecks {
    /// Before the colon of our keys.
    pub(crate) namespace: String,
    /// As whom we ask.
    pub(crate) user: String,
    /// Rights that not every store needs.
    pub(crate) more: Vec<&'static str>,
    pub(crate) allow_eviction: bool,
    /// That claims wait for.
    pub(crate) replicas: u32,
}

/// What one server said.
#[derive(Debug)]
pub(crate) struct ServerReport {
    pub(crate) dialect: Dialect,
    pub(crate) findings: Vec<Finding>,
    /// Keys it has evicted since it started; nothing where it does not say.
    pub(crate) evicted: Option<u64>,
}

/// The number of what `protocol.md` lays down: workers of different ones must not share a namespace.
pub(crate) const PROTOCOL: u64 = 1;

/// Clocks further apart than this are worth a word.
const APART: Duration = Duration::from_secs(300);

/// The form of scripts that the first of some servers takes which can be asked.
///
/// # Errors
/// The last one's, where none can.
pub(crate) async fn dialect(
    connections: impl Iterator<Item = Connection>,
    checks: &StartupChecks,
) -> Result<Dialect, CallFailure> {
    let mut failure = CallFailure::unreachable("there is nobody to ask");
    for connection in connections {
        match inspect(&connection, checks).await {
            Ok(report) => return Ok(report.dialect),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

/// Looks at one server, in two trips.
///
/// # Errors
/// Where it cannot be asked.
pub(crate) async fn inspect(connection: &Connection, checks: &StartupChecks) -> Result<ServerReport, CallFailure> {
    let namespace = &checks.namespace;
    let mut pipeline = Pipeline::new();
    permissions::ask(&mut pipeline, namespace, ProbeSet::First);
    pipeline.cmd("HELLO").arg(3);
    let reply = connection.send_pipeline(&pipeline).await?;
    let short = || CallFailure::ambiguous("the server gave another number of answers than it was asked");
    let (harmless, rest) = reply.split_at_checked(ProbeSet::First.count()).ok_or_else(short)?;
    let [hello] = rest else { return Err(short()) };
    // What passes in a moment is not what the server is like.
    for reply in harmless {
        if let Err(failure) = refused(reply.clone())
            && failure.kind == FailureKind::Transient
        {
            return Err(failure);
        }
    }

    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    let info = permissions::answer(harmless, "info").and_then(text);
    let info = info.map(ServerInfo);
    let found = info.and_then(ServerVersion::of).or_else(|| greeted(hello));
    let dialect = version(&mut findings, found, permissions::dialect(harmless));

    let mut pipeline = Pipeline::new();
    permissions::ask(&mut pipeline, namespace, ProbeSet::In(dialect));
    pipeline.cmd("CONFIG").arg("GET").arg("save");
    let more = connection.send_pipeline(&pipeline).await?;
    let (save, more) = more.split_last().ok_or_else(short)?;
    let mut missing = MissingPermissions::default();
    permissions::missing(&mut missing, ProbeSet::First, harmless, namespace);
    permissions::missing(&mut missing, ProbeSet::In(dialect), more, namespace);
    rights(&mut findings, checks, missing, dialect, connection.is_listening());
    eviction(&mut findings, info, checks.allow_eviction);
    persistence(&mut findings, info, save);
    replication(&mut findings, info, checks.replicas);
    clock(&mut findings, permissions::answer(harmless, "time"));
    let evicted = info.and_then(|info| info.number("evicted_keys"));
    Ok(ServerReport { dialect, findings: findings.all, evicted })
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What it says to everybody, whatever they may do.
fn greeted(hello: &Value) -> Option<ServerVersion> {
    let Value::Map(pairs) = hello else { return None };
    let reply = |name: &str| pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value));
    ServerVersion::greeted(reply("server")?, reply("version")?)
}

/// What a server takes counts, and where that does not tell, its number.
fn version(findings: &mut ServerFindings<'_>, version: Option<ServerVersion>, takes: Option<Dialect>) -> Dialect {
    let Some(version) = version else {
        findings.warn("version", "it does not say which version it is, at least Redis 6.2 is needed");
        return takes.unwrap_or(Dialect::Flags);
    };
    if version.is_too_old() {
        findings.refuse("version", format!("{version} is too old: at least Redis 6.2, or Valkey, is needed"));
    } else if version.is_tested() {
        findings.ok("version", version.to_string());
    } else {
        findings.warn("version", format!("{version} is not tested: Redis and Valkey are"));
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
    if !hears && missing.partly.iter().all(|rule| !rule.starts_with('&')) {
        missing.partly.push("+subscribe".to_owned());
    }
    let StartupChecks { namespace, user, more, .. } = checks;
    let describe = |rules: &[String]| {
        let (rules, rule) = (rules.join(" "), permissions::rule(namespace, dialect, more));
        format!(
            "the user `{user}` lacks `{rules}`: grant it by `ACL SETUSER {user} {rules}`; the whole rule is `{rule}`"
        )
    };
    if !missing.needed.is_empty() {
        findings.deny("rights", describe(&missing.needed));
    }
    if !missing.partly.is_empty() {
        let what = "without it waiters poll, nothing is cached, or records cannot be listed or checked";
        findings.warn("rights", format!("{}; {what}", describe(&missing.partly)));
    }
    if missing == MissingPermissions::default() {
        findings.ok("rights", format!("the user `{user}` may do what is needed"));
    }
}

/// Eviction takes leases first, and with them the promise.
pub(crate) fn eviction(findings: &mut ServerFindings<'_>, info: Option<ServerInfo<'_>>, allowed: bool) {
    let found = info.and_then(|info| Some((info.number("maxmemory")?, info.line("maxmemory_policy")?)));
    let (text, harmless) = match found {
        Some((0, _)) => ("maxmemory is 0: nothing is evicted".to_owned(), true),
        Some((_, "noeviction")) => ("noeviction: with its memory full it refuses new claims".to_owned(), true),
        Some((bytes, policy)) => {
            let text = "records would vanish while their keys are in flight or remembered";
            (format!("maxmemory-policy is `{policy}` with maxmemory {bytes}: {text}"), false)
        }
        None => (
            "whether it evicts records cannot be asked: `INFO` is refused (the user needs `+info`) or does not say"
                .to_owned(),
            false,
        ),
    };
    match (harmless, allowed) {
        (true, _) => findings.ok("eviction", text),
        (false, true) => findings.warn("eviction", format!("{text}; `allow_eviction` lets it pass")),
        (false, false) => findings.refuse(
            "eviction",
            format!(
                "{text}; set `maxmemory-policy noeviction`, or accept it by `RedisStoreBuilder::allow_eviction(true)`"
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
        Some(true) => findings.ok("persistence", "snapshots: a restart forgets what came after the last one"),
        Some(false) => findings.warn(
            "persistence",
            "none: a restart forgets every record, and what was consumed runs again; set `appendonly yes`",
        ),
        None => findings.warn(
            "persistence",
            "no append-only file, and whether there are snapshots is not said: a restart forgets what came after the last",
        ),
    }
}

/// Nothing where `CONFIG` is refused, as managed services do.
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
        findings
            .warn("replication", "this is a replica, it takes no writes: name the primary, or use redis+sentinel://");
    } else if replicas < u64::from(wanted) {
        findings.warn(
            "replication",
            format!(
                "the durability asks for {wanted} replicas and {replicas} are connected: until there are as many, every \
                 claim is refused"
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
                "{replicas} replicas, and min-replicas-to-write is 0: a primary that is cut off goes on granting, and what \
                 replicas had not yet is lost with it"
            ),
        );
    }
}

/// Only told: records go by the server's clock alone.
fn clock(findings: &mut ServerFindings<'_>, time: Option<&Value>) {
    let local = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let Some(Value::Array(parts)) = time else { return };
    let Some(seconds) = parts.first().and_then(text).and_then(|seconds| seconds.parse().ok()) else { return };
    let apart = local.abs_diff(Duration::from_secs(seconds));
    if apart > APART {
        let minutes = apart.as_secs() / 60;
        let text = "times of records are the server's, and one that is set back by that much delays takeovers";
        findings.warn("clock", format!("it is {minutes} minutes from this machine's: {text}"));
    } else {
        findings.ok("clock", "it agrees with this machine's to 5 minutes");
    }
}

/// Reads the namespace's epoch, and writes it where there is none.
///
/// # Errors
/// Where the server cannot be asked, or is not the key's.
pub(crate) async fn epoch(connection: &Connection, namespace: &str) -> Result<Vec<Finding>, CallFailure> {
    let key = permissions::epoch_key(namespace);
    let server = connection.name();
    let mut findings = ServerFindings { server: &server, all: Vec::new() };
    let mut found = read(connection, &key).await;
    if matches!(found, Ok(None)) {
        let mut set = Cmd::new();
        set.arg("SET").arg(&key).arg(PROTOCOL).arg("NX");
        match connection.send(&set).await {
            // Perhaps by another, at the same moment: looked at again.
            Ok(_) => found = read(connection, &key).await,
            Err(failure) if is_of_state(&failure) => {
                let text = "cannot be written now, so that workers of another version would not be noticed";
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
                "`{key}` says {number}, this version keeps records by protocol {PROTOCOL}: workers of both must not share \
                 a namespace; give this one another, or let the last of the other end and remove the key"
            ),
        ),
        Ok(None) => findings.warn("epoch", format!("`{key}` was written and is gone: does something empty this server?")),
        Ok(Some(_)) => findings.refuse("epoch", format!("`{key}` is not a number: somebody else's key lies there")),
        Err(failure) if failure.text().starts_with("WRONGTYPE") => {
            findings.refuse("epoch", format!("`{key}` is not a number: somebody else's key lies there"));
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

/// The server takes no write now; that it was asked is no fault.
fn is_of_state(failure: &CallFailure) -> bool {
    failure.kind == FailureKind::NotPrimary
        || failure.kind == FailureKind::Store(idempotent_core::StoreErrorKind::NotApplied)
}

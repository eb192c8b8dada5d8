//! The manifests for Kubernetes.
mod network;
mod pod;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use self::pod::Pod;
use crate::process::Process;
use crate::yaml::{documents, entries, text, texts};
use crate::{Failure, files, name_of};

/// A manifest, and its file.
struct Manifest {
    file: String,
    value: Value,
}

impl Manifest {
    fn kind(&self) -> String {
        text(&self.value["kind"])
    }

    fn place(&self) -> String {
        format!("{}, {} {}", self.file, self.kind(), text(&self.value["metadata"]["name"]))
    }
}

/// The file that tells kustomize which manifests belong together.
const KUSTOMIZATION: &str = "kustomization.yaml";
/// Files that an operator applies separately: the secret has no values, and the migration precedes the rollout.
const SEPARATE: [&str; 2] = ["migrate.yaml", "secret.example.yaml"];

/// Returns the processes of this project's programs.
pub(crate) fn processes(deploy: &Path) -> Result<Vec<Process>, Failure> {
    Ok(pods(&manifests(deploy)?).iter().flat_map(Pod::processes).collect())
}

/// Returns what is wrong with references, selectors, probes and privileges.
pub(crate) fn complaints(deploy: &Path) -> Result<Vec<String>, Failure> {
    let manifests = manifests(deploy)?;
    let pods = pods(&manifests);
    let mut all = listed(deploy)?;
    let secrets = secrets(&manifests);
    for pod in &pods {
        all.extend(pod.complaints());
        all.extend(
            pod.secrets().difference(&secrets).map(|(name, key)| format!("{}: no secret {name} with {key}", pod.place)),
        );
    }
    let used: BTreeSet<_> = pods.iter().flat_map(Pod::secrets).collect();
    all.extend(secrets.difference(&used).map(|(name, key)| format!("no pod uses {key} of the secret {name}")));
    for manifest in &manifests {
        all.extend(selector(manifest, &pods));
        all.extend(network::complaints(manifest, &pods));
        if manifest.kind() == "Deployment" {
            all.extend(deployment(manifest));
        }
    }
    all.extend(budgets(&manifests));
    Ok(all)
}

fn manifests(deploy: &Path) -> Result<Vec<Manifest>, Failure> {
    let mut all = Vec::new();
    for path in files(&deploy.join("kubernetes"), "yaml")? {
        let file = name_of(&path);
        if file != KUSTOMIZATION {
            all.extend(documents(&path)?.into_iter().map(|value| Manifest { file: file.clone(), value }));
        }
    }
    Ok(all)
}

fn pods(manifests: &[Manifest]) -> Vec<Pod> {
    manifests.iter().filter_map(Pod::of).collect()
}

/// The kustomization lists each file except the separate ones.
fn listed(deploy: &Path) -> Result<Vec<String>, Failure> {
    let folder = deploy.join("kubernetes");
    let kustomization = documents(&folder.join(KUSTOMIZATION))?;
    let listed: BTreeSet<String> = kustomization.iter().flat_map(|document| texts(&document["resources"])).collect();
    let found = files(&folder, "yaml")?.iter().map(|path| name_of(path)).collect::<BTreeSet<_>>();
    let apart = [KUSTOMIZATION].into_iter().chain(SEPARATE).map(str::to_owned).collect();
    let expected: BTreeSet<String> = found.difference(&apart).cloned().collect();
    let different = expected.symmetric_difference(&listed);
    Ok(different.map(|file| format!("{KUSTOMIZATION}: {file} is not both listed and present")).collect())
}

/// Returns the name and the keys of each secret.
fn secrets(manifests: &[Manifest]) -> BTreeSet<(String, String)> {
    let secrets = manifests.iter().filter(|manifest| manifest.kind() == "Secret");
    let keys = secrets.flat_map(|secret| {
        let name = text(&secret.value["metadata"]["name"]);
        entries(&secret.value["stringData"]).map(move |(key, _)| (name.clone(), key.clone()))
    });
    keys.collect()
}

/// A selector of a Deployment, a Service or a budget selects a pod.
fn selector(manifest: &Manifest, pods: &[Pod]) -> Option<String> {
    let selector = match manifest.kind().as_str() {
        "Deployment" | "PodDisruptionBudget" => &manifest.value["spec"]["selector"]["matchLabels"],
        "Service" => &manifest.value["spec"]["selector"],
        _ => return None,
    };
    let found =
        pods.iter().any(|pod| pod.has(selector) && (manifest.kind() != "Deployment" || pod.place == manifest.place()));
    (!found).then(|| format!("{}: the selector selects no pod", manifest.place()))
}

/// A Deployment without a budget of downtime replaces its pods one by one.
fn deployment(manifest: &Manifest) -> Option<String> {
    let strategy = &manifest.value["spec"]["strategy"];
    let is_alone = manifest.value["spec"]["replicas"] == 1 && strategy["type"] == "Recreate";
    let is_safe = strategy["rollingUpdate"]["maxUnavailable"] == 0;
    (!is_safe && !is_alone).then(|| format!("{}: maxUnavailable is not 0", manifest.place()))
}

/// Each Deployment of several pods has a disruption budget.
fn budgets(manifests: &[Manifest]) -> Vec<String> {
    let budgets: Vec<&Value> =
        manifests.iter().filter(|m| m.kind() == "PodDisruptionBudget").map(|m| &m.value).collect();
    let several = manifests.iter().filter(|m| m.kind() == "Deployment" && m.value["spec"]["replicas"] != 1);
    let without =
        several.filter(|m| !budgets.iter().any(|budget| budget["spec"]["selector"] == m.value["spec"]["selector"]));
    without.map(|manifest| format!("{}: no PodDisruptionBudget", manifest.place())).collect()
}

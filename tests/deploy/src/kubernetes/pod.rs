//! The template of a pod.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::Manifest;
use crate::process::{PROGRAMS, Process};
use crate::yaml::{array, entries, text, texts};

/// A pod that a manifest creates.
pub(super) struct Pod {
    pub(super) place: String,
    labels: Value,
    spec: Value,
    /// The pod runs until it is stopped.
    is_service: bool,
}

impl Pod {
    pub(super) fn of(manifest: &Manifest) -> Option<Self> {
        let spec = &manifest.value["spec"];
        let template = match manifest.kind().as_str() {
            "Deployment" | "Job" => &spec["template"],
            "CronJob" => &spec["jobTemplate"]["spec"]["template"],
            _ => return None,
        };
        Some(Self {
            place: manifest.place(),
            labels: template["metadata"]["labels"].clone(),
            spec: template["spec"].clone(),
            is_service: manifest.kind() == "Deployment",
        })
    }

    /// Returns whether the pod has all of these labels.
    pub(super) fn has(&self, labels: &Value) -> bool {
        entries(labels).all(|(name, value)| self.labels.get(name) == Some(value))
    }

    fn containers(&self) -> impl Iterator<Item = &Value> {
        array(&self.spec["initContainers"]).iter().chain(array(&self.spec["containers"]))
    }

    /// Returns the names and numbers of the ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = (String, String)> {
        let ports = self.containers().flat_map(|container| array(&container["ports"]));
        ports.map(|port| (text(&port["name"]), text(&port["containerPort"])))
    }

    /// Returns the names and keys of the secrets that volumes contain.
    pub(super) fn secrets(&self) -> BTreeSet<(String, String)> {
        let volumes = array(&self.spec["volumes"]).iter().map(|volume| &volume["secret"]);
        let keys = volumes.flat_map(|secret| {
            array(&secret["items"]).iter().map(|item| (text(&secret["secretName"]), text(&item["key"])))
        });
        keys.collect()
    }

    /// Returns the processes of the containers. A container mounts the files that one of its process' pod uses.
    pub(super) fn processes(&self) -> Vec<Process> {
        let volumes: BTreeMap<String, &Value> =
            array(&self.spec["volumes"]).iter().map(|volume| (text(&volume["name"]), volume)).collect();
        let named: Vec<String> = self.containers().flat_map(|container| texts(&container["args"])).collect();
        let process = |container: &Value| {
            let arguments = texts(&container["args"]);
            let mounts = array(&container["volumeMounts"]).iter().filter_map(|mount| {
                let volume = volumes.get(&text(&mount["name"]))?;
                Some((text(&mount["mountPath"]), array(&volume["secret"]["items"])))
            });
            let files = mounts
                .flat_map(|(folder, items)| items.iter().map(move |item| format!("{folder}/{}", text(&item["path"]))));
            // Containers of a pod share a volume: each needs only some of its files.
            let is_own = |path: &String| {
                let is_in = |all: &[String]| all.iter().any(|argument| argument.ends_with(path.as_str()));
                is_in(&arguments) || !is_in(&named)
            };
            let files = files.filter(is_own).collect();
            let pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or_default();
            Process {
                place: self.place.clone(),
                program: text(&container["image"]),
                files,
                arguments,
                grace: self.spec["terminationGracePeriodSeconds"].as_u64().map(Duration::from_secs),
                pre_stop: Duration::from_secs(pre_stop),
            }
        };
        self.containers()
            .filter(|container| PROGRAMS.contains(&text(&container["image"]).as_str()))
            .map(process)
            .collect()
    }

    /// Returns what is wrong with volumes, ports, probes and privileges.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut all = self.privileges();
        let volumes: BTreeSet<String> =
            array(&self.spec["volumes"]).iter().map(|volume| text(&volume["name"])).collect();
        for container in self.containers() {
            let mounts = array(&container["volumeMounts"]).iter().map(|mount| text(&mount["name"]));
            all.extend(mounts.filter(|name| !volumes.contains(name)).map(|name| format!("there is no volume {name}")));
            if container.get("env").is_some() || container.get("envFrom").is_some() {
                all.push("a container has an environment; mount files".to_owned());
            }
            all.extend(self.probes(container));
        }
        for process in self.processes() {
            if let Some(port) =
                process.port().filter(|port| !self.ports().any(|(_, number)| number == port.to_string()))
            {
                all.push(format!("the process listens on port {port}, which the container does not name"));
            }
        }
        all.into_iter().map(|complaint| format!("{}: {complaint}", self.place)).collect()
    }

    /// Liveness and readiness have different paths, neither of which calls a store, and a port that exists.
    fn probes(&self, container: &Value) -> Vec<String> {
        let mut all = Vec::new();
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"].iter().filter_map(|name| container.get(*name))
        {
            let port = [&probe["httpGet"]["port"], &probe["tcpSocket"]["port"]].map(text).concat();
            if !self.ports().any(|(name, number)| name == port || number == port) {
                all.push(format!("a probe asks the port {port}, which does not exist"));
            }
        }
        if self.is_service && text(&container["image"]) == "order_service" {
            for (probe, path) in
                [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")]
            {
                if text(&container[probe]["httpGet"]["path"]) != path {
                    all.push(format!("{probe} does not ask {path}"));
                }
            }
        }
        all
    }

    fn privileges(&self) -> Vec<String> {
        let pod = &self.spec["securityContext"];
        let mut conditions = vec![
            (pod["runAsNonRoot"] == true, "runAsNonRoot"),
            (pod["seccompProfile"]["type"] == "RuntimeDefault", "seccompProfile"),
            (pod["fsGroup"] == pod["runAsGroup"] && pod["fsGroup"].is_u64(), "fsGroup, which makes secrets readable"),
            (self.spec["automountServiceAccountToken"] == false, "automountServiceAccountToken: false"),
        ];
        for container in self.containers() {
            let own = &container["securityContext"];
            conditions.extend([
                (own["allowPrivilegeEscalation"] == false, "allowPrivilegeEscalation: false"),
                (own["readOnlyRootFilesystem"] == true, "readOnlyRootFilesystem"),
                (texts(&own["capabilities"]["drop"]) == ["ALL"], "capabilities: drop ALL"),
                (container["resources"]["limits"]["memory"].is_string(), "a memory limit"),
                (container["resources"]["requests"]["cpu"].is_string(), "a CPU request"),
            ]);
        }
        conditions.iter().filter(|(holds, _)| !holds).map(|(_, what)| format!("{what} is missing")).collect()
    }
}

//! Services and network policies: each port exists in the pods that they select.
use super::Manifest;
use super::pod::Pod;
use crate::yaml::{array, text};

pub(super) fn complaints(manifest: &Manifest, pods: &[Pod]) -> Vec<String> {
    let spec = &manifest.value["spec"];
    let (selector, ports) = match manifest.kind().as_str() {
        "Service" => (&spec["selector"], array(&spec["ports"]).iter().map(|port| text(&port["targetPort"])).collect()),
        "NetworkPolicy" => {
            let ingress = array(&spec["ingress"]).iter().flat_map(|rule| array(&rule["ports"]));
            (&spec["podSelector"]["matchLabels"], ingress.map(|port| text(&port["port"])).collect::<Vec<_>>())
        }
        _ => return Vec::new(),
    };
    let selected: Vec<&Pod> = pods.iter().filter(|pod| pod.has(selector)).collect();
    if selected.is_empty() {
        return vec![format!("{}: the selector selects no pod", manifest.place())];
    }
    let has = |pod: &Pod, port: &String| pod.ports().any(|(name, number)| *port == name || *port == number);
    let missing =
        ports.iter().flat_map(|port| selected.iter().filter(move |pod| !has(pod, port)).map(move |pod| (port, pod)));
    missing.map(|(port, pod)| format!("{}: {} has no port {port}", manifest.place(), pod.place)).collect()
}

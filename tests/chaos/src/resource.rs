//! The resources of the effects: a file, and a resource of the harness that refuses old fencing tokens.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use idempotent_testkit::history::{Kind, Label, Line, Token};
use serde::{Deserialize, Serialize};

/// A row of the file.
#[derive(Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) token: Token,
}

/// Keeps the highest number of each key, and refuses smaller ones.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    highest: BTreeMap<String, u64>,
    effects: Vec<(String, Token)>,
}

impl Fenced {
    /// Writes an effect. Returns whether the resource accepted the effect.
    pub(crate) fn write(&mut self, key: String, token: Token, fence: u64) -> bool {
        let highest = self.highest.entry(key.clone()).or_default();
        if fence < *highest {
            return false;
        }
        *highest = fence;
        self.effects.push((key, token));
        true
    }
}

/// Returns the final contents of both resources by key, also for `keys` without effects.
pub(crate) fn truth(
    fenced: &Fenced,
    file: &Path,
    keys: impl IntoIterator<Item = String>,
    t: u64,
    worker: &Label,
) -> anyhow::Result<Vec<Line>> {
    let mut truth: BTreeMap<String, Vec<Token>> = keys.into_iter().map(|key| (key, Vec::new())).collect();
    for (key, token) in &fenced.effects {
        truth.entry(key.clone()).or_default().push(*token);
    }
    for row in fs::read_to_string(file)?.lines() {
        let row: Row = serde_json::from_str(row).with_context(|| format!("{}: {row}", file.display()))?;
        truth.entry(row.key).or_default().push(row.token);
    }
    let line = |(key, tokens)| Line {
        key: Some(key),
        tokens: Some(tokens),
        ..Line::new(t, worker.clone(), Kind::EffectTruth)
    };
    Ok(truth.into_iter().map(line).collect())
}

//! The names of metrics in the samples.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{Failure, name_of, read};

/// Names with this prefix that are tables.
const TABLES: [&str; 2] = ["idempotent_outbox", "idempotent_record"];

/// Returns a complaint for each name that neither the catalogue nor the list of tables contains.
pub(crate) fn complaints(checkout: &Path) -> Result<Vec<String>, Failure> {
    let catalogue = names(&read(&checkout.join("operate/metrics/src/catalogue.rs"))?);
    let mut all = Vec::new();
    for folder in ["compose", "kubernetes", "systemd"] {
        for entry in fs::read_dir(checkout.join("deploy").join(folder))? {
            let path = entry?.path();
            for name in unknown(&read(&path)?, &catalogue) {
                all.push(format!("{}: {name} is no metric of idempotent-metrics", name_of(&path)));
            }
        }
    }
    Ok(all)
}

fn unknown(text: &str, catalogue: &BTreeSet<String>) -> Vec<String> {
    let base = |name: &str| {
        let suffix = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
        suffix.unwrap_or(name).to_owned()
    };
    let is_known =
        |name: &String| TABLES.contains(&name.as_str()) || catalogue.contains(name) || catalogue.contains(&base(name));
    names(text).into_iter().filter(|name| !is_known(name)).collect()
}

/// Returns the words that begin with `idempotent_`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("idempotent_")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_the_catalogue_or_that_of_a_table() {
        let catalogue = names("\"idempotent_run_duration_seconds\", \"idempotent_deliveries_total\"");
        let text = "rate(idempotent_deliveries_total[5m]) idempotent_run_duration_seconds_bucket idempotent_outbox idempotent_nothing";
        assert_eq!(unknown(text, &catalogue), ["idempotent_nothing"]);
    }
}

//! Deserialization of a policy from configuration.
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Policy;

pub(super) fn in_field<E: Error>(name: &str, error: &E) -> E {
    E::custom(format!("`{name}`: {error}"))
}

pub(super) fn twice<E: Error>(name: &str) -> E {
    E::custom(format!("`{name}` is given twice"))
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PolicyVisitor;

        impl<'de> Visitor<'de> for PolicyVisitor {
            type Value = Policy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy: lease, retain, max_retries …")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Policy, M::Error> {
                let mut policy = Policy::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !policy.set(&name, &mut map)? {
                        return Err(M::Error::custom(unknown(&name)));
                    }
                }
                Ok(policy)
            }
        }

        from.deserialize_map(PolicyVisitor)
    }
}

fn unknown(name: &str) -> String {
    let near = Policy::NAMES.iter().map(|known| (strsim::osa_distance(known, name), known)).min();
    match near {
        Some((distance, known)) if distance <= 3 => format!("unknown setting `{name}`; did you mean `{known}`?"),
        _ => format!("unknown setting `{name}`; known are {}", Policy::NAMES.join(", ")),
    }
}

//! YAML as JSON values.
use std::path::Path;

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

use crate::{Failure, read};

/// Returns the documents of a file, with aliases and merge keys resolved.
///
/// # Errors
/// The file is missing, or is no YAML.
pub fn documents(path: &Path) -> Result<Vec<Value>, Failure> {
    parsed(&read(path)?).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Parses a text. See [`documents`].
pub(crate) fn parsed(text: &str) -> Result<Vec<Value>, Failure> {
    YamlLoader::load_from_str(text)?.iter().map(value).collect()
}

fn value(yaml: &Yaml) -> Result<Value, Failure> {
    Ok(match yaml {
        Yaml::Real(text) => Value::Number(serde_json::Number::from_f64(text.parse()?).ok_or("a number is infinite")?),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::String(text) => Value::from(text.as_str()),
        Yaml::Boolean(is_true) => Value::from(*is_true),
        Yaml::Array(parts) => Value::Array(parts.iter().map(value).collect::<Result<_, _>>()?),
        Yaml::Hash(entries) => {
            let (mut merged, mut own) = (Map::new(), Map::new());
            for (key, part) in entries {
                let Yaml::String(key) = key else { return Err(format!("the key {key:?} is no text").into()) };
                match (key.as_str(), value(part)?) {
                    ("<<", Value::Object(base)) => merged.extend(base),
                    ("<<", _) => return Err("`<<` needs a mapping".into()),
                    (key, part) => _ = own.insert(key.to_owned(), part),
                }
            }
            merged.extend(own);
            Value::Object(merged)
        }
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => return Err("an alias has no anchor".into()),
    })
}

/// Returns the texts of an array, or none.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    array(value).iter().map(text).collect()
}

/// Returns the parts of an array, or none.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text of a scalar, or an empty text.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
        scalar => scalar.to_string(),
    }
}

/// Returns the entries of a mapping, or none.
pub(crate) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
